"""Compare a headline score before and after training by paired statistics.

The two scores are distinguishable if the 95 % interval of the change excludes zero and, for retrieval, if a paired
permutation test over queries agrees, because a bootstrap of only five queries is overconfident. The interval uses the
bootstrap of every score (``bootstrap.py``): a resample has the same items before and after training, so the differences
of the replicates are those of the paired bootstrap.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from contrastive_encoders.core import CorpusInfo, ItemScores, Verdict
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import ALPHA, interval, sign_flip_p_value


def add_items_before(items: ItemScores, before: ItemScores | None) -> ItemScores:
    """Add the item scores before training to those after training, for each task whose texts have not changed."""
    if before is None:
        return items

    def is_same(score: str) -> bool:
        task = ScoreName.parse(score).full_task
        if task in items.digests:
            return items.digests[task] == before.digests.get(task)
        return items.digests == before.digests  # for an average

    return items._replace(
        replicates_before={name: one for name, one in before.replicates.items() if is_same(name)},
        values_before={name: one for name, one in before.values.items() if is_same(name)},
    )


def compute_verdict(
    headline: RankingMetric,
    before: Mapping[str, float],
    after: Mapping[str, float],
    items: ItemScores | None = None,
    baselines: Mapping[str, float] | None = None,
    best_of: int = 1,
    corpora: Mapping[str, CorpusInfo] | None = None,
    at_start: Mapping[str, float] | None = None,
    changed: Sequence[str] = (),
) -> Verdict:
    """Compare the headline score before and after training.

    Args:
        headline: the score, or the mean of several scores.
        before: scores before training.
        after: scores after training.
        items: see ``add_items_before``; without items, the scores are never distinguishable.
        baselines: scores without a model.
        best_of: number of scorings of this headline from which the weights were selected.
        corpora: retrieval task -> the documents among which its queries are ranked.
        at_start: scores of the untrained encoder with the overrides ``changed``, which do not apply to ``before``.
        changed: overrides that change the encoder before training.
    """
    searched_corpora = [corpora[task] for task in headline.tasks if task in corpora] if corpora else []
    first, last = headline.value(before), headline.value(after)
    bounds = _interval(headline, items) if items else None
    p = _p_value(headline, items) if items else None
    outcome: Literal["better", "inconclusive", "worse"] = "inconclusive"
    if bounds and (bounds[0] > 0 or bounds[1] < 0) and (p is None or p < ALPHA):
        outcome = "better" if (bounds[0] > 0) != headline.less_is_better else "worse"
    tfidf = [(baselines or {}).get(ScoreName.parse(name).with_protocol("tfidf")) for name in headline.scores]
    known = [value for value in tfidf if value is not None]
    count, unit = count_items(headline, items) if items else (None, "")
    verdict = Verdict(
        headline=headline.title(searched_corpora).rstrip(","),
        scores=headline.scores,
        outcome=outcome,
        before=first,
        after=last,
        interval=bounds,
        p=p,
        items=count,
        documents=sum(one["documents"] for one in searched_corpora)
        if len(searched_corpora) == len(headline.tasks)
        else None,
        tfidf=float(np.mean(known)) if len(known) == len(tfidf) else None,
        sentence="",
        suggestions=[],
    )
    if at_start is not None:
        verdict["at_start"] = headline.value(at_start)
    verdict["sentence"] = _sentence(headline.title(searched_corpora), verdict, unit, best_of, changed)
    return verdict


def _sentence(headline: str, verdict: Verdict, unit: str, best_of: int, changed: Sequence[str]) -> str:
    start = {"better": "Better", "inconclusive": "Inconclusive", "worse": "Worse"}[verdict["outcome"]]
    bounds, first, last = verdict["interval"], verdict["before"], verdict["after"]
    digits = 1 if bounds is None or min(map(abs, bounds)) >= 0.05 else 2
    facts = [f"{last - first:+z.{digits}f}"]
    if bounds is None:
        facts.append("no scores of test items")
    else:
        low, high = bounds
        facts.append(f"95 % interval {low:+z.{digits}f} to {high:+z.{digits}f}")
        p = verdict["p"]
        if p is not None and (low > 0 or high < 0) and p >= ALPHA:
            facts.append(f"p = {p:.2f} by a permutation test")
    if verdict["items"]:
        facts.append(f"{verdict['items']:,} {unit}")
    if verdict["documents"]:
        facts.append(f"{verdict['documents']:,} documents")
    if best_of > 1:
        facts.append(f"the best of {best_of} evaluations, so slightly optimistic")
    sentence = f"{start}: {headline} {first:.{digits}f} -> {last:.{digits}f} ({', '.join(facts)})."
    if verdict["outcome"] == "worse":
        sentence += " Keep what you had."
    if "at_start" in verdict:
        sentence += f" With {' '.join(changed)}, the score was {verdict['at_start']:.{digits}f} before training."
    if (tfidf := verdict["tfidf"]) is not None:
        sentence += f" TF-IDF: {tfidf:.1f}{', above both' if tfidf > max(first, last) else ''}."
    return sentence


def _interval(headline: RankingMetric, items: ItemScores) -> list[float] | None:
    """Return the 95 % interval of the change of the headline score."""
    if not (sides := _pair_sides(headline, items.replicates_before, items.replicates)):
        return None
    change_R = np.mean([after - before for before, after in sides], axis=0)
    return list(interval(change_R))


def _p_value(headline: RankingMetric, items: ItemScores) -> float | None:
    """Return the p-value of a permutation test over queries, which randomly swaps the scores before and after
    training.
    """
    if not (sides := _pair_sides(headline, items.values_before, items.values)):
        return None
    # Weights of the mean over tasks of the means over queries
    parts_N = np.concatenate([(after - before) / (len(sides) * len(after)) for before, after in sides])
    return sign_flip_p_value(parts_N)


def _pair_sides(
    headline: RankingMetric, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each score, the pair of its item scores before and after training, or an empty list if any are
    missing or differ in size.
    """
    sides: Sequence[tuple[Any, Any]] = [(before.get(name), after.get(name)) for name in headline.scores]
    if any(one is None or other is None or one.shape != other.shape for one, other in sides):
        return []
    return [(np.asarray(one, np.float64), np.asarray(other, np.float64)) for one, other in sides]


def count_items(headline: RankingMetric, items: ItemScores) -> tuple[int | None, str]:
    """Return the number of test items of the headline score and their unit, "queries" or "pairs"."""
    if all(name in items.values for name in headline.scores):
        return sum(len(items.values[name]) for name in headline.scores), "queries"
    tasks = [ScoreName.parse(name).full_task for name in headline.scores]
    if all(task in items.gold for task in tasks):
        return sum(len(items.gold[task]) for task in tasks), "pairs"
    return None, ""
