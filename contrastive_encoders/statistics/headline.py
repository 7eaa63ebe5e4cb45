"""Choose the headline score, by which encoders are judged or ranked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from contrastive_encoders.core import CorpusInfo
from contrastive_encoders.core.score_names import ScoreName

AVERAGES = ("sts-avg7/all/spearman", "sts-avg5/mean/spearman")  # the preferred one first
PAIR_MEASURES = ("all/spearman", "cosine/spearman")
RETRIEVAL_METRICS = ("ndcg@10", "mrr")  # the preferred one first
PAIR_METRICS = ("spearman", "pearson", "ap", "f1")  # without user-defined metrics
TITLES = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "recall": "Recall", "spearman": "Spearman", "ap": "AP"}


class RankingMetric(NamedTuple):
    """Score, or mean of several scores, on which a verdict or a ranking is based.

    ``name`` is the name of the score or of the mean, ``scores`` are its members.
    """

    name: str
    scores: list[str]
    less_is_better: bool = False

    @classmethod
    def mean_of(cls, scores: Sequence[str], *, less_is_better: bool = False) -> "RankingMetric":
        name = scores[0] if len(scores) == 1 else f"mean of {len(scores)} tasks"
        return cls(name, list(scores), less_is_better)

    @property
    def tasks(self) -> list[str]:
        """Return the distinct task names in ``scores``, without the embedding size: ``stsb@64`` and ``stsb`` are one
        task.
        """
        names = [ScoreName.parse(name) for name in self.scores]
        return list(dict.fromkeys(replace(name, size=None).full_task for name in names))

    def value(self, scores: Mapping[str, float]) -> float:
        return float(np.mean([scores[name] for name in self.scores]))

    def title(self, corpora: Sequence[CorpusInfo]) -> str:
        """Return a title for the score, such as ``nDCG@10 of faq``, ``nDCG@10 of held_out (titles)``, or ``nDCG@10, the
        mean of 3 tasks,``.
        """
        first = ScoreName.parse(self.scores[0])
        metric, at, cutoff = first.metric.partition("@")
        words = f"{TITLES.get(metric, metric)}{at}{cutoff}"
        if len(self.scores) > 1:
            return f"{words}, the mean of {len(self.scores)} tasks,"
        kind = corpora[0].get("query_kind") if corpora else None
        return f"{words} of {first.full_task}{f' ({kind})' if kind else ''}"


def retrieval_scores(names: Sequence[str]) -> list[str]:
    """Return the names of all nDCG@10 scores or, if there are none, of all MRR scores, so that nDCG and MRR are never
    averaged.
    """
    for metric in RETRIEVAL_METRICS:
        if matching := [name for name in names if ScoreName.parse(name).metric == metric]:
            return matching
    return []


def pair_scores(names: Sequence[str]) -> list[str]:
    """Return the names of the Spearman correlations of all tasks with rated pairs."""
    return [name for name in names if ScoreName.parse(name).measure in PAIR_MEASURES]


def choose_verdict_metric(
    before: Mapping[str, float],
    after: Mapping[str, float],
    averages: Collection[str] = (),
    monitor: str | None = None,
    *,
    monitor_less_is_better: bool = False,
) -> RankingMetric | None:
    """Choose the score that the verdict on a run compares before and after training.

    `comparison.contrasts.choose_ranking_metric` prefers STS averages, because runs of several objectives are ranked by
    the tasks of the papers. A single run is judged by the task that it was trained for, so its order is another one.

    The monitored score is preferred, then nDCG@10 of the retrieval tasks, a user-defined metric, Spearman's
    correlation, and any other score. A score of a development set, which has selected the checkpoint, or of truncated
    embeddings is chosen only if there are no others.

    Returns:
        The score, or None if no score with a known direction is available both before and after training.
    """
    shared = [name for name in after if name in before and ScoreName.parse(name).protocol != "geometry"]
    plain = [name for name in shared if ScoreName.parse(name).is_plain]
    if monitor in shared and (monitor in plain or not plain):
        return RankingMetric.mean_of([str(monitor)], less_is_better=monitor_less_is_better)
    names = plain or shared
    single = [name for name in names if name not in averages]
    scores = retrieval_scores(single) or _custom_scores(single)
    scores = scores or [name for name in AVERAGES if name in names][:1] or pair_scores(single)
    scores = scores or [name for name in names if name in averages][:1] or names[:1]
    return RankingMetric.mean_of(scores) if scores else None


def _custom_scores(names: Sequence[str]) -> list[str]:
    """Return the names of the scores that the first user-defined metric computes for tasks with rated pairs:
    ``TASK/cosine/FUNCTION``.
    """
    parsed = [(name, ScoreName.parse(name)) for name in names]
    pairs = {one.full_task for _, one in parsed if one.measure == "cosine/spearman"}
    own = [
        (name, one.metric)
        for name, one in parsed
        if one.protocol == "cosine" and one.full_task in pairs and one.metric not in PAIR_METRICS
    ]
    return [name for name, metric in own if metric == own[0][1]]
