"""Semantic textual similarity: how the cosine of two sentences' vectors correlates with people's ratings.

A year's test set is several subsets. ``all`` is one correlation over their concatenation (Reimers and Gurevych 2019;
Gao et al. 2021), ``mean`` and ``wmean`` average the subsets' own correlations, plainly or by their number of pairs
(SentEval). A set without subsets has ``cosine``.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from contracts import PairTask
from evaluation.data import SENTEVAL, YEARS
from evaluation.embed import Pool
from evaluation.statistics import Estimate, Scores, is_constant, pearson, spearman, weighted

log = logging.getLogger(__name__)

METRICS: dict[str, Callable[[Tensor, Tensor], Estimate]] = {"spearman": spearman, "pearson": pearson}
AVERAGE = "sts-avg7"  # the last column of the papers' tables
AVERAGED = (*(f"{year}/all" for year in YEARS), "stsb/cosine", "sickr/cosine")


class _Line(NamedTuple):
    """One score: its name, its value in -100..100, its interval, and the estimate when it is a single correlation."""

    name: str
    value: float
    interval: list[float]
    estimate: Estimate | None = None


def sts_scores(tasks: Sequence[PairTask], pool: Pool) -> Scores:
    """Every protocol of every task, Spearman and Pearson x 100, and the papers' average where its seven are there."""
    lines: list[_Line] = []
    for task in tasks:
        lines.extend(_task_lines(task, pool))
    lines.extend(_averages({line.name: line for line in lines}))
    return Scores({line.name: line.value for line in lines}, {line.name: line.interval for line in lines})


def cosines(task: PairTask, pool: Pool) -> Tensor:
    """(pairs,) float64; 0 where a vector is zero or not finite, as SentEval has it."""
    similarity = cosine_similarity(pool.of(task.left).double(), pool.of(task.right).double(), dim=-1)
    lost = int(similarity.isnan().sum())
    if lost:
        log.warning(
            "%s: %d of %d pairs hold a vector that is not finite; they count as 0", task.name, lost, len(task.gold)
        )
    # a sentence with itself must be 1, not 1 - 2e-16: otherwise pairs that tie are ranked by the processor's rounding
    return similarity.nan_to_num(nan=0.0).round(decimals=12)


def _task_lines(task: PairTask, pool: Pool) -> Iterator[_Line]:
    similarity, gold = cosines(task, pool), torch.from_numpy(task.gold)
    if is_constant(similarity):
        log.warning("%s: all pairs have the same cosine (%.4f); the correlation counts as 0", task.name, similarity[0])
    rows_of = {name: torch.tensor([s == name for s in task.subsets]) for name in dict.fromkeys(task.subsets)}
    sizes = [int(rows.sum()) for rows in rows_of.values()]
    for metric, correlate in METRICS.items():
        whole = correlate(similarity, gold)
        protocol = "all" if len(rows_of) > 1 else "cosine"
        yield _Line(f"{task.name}/{protocol}/{metric}", 100 * whole.value, whole.interval(), whole)
        if len(rows_of) > 1:
            parts = [correlate(similarity[rows], gold[rows]) for rows in rows_of.values()]
            yield _Line(f"{task.name}/mean/{metric}", *weighted(parts, [1] * len(parts)))
            yield _Line(f"{task.name}/wmean/{metric}", *weighted(parts, sizes))


def _averages(lines: dict[str, _Line]) -> Iterator[_Line]:
    """The mean of seven numbers that were rounded to 2 decimals before, as the published tables have it."""
    for ending in ("", SENTEVAL):
        for metric in METRICS:
            names = [f"{task}{ending}/{protocol}/{metric}" for task, protocol in (one.split("/") for one in AVERAGED)]
            if all(name in lines for name in names):
                parts = [lines[name].estimate for name in names]
                _, interval = weighted([part for part in parts if part is not None], [1] * len(names))
                value = sum(round(lines[name].value, 2) for name in names) / len(names)
                yield _Line(f"{AVERAGE}{ending}/all/{metric}", value, interval)
