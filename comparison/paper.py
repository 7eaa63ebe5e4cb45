"""The table of a comparison for a paper: LaTeX with booktabs, and CSV with unrounded numbers."""

import csv
import io
from collections.abc import Sequence

from comparison.arms import Arm
from comparison.contrasts import Headline, Standing, replicates_of, same_items, values_of
from comparison.statistics import interval, spread
from comparison.tables import rank

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # behind the end of a row it would begin a length
    "*": "{*}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def in_latex(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing], command: str = "") -> str:
    """A ``tabular``, to be read by ``\\input``: the arms in the order of the ranking, the best of each score bold.

    A cell is the mean and the standard deviation over seeds. Of one seed it is the score and, under it, the 95 %
    interval over test items, where all runs have kept them.
    """
    scores = _scores(headline)
    means = {score: [round(spread(values_of(arm, headline, score)).mean, 2) for arm in arms] for score in scores}
    rows = list[str]()
    for standing in standings:
        cells = [escaped(arms[standing.arm].label), escaped(rank(standing).text)]
        intervals = list[str]()
        for score in scores:
            found, shown = spread(values_of(arms[standing.arm], headline, score)), means[score][standing.arm]
            number = f"{shown:z.2f}"
            number = rf"\textbf{{{number}}}" if shown == max(means[score]) else number
            bounds = _bounds(arms, standing.arm, headline, score)
            of_seeds = found.deviation is not None
            cells.append(rf"{number} $\pm$ {found.deviation:.2f}" if of_seeds else number)
            small = "" if of_seeds or bounds is None else rf"{{\scriptsize [{bounds[0]:z.2f}, {bounds[1]:z.2f}]}}"
            intervals.append(small)
        rows.append(" & ".join(cells) + r" \\")
        if any(intervals):
            rows.append(" & ".join(["", "", *intervals]) + r" \\")
    heads = " & ".join(["arm", "rank", *(escaped(score) for score in scores)])
    said = [
        *([f"Written by: {' '.join(command.split())}"] if command else []),
        "Wants \\usepackage{booktabs}. Mean and standard deviation over seeds; of one seed the 95 % interval over test "
        "items.",
    ]
    lines = [
        *(f"% {line}" for line in said),
        rf"\begin{{tabular}}{{ll{'r' * len(scores)}}}",
        r"\toprule",
        rf"{heads} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def in_csv(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing]) -> str:
    """A row for each arm and score: mean and deviation over seeds, and the 95 % interval over test items."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arm", "best_rank", "worst_rank", "score", "mean", "sd_over_seeds", "seeds", "low", "high"])
    for standing in standings:
        arm = arms[standing.arm]
        for score in _scores(headline):
            found = spread(values_of(arm, headline, score))
            bounds = _bounds(arms, standing.arm, headline, score) or ("", "")
            deviation = "" if found.deviation is None else found.deviation
            ranks = (standing.best_rank, standing.worst_rank)
            writer.writerow([arm.label, *ranks, score, found.mean, deviation, found.seeds, *bounds])
    return text.getvalue()


def escaped(text: str) -> str:
    """On one line, as LaTeX shows every letter of it."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _scores(headline: Headline) -> list[str]:
    return [*([headline.name] if headline.tasks != [headline.name] else []), *headline.tasks]


def _bounds(arms: Sequence[Arm], place: int, headline: Headline, score: str) -> tuple[float, float] | None:
    paired = same_items(arms, headline.tasks if score == headline.name else [score])
    kept = replicates_of(arms[place], headline, score) if paired else None
    return None if kept is None else interval(kept)
