"""The tables of a comparison, as data: the report in HTML, the one in Markdown, the terminal and W&B show the same."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from comparison.arms import Arm, differing
from comparison.collect import LeftOut
from comparison.contrasts import (
    Contrast,
    Headline,
    Standing,
    replicates_of,
    same_items,
    values_of,
)
from comparison.statistics import SEEDS_WANTED, interval, spread
from files.tables import Cell, Column, Table, columns

TOO_FEW = "too few seeds"
NUMBER = "z,.2f"


def span(bounds: tuple[float, float] | None) -> Cell | None:
    return None if bounds is None else Cell(" to ".join(f"{bound:z.2f}" for bound in bounds), bounds[0])


def p_value(p: float | None, otherwise: str = "") -> Cell:
    if p is None:
        return Cell(otherwise, 2.0)
    return Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def leaderboard(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing], output: Path) -> Table:
    rows = []
    for standing in standings:
        arm = arms[standing.arm]
        seeds = spread(values_of(arm, headline, headline.name))
        kept = replicates_of(arm, headline, headline.name) if same_items(arms, headline.tasks) else None
        spent = [run.results["spent"] for run in arm.runs]
        mean = {key: float(np.mean([one[key] for one in spent])) for key in spent[0]}  # type: ignore[literal-required]
        rank = (standing.best_rank, standing.worst_rank)
        rows.append([
            arm.label,
            Cell(str(rank[0]) if rank[0] == rank[1] else f"{rank[0]} to {rank[1]}", sum(rank)),
            seeds.mean,
            Cell("one seed", -1.0) if seeds.deviation is None else seeds.deviation,
            Cell(str(seeds.seeds), seeds.seeds),
            span(None if kept is None else interval(kept)),
            mean["steps"], mean["examples"], mean["real_tokens"], mean["wall_seconds"],
            mean["peak_memory_bytes"] / 2**20,
            Cell(", ".join(run.path.name for run in arm.runs),
                 links=tuple((run.path.name, relative(run.path, output)) for run in arm.runs)),
        ])  # fmt: skip
    heads = [
        *columns("arm", "rank"), *columns(headline.name, "sd over seeds", number=NUMBER),
        *columns("seeds", "95 % over test items", right=True),
        *columns("steps", "examples", "real tokens", "seconds", "peak MiB", number="z,.0f"), Column("runs"),
    ]  # fmt: skip
    note = (
        "Means over seeds. The interval resamples test items for these seeds, the deviation is over seeds: two "
        "sources of chance. Arms that cannot be told apart share a range of ranks. Cost is the mean of a run."
    )
    return Table(heads, rows, "Leaderboard", note, "leaderboard")


def task_scores(arms: Sequence[Arm], headline: Headline) -> Table:
    best = {task: max(spread(values_of(arm, headline, task)).mean for arm in arms) for task in headline.tasks}
    rows = []
    for arm in arms:
        cells: list[Cell | str] = [arm.label]
        for task in headline.tasks:
            found = spread(values_of(arm, headline, task))
            text = f"{found.mean:.2f}" + ("" if found.deviation is None else f" ± {found.deviation:.2f}")
            cells.append(Cell(text, found.mean, "best" if found.mean == best[task] else ""))
        rows.append(cells)
    note = "Mean ± standard deviation over seeds; the highest mean of a column is marked."
    return Table([Column("arm"), *columns(*headline.tasks, right=True)], rows, "Scores by task", note, "tasks")


def all_contrasts(arms: Sequence[Arm], found: Sequence[Contrast]) -> Table:
    rows = []
    for one in found:
        rows.append([
            f"{arms[one.first].label} - {arms[one.second].label}",
            one.score,
            one.difference,
            span(one.over_items),
            span(one.over_tasks),
            p_value(one.p),
            p_value(one.p_holm),
            p_value(one.p_seeds, TOO_FEW),
            "distinguishable" if one.distinguishable else Cell("not distinguishable", mark="warn"),
        ])  # fmt: skip
    heads = [
        *columns("difference", "score"), Column("value", NUMBER),
        *columns("95 % over test items", "95 % over tasks, too", "p", "p, Holm", "p over seeds", right=True),
        Column("for these seeds"),
    ]  # fmt: skip
    note = (
        "p is of a paired permutation test over test pairs, for these seeds: ranks of the seeds' similarities are "
        "averaged, and those of the two arms swapped. Holm's correction is over all pairs of arms, of the average and, "
        "apart from it, of all tasks. Two arms are distinguishable where p after correction is below 0.05 and the "
        "interval over test items, of the mean scores, has no zero in it and lies on the same side. A test over "
        f"seeds wants {SEEDS_WANTED} a side."
    )
    return Table(heads, rows, "Every two arms", note, "contrasts")


def said_aloud(
    arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing], found: Sequence[Contrast]
) -> list[str]:
    """The ranking in sentences, neighbour by neighbour."""
    of_two = {frozenset((one.first, one.second)): one for one in found if one.score == headline.name}
    said = []
    for upper, lower in pairwise(standings):
        one = of_two[frozenset((upper.arm, lower.arm))]
        sign = 1 if one.first == upper.arm else -1
        better, worse = arms[upper.arm].label, arms[lower.arm].label
        bounds = one.over_items and sorted(sign * bound for bound in one.over_items)
        facts = f"{sign * one.difference:z.2f}"
        facts += f", 95 % over test items {bounds[0]:z.2f} to {bounds[1]:z.2f}" if bounds else ""
        facts += (
            f", p = {p_value(one.p_holm).text.replace('< ', 'below ')} after Holm's correction"
            if one.p_holm is not None
            else ""
        )
        said.append(
            f"{better} is above {worse}, for these seeds ({facts})." if one.distinguishable
            else f"{better} and {worse} are not distinguishable ({facts})."
        )  # fmt: skip
        said += _of_seeds(arms[upper.arm], arms[lower.arm], headline, one)
    few = sorted({len(arm.runs) for arm in arms if len(arm.runs) < SEEDS_WANTED})
    if few and len(arms) > 1:
        counted = f"{few[0]}" if len(few) == 1 else f"{few[0]} to {few[-1]}"
        said.append(f"Too few seeds to test over seeds: {counted} an arm, wanted {SEEDS_WANTED} a side.")
    return said


def _of_seeds(upper: Arm, lower: Arm, headline: Headline, one: Contrast) -> list[str]:
    if one.p_seeds is not None:
        return [f"Over seeds: p = {p_value(one.p_seeds).text.replace('< ', 'below ')}."]
    deviations = [spread(values_of(arm, headline, headline.name)).deviation for arm in (upper, lower)]
    known = [one for one in deviations if one is not None]
    if known and one.distinguishable and abs(one.difference) < 2 * max(known):
        return [f"The seeds' spread of {max(known):.2f} is not small beside it: other seeds may turn it round."]
    return []


def leaks(arms: Sequence[Arm]) -> Table | None:
    tasks = list(dict.fromkeys(task for arm in arms for task in arm.runs[0].results["overlap"]))
    if not tasks:
        return None
    rows = []
    for task in tasks:
        cells: list[Cell | str] = [task]
        for arm in arms:
            one = arm.runs[0].results["overlap"].get(task)
            found = one["found"] if one else 0
            cells.append(
                Cell(f"{found} of {one['checked']}", found, "warn" if found else "")
                if one
                else Cell("not checked", -1.0)
            )
        rows.append(cells)
    note = "Test sentences that stand word for word in the training text of each arm's first run, of those long enough."
    heads = [Column("task"), *columns(*(arm.label for arm in arms), right=True)]
    return Table(heads, rows, "Test sentences in the training text", note, "leaks")


def configs(arms: Sequence[Arm]) -> Table:
    different = set(differing(arms))
    keys = sorted({key for arm in arms for key in arm.settings}, key=lambda key: (key not in different, key))
    rows = []
    for key in keys:
        mark = "differs" if key in different else ""
        values = [Cell(_shown(arm.settings.get(key, "-")), mark=mark) for arm in arms]
        rows.append([key, Cell("differs" if mark else "same", mark=mark), *values])
    note = "Settings in which arms differ come first, and are marked."
    heads = columns("setting", "differs", *(arm.label for arm in arms))
    return Table(heads, rows, "Configs side by side", note, "configs", folded=True)


def left_out(found: Sequence[LeftOut]) -> Table | None:
    if not found:
        return None
    rows = [[str(one.path), Cell(one.reason, mark="warn")] for one in found]
    return Table(columns("folder", "why"), rows, "Left out", "What was named and could not be compared.", "left-out")


def relative(path: Path, output: Path) -> str:
    return Path(os.path.relpath(path.resolve(), output.resolve())).as_posix()


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
