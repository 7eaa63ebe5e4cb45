"""Tables of a comparison, used for HTML, Markdown, the terminal, and W&B."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_encoders.comparison.arms import Arm, differing
from contrastive_encoders.comparison.collect import SkippedRun
from contrastive_encoders.comparison.contrasts import (
    PairwiseComparison,
    Standing,
    interval_of,
    same_items,
    values_of,
)
from contrastive_encoders.comparison.families import Family
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.core.shared_texts import is_notable
from contrastive_encoders.reports.tables import Cell, Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import MIN_SEEDS, spread

TOO_FEW_SEEDS = "too few seeds"
NUMBER = "z,.2f"
INTERVAL_NOTE = "In parentheses: the 95 % interval of the difference over test items, and p after Holm's correction."
INTERVAL, DEVIATION, TIME = "95 %", "sd over seeds", "time"
OPTIONAL = (INTERVAL, DEVIATION, TIME)  # columns left out in a narrow terminal; the report has them
MAX_LEAKS = 3  # arms in a warning about test texts in the training data
MIN_ARMS_AS_ROWS = 6  # from this number of arms, each arm is a row instead of a column


def span(bounds: tuple[float, float] | None) -> Cell | None:
    return None if bounds is None else Cell(" to ".join(f"{bound:z.2f}" for bound in bounds), bounds[0], values=bounds)


def p_value(p: float | None, otherwise: str = "") -> Cell:
    if p is None:
        return Cell(otherwise, 2.0, values=())
    return Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def leaderboard(arms: Sequence[Arm], headline: RankingMetric, standings: Sequence[Standing], output: Path) -> Table:
    rows = []
    for standing in standings:
        arm = arms[standing.arm]
        seeds = spread(values_of(arm, headline))
        mean = mean_cost(arm)
        rows.append(
            [
                arm.label,
                rank(standing),
                seeds.mean,
                Cell("one seed", -1.0, values=()) if seeds.deviation is None else seeds.deviation,
                Cell(str(seeds.seeds), seeds.seeds),
                span(interval_of(arms, arm, headline)),
                mean["steps"],
                mean["examples"],
                mean["real_tokens"],
                mean["wall_seconds"],
                mean["peak_memory_bytes"] / 2**20,
                Cell(
                    ", ".join(run.path.name for run in arm.runs),
                    links=tuple((run.path.name, relative(run.path, output)) for run in arm.runs),
                ),
            ]
        )
    heads = [
        *columns("arm", "rank"),
        *columns(headline.name, "sd over seeds", number=NUMBER),
        *columns("seeds", "95 % over test items", right=True),
        *columns("steps", "examples", "real tokens", "seconds", "peak MiB", number="z,.0f"),
        Column("runs"),
    ]
    note = (
        "Means over seeds. The interval resamples test items for these seeds; the standard deviation is over seeds. "
        "Arms that are not distinguishable share a range of ranks. Costs are means over an arm's runs."
    )
    return Table(heads, rows, "Leaderboard: all numbers and runs", note, "leaderboard", folded=True)


def mean_cost(arm: Arm) -> dict[str, float]:
    """Return the mean training cost of an arm's runs, for each entry of `RunCost`. An encoder that was only evaluated
    has a cost of 0.
    """
    spent: list[Mapping[str, Any]] = [run.results["cost"] for run in arm.runs]
    return {key: float(np.mean([one[key] if one["steps"] else 0 for one in spent])) for key in spent[0]}


def scores_by_family(arms: Sequence[Arm], families: Sequence[Family], standings: Sequence[Standing]) -> Table:
    """Return the ranking as a table that fits a terminal, with one score for each family of tasks."""
    headline, *others = (family.score for family in families)
    rows = []
    for standing in standings:
        arm = arms[standing.arm]
        seeds = spread(values_of(arm, headline))
        rows.append(
            [
                arm.label,
                rank(standing),
                seeds.mean,
                *(spread(values_of(arm, score)).mean for score in others),
                span(interval_of(arms, arm, headline)),
                seeds.deviation,
                Cell(duration(mean_cost(arm)["wall_seconds"]), mean_cost(arm)["wall_seconds"]),
            ]
        )
    first = families[0].heading if others else headline.name
    heads = [
        *columns("arm", "rank"),
        *columns(first, *(family.heading for family in families[1:]), number=NUMBER),
        Column(INTERVAL, right=True),
        Column(DEVIATION, NUMBER),
        Column(TIME, right=True),
    ]
    title = f"Ranked by {headline.name if '/' in headline.name else first}" if others else "Ranking"
    return Table(heads, rows, title, name="families")


def has_best(arms: Sequence[Arm], score: RankingMetric) -> bool:
    """Return whether the arm with the highest value of a score is the best: the arms were scored on the same test
    items, and a higher value is better.
    """
    return same_items(arms, score.scores) and all(ScoreName.parse(name).higher_is_better for name in score.scores)


def task_scores(arms: Sequence[Arm], families: Sequence[Family], standings: Sequence[Standing]) -> Table:
    """Return a heat map of all scores: for each family, its average and the scores of its tasks."""
    scores = [score for family in families for score in family.scores]
    scores_by_name = {score.name: [spread(values_of(arms[one.arm], score)) for one in standings] for score in scores}
    best = {name: max(one.mean for one in summaries) for name, summaries in scores_by_name.items()}
    comparable = {score.name for score in scores if has_best(arms, score)}
    rows = []
    for place, standing in enumerate(standings):
        cells: list[Cell | str] = [arms[standing.arm].label]
        for score in scores:
            one = scores_by_name[score.name][place]
            text = f"{one.mean:.2f}" + ("" if one.deviation is None else f" ± {one.deviation:.2f}")
            mark = "best" if one.mean == best[score.name] and score.name in comparable else ""
            cells.append(
                Cell(text, one.mean, mark, shade=shade(one.mean, [other.mean for other in scores_by_name[score.name]]))
            )
        rows.append(cells)
    note = "Mean ± standard deviation over seeds. Darker is higher within a column, and the highest score is bold."
    heads = [Column("arm"), *columns(*best, right=True)]
    return Table(heads, rows, "Scores by task", note, "tasks", hint="Click a heading to sort.")


def shade(value: float, column: Sequence[float]) -> float:
    low, high = min(column), max(column)
    return (value - low) / (high - low) if high > low else 0.0


def all_contrasts(arms: Sequence[Arm], comparisons: Sequence[PairwiseComparison]) -> Table:
    rows = []
    for one in comparisons:
        rows.append(
            [
                f"{arms[one.first].label} - {arms[one.second].label}",
                one.score,
                one.difference,
                span(one.over_items),
                span(one.over_tasks),
                p_value(one.p),
                p_value(one.p_holm),
                p_value(one.p_seeds, TOO_FEW_SEEDS),
                "distinguishable" if one.distinguishable else Cell("not distinguishable", mark="warn"),
            ]
        )
    heads = [
        *columns("difference", "score"),
        Column("value", NUMBER),
        *columns("95 % over test items", "95 % over items and tasks", "p", "p, Holm", "p over seeds", right=True),
        Column("for these seeds"),
    ]
    note = (
        "p is from a paired permutation test over test items for these seeds: it swaps the results of the two arms for "
        "an item. Holm's correction covers all pairs of arms, separately for the average and for all tasks. Two arms "
        "are distinguishable if the corrected p is below 0.05 and the interval over test items excludes zero. A test "
        f"over seeds requires {MIN_SEEDS} seeds per arm."
    )
    return Table(heads, rows, "Pairwise differences in numbers", note, "contrasts", folded=True)


def before_and_after(arms: Sequence[Arm]) -> Table | None:
    """Return a table that compares each run that was scored before training with its initial encoder."""
    verdicts = [(arm, run, run.results["verdict"]) for arm in arms for run in arm.runs if "verdict" in run.results]
    if not verdicts:
        return None
    marks = {"better": "best", "worse": "warn"}
    rows = [
        [
            arm.label,
            str(run.seed),
            one["headline"],
            one["before"],
            one["after"],
            one["after"] - one["before"],
            span((one["interval"][0], one["interval"][1]) if one["interval"] else None),
            one["tfidf"],
            Cell(one["outcome"], mark=marks.get(one["outcome"], "")),
        ]
        for arm, run, one in verdicts
    ]
    heads = [
        *columns("arm", "seed", "score"),
        *columns("before", "after", "change", number=NUMBER),
        Column("95 % of the change", right=True),
        Column("TF-IDF", NUMBER),
        Column("verdict"),
    ]
    note = (
        "Each run compared with its initial encoder on the score of its verdict. The interval is from a paired "
        "bootstrap over test items. For retrieval, a permutation test over queries has to agree."
    )
    return Table(heads, rows, "Before and after training", note, "before-after")


def conclusions(
    arms: Sequence[Arm],
    headline: RankingMetric,
    standings: Sequence[Standing],
    comparisons: Sequence[PairwiseComparison],
) -> list[str]:
    """Return a conclusion about each arm, in ranked order, as one sentence. It states the difference from the best arm
    (for the best arm, from the second best), and names the arms that are not distinguishable from this arm.
    """
    if len(standings) == 1:
        return ["the only arm."]
    max_names = 3 if len(arms) <= 8 else 0
    by_pair = {frozenset((one.first, one.second)): one for one in comparisons if one.score == headline.name}
    sentences = list[str]()
    for standing in standings:
        rivals = [one.arm for one in standings if one.arm != standing.arm]
        similar = [arm for arm in rivals if not by_pair[frozenset((standing.arm, arm))].distinguishable]
        other = rivals[0]  # the best arm, or the second best for the best arm
        one = by_pair[frozenset((standing.arm, other))]
        facts = _facts(arms, headline, one, standing.arm, other)
        sign = 1 if one.first == standing.arm else -1
        distance = f"{sign * one.difference:+z.2f} against {arms[other].label} ({facts})"
        if not similar:
            conclusion = "above every other arm" if standing is standings[0] else "distinguishable from every other arm"
            sentences.append(f"{distance}; {conclusion}, for these seeds.")
        else:
            sentences.append(
                f"{distance}; not distinguishable from {_join_names([arms[arm].label for arm in similar], max_names)}."
            )
    return sentences


def _facts(arms: Sequence[Arm], headline: RankingMetric, one: PairwiseComparison, arm: int, other: int) -> str:
    """Format the evidence for the difference ``arm - other``: its 95 % interval, its p-values, and the spread over
    seeds.
    """
    sign = 1 if one.first == arm else -1
    bounds = one.over_items and sorted(sign * bound for bound in one.over_items)
    facts = [f"{bounds[0]:+z.2f} to {bounds[1]:+z.2f}"] if bounds else []
    for p, suffix in ((one.p_holm, ""), (one.p_seeds, " over seeds")):
        facts += [f"p = {p_value(p).text}{suffix}".replace("= < ", "< ")] if p is not None else []
    deviations = [spread(values_of(arms[each], headline)).deviation for each in (arm, other)]
    known = [deviation for deviation in deviations if deviation is not None]
    if one.p_seeds is None and known and one.distinguishable and abs(one.difference) < 2 * max(known):
        facts.append(f"seeds differ by {max(known):.2f}, so other seeds may reverse it")
    return ", ".join(facts) or "no test: scores of test items are missing or differ in their items"


def _join_names(names: Sequence[str], max_names: int) -> str:
    """Join names: ``a, b and c``. In a longer list, names after the first ``max_names`` are only counted."""
    names = [*names[:max_names], f"{len(names) - max_names} others"] if len(names) > max_names + 1 else list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def notes(arms: Sequence[Arm], headline: RankingMetric) -> list[str]:
    """Return the reasons to doubt the ranking: different test items, test texts in training data, and few seeds."""
    return [*item_note(arms, headline), *leak_notes(arms), *seed_note(arms)]


def item_note(arms: Sequence[Arm], headline: RankingMetric) -> list[str]:
    """Return a warning if the scores that rank the arms are of different test items, such as other held-out rows."""
    scores = (score for score in headline.scores if not same_items(arms, [score]))
    tasks = ", ".join(dict.fromkeys(ScoreName.parse(score).full_task for score in scores))
    note = f"Warning: the arms are not comparable, because they were scored on different items of {tasks}. "
    return [f"{note}Evaluate all encoders on the same items."] if tasks else []


def seed_note(arms: Sequence[Arm]) -> list[str]:
    counts = sorted({len(arm.runs) for arm in arms if len(arm.runs) < MIN_SEEDS})
    if not counts or len(arms) == 1:
        return []
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [f"Too few seeds for a test over seeds: {number} per arm, {MIN_SEEDS} are needed."]


def leak_notes(arms: Sequence[Arm]) -> list[str]:
    """Return a warning for each task if a notable number of its texts occur in the training data of an arm."""
    found = dict[str, list[str]]()
    for arm in arms:
        for task, counts in arm.runs[0].results.get("overlap", {}).items():
            if is_notable(counts):
                found.setdefault(task, []).append(f"{arm.label} ({counts['found']:,} of {counts['checked']:,})")
    return [
        f"Warning: texts of {task} are in the training data of {', '.join(some[:MAX_LEAKS])}"
        f"{f' and {len(some) - MAX_LEAKS} others' if len(some) > MAX_LEAKS else ''}. Evaluate on texts that no encoder "
        "was trained on."
        for task, some in found.items()
    ]


def answer(
    arms: Sequence[Arm],
    headline: RankingMetric,
    standings: Sequence[Standing],
    comparisons: Sequence[PairwiseComparison],
) -> Table:
    """Return a table with a row for each arm in ranked order: its score, a conclusion in plain words, and its cost."""
    rows = []
    for standing, sentence in zip(standings, conclusions(arms, headline, standings, comparisons), strict=True):
        arm = arms[standing.arm]
        seeds = spread(values_of(arm, headline))
        mean = mean_cost(arm)
        tokens, seconds, memory = (mean[key] for key in ("real_tokens", "wall_seconds", "peak_memory_bytes"))
        score = f"{seeds.mean:.2f}" + ("" if seeds.deviation is None else f" ± {seeds.deviation:.2f}")
        rows.append(
            [
                arm.label,
                rank(standing),
                Cell(score, seeds.mean),
                sentence,
                Cell(short_number(tokens), tokens),
                Cell(duration(seconds), seconds),
                Cell(f"{memory / 2**20:,.0f} MiB", memory),
            ]
        )
    heads = [
        *columns("arm", "rank"),
        Column(headline.name, right=True),
        Column("conclusion"),
        *columns("tokens", "time", "memory", right=True),
    ]
    return Table(
        heads, rows, "Conclusions", f"{INTERVAL_NOTE} Scores and costs are means over an arm's runs.", "answer"
    )


def rank(standing: Standing) -> Cell:
    best, worst = standing.best_rank, standing.worst_rank
    return Cell(str(best) if best == worst else f"{best} to {worst}", best + worst, values=(best, worst))


def short_number(number: float) -> str:
    """Format a number with few digits: ``2.1 M``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """Format a duration: ``1 h 05 min``, ``2 min 03 s``, ``4.0 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3600
    if hours < 1:
        return f"{int(minutes)} min {int(seconds % 60):02d} s"
    return f"{int(hours)} h {int(minutes % 60):02d} min"


def leaks(arms: Sequence[Arm]) -> Table | None:
    tasks = list(dict.fromkeys(task for arm in arms for task in arm.runs[0].results.get("overlap", {})))
    if not tasks:
        return None
    rows = []
    for task in tasks:
        cells: list[Cell | str] = [task]
        for arm in arms:
            one = arm.runs[0].results.get("overlap", {}).get(task)
            count = one["found"] if one else 0
            cells.append(
                Cell(f"{count} of {one['checked']}", count, "warn" if count else "")
                if one
                else Cell("not checked", -1.0, values=())
            )
        rows.append(cells)
    note = "Test sentences of sufficient length that occur verbatim in the training text of each arm's first run."
    heads, rows = _transpose_many_arms("task", arms, rows)
    return Table(
        [Column(heads[0]), *columns(*heads[1:], right=True)], rows, "Test sentences in the training text", note, "leaks"
    )


def configs(arms: Sequence[Arm]) -> list[Table]:
    """Return a table of the settings in which the arms differ, and a folded table of the settings that they share."""
    different = set(differing(arms))
    keys = sorted({key for arm in arms for key in arm.settings})
    rows = [[key, *(Cell(_format(arm.settings.get(key, "-"))) for arm in arms)] for key in keys if key in different]
    shared = [[key, Cell(_format(arms[0].settings.get(key)))] for key in keys if key not in different]
    heads, rows = _transpose_many_arms("setting", arms, rows)
    return [
        *([Table(columns(*heads), rows, "Settings that differ", "", "configs")] if different else []),
        Table(columns("setting", "common value"), shared, "Common settings", "", "configs-shared", folded=True),
    ]


def _transpose_many_arms(heading: str, arms: Sequence[Arm], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return the headings and rows of a table that has one column per arm, or one row per arm if there are many
    arms.
    """
    labels = [arm.label for arm in arms]
    if len(arms) <= MIN_ARMS_AS_ROWS:
        return [heading, *labels], rows
    transposed = [list(cells) for cells in zip(*rows, strict=True)] if rows else [[]]
    return ["arm", *transposed[0]], [[label, *cells] for label, cells in zip(labels, transposed[1:], strict=False)]


def skipped_runs(skipped: Sequence[SkippedRun]) -> Table | None:
    if not skipped:
        return None
    rows = [[str(one.path), Cell(one.reason, mark="warn")] for one in skipped]
    return Table(columns("path", "reason"), rows, "Skipped runs", "They could not be compared, or failed.", "left-out")


def relative(path: Path, output: Path) -> str:
    return Path(os.path.relpath(path.resolve(), output.resolve())).as_posix()


def _format(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
