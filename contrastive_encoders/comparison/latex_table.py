"""The results table for a paper: LaTeX with booktabs, and CSV."""

import csv
import io
from collections.abc import Iterator, Sequence

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import Standing, interval_of, same_items, values_of
from contrastive_encoders.comparison.families import Family
from contrastive_encoders.comparison.tables import has_best, item_note, rank
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import spread

MAX_COLUMNS = 9  # maximum number of score columns on a page
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after the end of a row, LaTeX would read it as an optional length
    "*": "{*}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def format_latex(
    arms: Sequence[Arm], families: Sequence[Family], standings: Sequence[Standing], command: str = ""
) -> str:
    """Return a LaTeX ``tabular`` for ``\\input``: a row for each arm in ranked order, with the best scores in bold. A
    score of different test items has no best value, and a comment names its tasks.

    A cell is the mean and the standard deviation over seeds. With one seed, it is the score and, below the score, the
    95 % interval over test items if all runs have stored the scores of these items. Families of tasks that are too wide
    for one page are stacked vertically.
    """
    panels = _panels(families)
    all_scores = [name for family in families for score in family.scores for name in score.scores]
    width = max(sum(len(family.scores) for family in panel) for panel in panels)
    lines = [
        *([f"% Written by: {' '.join(command.split())}"] if command else []),
        *(f"% {note}" for note in item_note(arms, RankingMetric.mean_of(all_scores))),
        "% Requires \\usepackage{booktabs}. Mean and standard deviation over seeds; with one seed, the 95 % interval.",
        rf"\begin{{tabular}}{{ll{'r' * width}}}",
        r"\toprule",
    ]
    for place, panel in enumerate(panels):
        scores = [score for family in panel for score in family.scores]
        heads = ["arm", "rank", *(escape(score.name) for score in scores)]
        lines += [r"\midrule"] if place else []
        if len(families) > 1:
            spans = [rf"\multicolumn{{{len(family.scores)}}}{{c}}{{{escape(family.kind)}}}" for family in panel]
            lines.append(" & ".join(["", "", *spans]) + r" \\")
        lines += [" & ".join(heads) + r" \\", r"\midrule", *_rows(arms, scores, standings)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _panels(families: Sequence[Family]) -> list[list[Family]]:
    """Split the families into panels of at most `MAX_COLUMNS` scores. A larger family is a panel by itself."""
    panels = [[families[0]]]
    for family in families[1:]:
        if sum(len(one.scores) for one in [*panels[-1], family]) > MAX_COLUMNS:
            panels.append([])
        panels[-1].append(family)
    return panels


def _rows(arms: Sequence[Arm], scores: Sequence[RankingMetric], standings: Sequence[Standing]) -> Iterator[str]:
    """Yield the LaTeX rows of a panel: for each arm, its scores and, if needed, a row with their intervals."""
    means = [[round(spread(values_of(arm, score)).mean, 2) for arm in arms] for score in scores]
    best = [max(column) if has_best(arms, score) else None for score, column in zip(scores, means, strict=True)]
    for standing in standings:
        arm = arms[standing.arm]
        cells, intervals = [escape(arm.label), escape(rank(standing).text)], list[str]()
        for score, column, highest in zip(scores, means, best, strict=True):
            summary, mean = spread(values_of(arm, score)), column[standing.arm]
            number = f"{mean:z.2f}"
            number = rf"\textbf{{{number}}}" if mean == highest else number
            bounds = interval_of(arms, arm, score)
            has_deviation = summary.deviation is not None
            cells.append(rf"{number} $\pm$ {summary.deviation:.2f}" if has_deviation else number)
            small = "" if has_deviation or bounds is None else rf"{{\scriptsize [{bounds[0]:z.2f}, {bounds[1]:z.2f}]}}"
            intervals.append(small)
        yield " & ".join(cells) + r" \\"
        if any(intervals):
            yield " & ".join(["", "", *intervals]) + r" \\"


def format_csv(arms: Sequence[Arm], families: Sequence[Family], standings: Sequence[Standing]) -> str:
    """Return CSV text with a row for each arm and score.

    A row contains the mean and standard deviation over seeds, the 95 % interval over test items, and whether all arms
    were scored on the same items.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("arm", "best_rank", "worst_rank", "family", "score", "mean", "sd_over_seeds", "seeds", "low", "high"),
            "same_items",
        ]
    )
    for standing in standings:
        arm = arms[standing.arm]
        for family, score in ((one, score) for one in families for score in one.scores):
            summary = spread(values_of(arm, score))
            bounds = interval_of(arms, arm, score) or ("", "")
            deviation = "" if summary.deviation is None else summary.deviation
            ranks = (standing.best_rank, standing.worst_rank)
            writer.writerow(
                [
                    *(arm.label, *ranks, family.kind, score.name, summary.mean, deviation, summary.seeds, *bounds),
                    str(same_items(arms, score.scores)).lower(),
                ]
            )
    return text.getvalue()


def escape(text: str) -> str:
    """Escape text for LaTeX, so that every character is printed, and join its lines."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))
