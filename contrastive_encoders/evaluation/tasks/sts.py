"""Semantic textual similarity: correlation of cosines and human ratings.

The test set of a year has several subsets. ``all`` is one correlation over their concatenation (Reimers and Gurevych
2019; Gao et al. 2021). ``mean`` and ``wmean`` average the correlations of the subsets, unweighted or weighted by the
number of pairs (SentEval). A set without subsets has ``cosine``. ``max`` is the best of cosine, dot product, negative
Euclidean distance, and negative Manhattan distance over the full set, by which sentence-transformers selected
checkpoints until version 3.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from contrastive_encoders.core import InputError, RatedPairs
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.evaluation.embedding_pool import DIGITS, EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table, table
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.statistics.bootstrap import Estimate, average, is_constant, of_function, pearson, spearman

log = logging.getLogger(__name__)

METRICS: dict[str, Callable[[Tensor, Tensor, str | None], Estimate]] = {"spearman": spearman, "pearson": pearson}


class RatedPairTask:
    """Base class of tasks of rated text pairs."""

    def __init__(self, pairs: RatedPairs) -> None:
        self.pairs, self.name = pairs, pairs.name

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.pairs.left
        yield self.pairs.right


class SimilarityTask(RatedPairTask):
    """Task that correlates the cosines of text pairs with human ratings of the pairs, as STS does."""

    def __init__(self, pairs: RatedPairs) -> None:
        super().__init__(pairs)
        self.subsets = list(dict.fromkeys(pairs.subsets))
        # Raw text and its SentEval form are the same items, so they get the same resamples
        self.key = ScoreName.parse(pairs.name).without_form()

    def score_names(self) -> list[str]:
        protocols = ("all", "mean", "wmean", "max") if len(self.subsets) > 1 else ("cosine", "max")
        return [f"{self.name}/{protocol}/{metric}" for metric in METRICS for protocol in protocols]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        gold_N = torch.from_numpy(self.pairs.gold)
        similarities = {"cosine": cosines(self.pairs, pool), **distances(self.pairs, pool)}
        cosine_N = similarities["cosine"]
        if is_constant(cosine_N):
            log.warning(
                "%s: all pairs have the same cosine (%.4f); the correlation counts as 0", self.name, cosine_N[0]
            )
        key = self.key if options.intervals else None
        estimates = {}
        for metric, correlate in METRICS.items():
            overall = correlate(cosine_N, gold_N, key)
            values = {name: correlate(values_N, gold_N, None).value for name, values_N in similarities.items()}
            best = max(values, key=lambda name: values[name])  # the first, cosine, if they are equal
            estimates[f"max/{metric}"] = overall if best == "cosine" else correlate(similarities[best], gold_N, key)
            if len(self.subsets) == 1:
                estimates[f"cosine/{metric}"] = overall
                continue
            estimates[f"all/{metric}"] = overall
            parts, sizes = self._parts(correlate, cosine_N, gold_N, key)
            estimates[f"mean/{metric}"], estimates[f"wmean/{metric}"] = average(parts), average(parts, sizes)
        return {f"{self.name}/{name}": estimate for name, estimate in estimates.items()}

    def _parts(
        self, correlate: Callable, cosine_N: Tensor, gold_N: Tensor, key: str | None
    ) -> tuple[list[Estimate], list[int]]:
        parts, sizes = [], []
        for subset in self.subsets:
            rows_N = torch.tensor([name == subset for name in self.pairs.subsets])
            parts.append(correlate(cosine_N[rows_N], gold_N[rows_N], key and f"{key}/{subset}"))
            sizes.append(int(rows_N.sum()))
        return parts, sizes


class CustomMetricPairs(RatedPairTask):
    """Task with a user-defined metric, a function of the cosines and the ratings; the score is named
    ``NAME/cosine/FUNCTION``.
    """

    def __init__(self, pairs: RatedPairs, function: Callable[[np.ndarray, np.ndarray], float]) -> None:
        super().__init__(pairs)
        self.function = function

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/{self.function.__name__}"]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        key, gold_N = self.name if options.intervals else None, torch.from_numpy(self.pairs.gold)
        estimate = of_function(self.function, cosines(self.pairs, pool, warn=False), gold_N, key)
        return dict.fromkeys(self.score_names(), estimate)


def cosines(task: RatedPairs, pool: EmbeddingPool, warn: bool = True) -> Tensor:
    """Return the cosine of each pair, (pairs,) float64.

    As in SentEval, the cosine is 0 if an embedding is zero or not finite.
    """
    similarity = cosine_similarity(pool.lookup(task.left).double(), pool.lookup(task.right).double(), dim=-1)
    missing = int(similarity.isnan().sum())
    if missing and warn:
        log.warning(
            "%s: %d of %d pairs have an embedding with NaN or infinity; their cosines count as 0",
            task.name,
            missing,
            len(task.gold),
        )
    # The cosine of equal sentences must be 1, not 1 - 2e-16: otherwise rounding determines the rank of tied pairs
    return similarity.round(decimals=DIGITS).nan_to_num(nan=0.0)


def distances(task: RatedPairs, pool: EmbeddingPool) -> dict[str, Tensor]:
    """Return the negative Manhattan distance, negative Euclidean distance, and dot product of each pair, (pairs,)
    float64 each.
    """
    left_ND, right_ND = pool.lookup(task.left).double(), pool.lookup(task.right).double()
    similarities = {
        "manhattan": -(left_ND - right_ND).abs().sum(-1),
        "euclidean": -(left_ND - right_ND).square().sum(-1).sqrt(),
        "dot": (left_ND * right_ND).sum(-1),
    }
    return {name: values_N.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for name, values_N in similarities.items()}


class STSLayout(NamedTuple):
    """Tables of an STS data set, and the range of its ratings."""

    rows: dict[str, int]  # table -> official number of rows; the tables are concatenated
    low: float
    high: float
    has_subsets: bool = False


YEARS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
STSB = {"STSBenchmark/train": 5749, "STSBenchmark/dev": 1500, "STSBenchmark/test": 1379}
SICK = {"SICK/train": 4500, "SICK/dev": 500, "SICK/test": 4927}
LAYOUTS = {
    **{year: STSLayout({f"{year.upper()}/test": rows}, 0, 5, has_subsets=True) for year, rows in YEARS.items()},
    "stsb-dev": STSLayout({"STSBenchmark/dev": 1500}, 0, 5),
    "stsb": STSLayout({"STSBenchmark/test": 1379}, 0, 5),
    "sickr-dev": STSLayout({"SICK/dev": 500}, 1, 5),
    "sickr": STSLayout({"SICK/test": 4927}, 1, 5),
    "sickr-all": STSLayout(SICK, 1, 5),
}


def read_pairs(root: Path, name: str, layout: STSLayout, rating: str = "score") -> RatedPairs:
    """Read rated pairs from a layout's tables, with ratings from the column ``rating``.

    ``name`` may end in ``@senteval``.
    """
    columns = ["sentence1", "sentence2", rating, *(["subset"] if layout.has_subsets else [])]
    pairs, gold = RatedPairs(name, [], [], np.empty(0), []), list[float]()
    for path in (table(root, one, name) for one in layout.rows):
        rows_before = len(gold)
        for row in read_table(path, columns):
            pairs.left.append(row.text("sentence1"))
            pairs.right.append(row.text("sentence2"))
            gold.append(row.number(rating, layout.low, layout.high))
            pairs.subsets.append(row.text("subset") if layout.has_subsets else name)
        if len(gold) == rows_before:
            expected, hint = "sentence pairs below the header", "Download the table again."
            raise InputError(location=str(path), value="no rows", expected=expected, hint=hint)
    return pairs._replace(gold=np.array(gold))


def read_similarity(layout: STSLayout, root: Path, name: str, config: EvaluateConfig) -> SimilarityTask:
    return SimilarityTask(read_pairs(root, name, layout))


ENTRIES = {
    name: TaskEntry(layout.rows, partial(read_similarity, layout), senteval=True) for name, layout in LAYOUTS.items()
}
