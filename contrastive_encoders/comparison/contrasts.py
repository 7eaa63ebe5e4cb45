"""Pairwise tests between arms on every task and on their average, and the resulting ranking."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.core import InputError
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.statistics.headline import (
    AVERAGES,
    PAIR_MEASURES,
    RankingMetric,
    pair_scores,
    retrieval_scores,
)
from contrastive_encoders.statistics.paired_tests import (
    ALPHA,
    SwapTest,
    centered_ranks,
    holm,
    interval,
    seeds_test,
    sign_flip_test,
    spread,
    swap_test,
    tasks_interval,
)


class PairwiseComparison(NamedTuple):
    """Difference between the scores of two arms (first minus second), with 95 % intervals and p-values."""

    first: int
    second: int
    score: str
    difference: float
    over_items: tuple[float, float] | None
    over_tasks: tuple[float, float] | None  # only for an average
    p: float | None
    p_holm: float | None
    p_seeds: float | None  # None: too few seeds

    @property
    def distinguishable(self) -> bool:
        """Return whether the two arms differ significantly for these seeds, without a claim about other seeds.

        The interval over test items, if there is one, must exclude zero. The corrected p-value, if there is one, must
        be below ``ALPHA``. Without either, the result is False.
        """
        known = list[bool]()
        if self.over_items is not None:
            known.append(self.over_items[0] > 0 if self.difference > 0 else self.over_items[1] < 0)
        if self.p_holm is not None:
            known.append(self.p_holm < ALPHA)
        return bool(known) and all(known)


class Standing(NamedTuple):
    arm: int
    best_rank: int  # one more than the number of arms that are distinguishably better
    worst_rank: int


def choose_ranking_metric(arms: Sequence[Arm], requested: str | None) -> RankingMetric:
    """Return the score that ranks the arms: the requested score, or a default that all runs report.

    The first of these that all runs have is chosen: an STS average, the mean over the tasks of rated pairs, the mean
    over the retrieval tasks, any other score.

    This order differs from the order in `statistics.headline.choose_verdict_metric`, whose docstring explains why.

    Raises:
        InputError: a run lacks the score, or the arms have no score in common.
    """
    shared, members = shared_scores(arms), members_of_averages(arms)
    if requested is not None and requested not in shared:
        lacking = [str(run.path) for arm in arms for run in arm.runs if requested not in run.results["scores"]]
        raise InputError(
            key="ranking_metric",
            value=requested,
            expected=f"a score that all runs report ({', '.join(shared) or 'none'})",
            hint=f"{lacking[0]} does not report {requested}.",
        )
    if requested is not None and not ScoreName.parse(requested).higher_is_better:
        expected = "a score that is better if it is higher"
        raise InputError(key="ranking_metric", value=requested, expected=expected)
    for name in [requested] if requested else AVERAGES:
        if name in shared:
            parts = [one for one in members.get(name, [name]) if one in shared]
            return RankingMetric(name, parts or [name])
    single = [name for name in shared if is_standard_score(name) and name not in members]
    others = [name for name in shared if ScoreName.parse(name).higher_is_better]
    scores = pair_scores(single) or retrieval_scores(single) or pair_scores(shared) or others[:1]
    if not scores:
        scores_of_arms = "; ".join(f"{arm.runs[0].path}: {_first_names(arm.runs[0].results['scores'])}" for arm in arms)
        common, _ = Counter(name for arm in arms for run in arm.runs for name in run.results["scores"]).most_common(1)[
            0
        ]
        raise InputError(
            key="runs",
            expected=f"runs with a score in common, but they report different scores: {scores_of_arms}",
            hint=f"Set ranking_metric={common} to compare the runs that report this score.",
        )
    return RankingMetric.mean_of(scores)


def shared_scores(arms: Sequence[Arm]) -> list[str]:
    """Return the names of the scores that every run reports."""
    return [name for name in arms[0].runs[0].results["scores"] if all(arm.has(name) for arm in arms)]


def members_of_averages(arms: Sequence[Arm]) -> dict[str, list[str]]:
    """Map the name of each average score to the names of the scores that it averages."""
    runs = [run for arm in arms for run in arm.runs]
    return {name: scores for run in runs for name, scores in run.results.get("averages", {}).items()}


def _first_names(scores: Iterable[str]) -> str:
    names = sorted(scores)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def is_standard_score(name: str) -> bool:
    """Return whether a score is computed on a test split, from unmodified texts and full-size embeddings."""
    found = ScoreName.parse(name)
    return found.is_plain and not found.form


def values_of(arm: Arm, headline: RankingMetric) -> np.ndarray:
    """Return the headline score of each run of an arm, as an array of shape (runs,)."""
    if arm.has(headline.name):
        return arm.values(headline.name)
    return np.mean([arm.values(score) for score in headline.scores], axis=0)


def replicates_of(arm: Arm, headline: RankingMetric) -> np.ndarray | None:
    """Return the R bootstrap replicates of an arm's headline score, averaged over its runs, or None if a run has stored
    no replicates.
    """
    if len(headline.scores) > 1:
        parts = [replicates_of(arm, RankingMetric.mean_of([score])) for score in headline.scores]
        return None if any(part is None for part in parts) else np.mean(np.array(parts), axis=0)
    replicates = [run.items.replicates.get(headline.name) if run.items else None for run in arm.runs]
    return None if any(one is None for one in replicates) else np.mean(np.array(replicates, np.float64), axis=0)


def interval_of(arms: Sequence[Arm], arm: Arm, headline: RankingMetric) -> tuple[float, float] | None:
    """Return the 95 % interval of an arm's headline score, from a bootstrap over test items.

    The interval is None if the arms were scored on different items or if a run has not stored its items.
    """
    replicates = replicates_of(arm, headline) if same_items(arms, headline.scores) else None
    return None if replicates is None else interval(replicates)


def contrasts(arms: Sequence[Arm], headline: RankingMetric) -> list[PairwiseComparison]:
    """Compare all pairs of arms by the headline score and by the score of each of its tasks.

    Holm's correction is applied separately to the p-values of the headline and to those of all tasks.
    """
    pairs = list(combinations(range(len(arms)), 2))
    if not pairs:
        return []
    tests = {one: _swap_test(arms, pairs, one) or _sign_flip_test(arms, pairs, one) for one in headline.scores}
    single = [RankingMetric.mean_of([score]) for score in headline.scores if score != headline.name]
    comparisons = list[PairwiseComparison]()
    for family in ([headline], single):
        family_comparisons = [one for score in family for one in _contrasts_by(score, arms, pairs, tests)]
        tested = [place for place, one in enumerate(family_comparisons) if one.p is not None]
        corrected = holm([float(family_comparisons[place].p or 0.0) for place in tested])
        for place, p_holm in zip(tested, corrected, strict=True):
            family_comparisons[place] = family_comparisons[place]._replace(p_holm=p_holm)
        comparisons += family_comparisons
    return comparisons


def _contrasts_by(
    headline: RankingMetric,
    arms: Sequence[Arm],
    pairs: Sequence[tuple[int, int]],
    tests: dict[str, SwapTest | None],
) -> Iterator[PairwiseComparison]:
    parts = [tests[score] for score in headline.scores]
    known = [part for part in parts if part is not None]
    test = None
    if len(known) == len(parts):
        test = SwapTest(np.mean([one.observed for one in known], axis=0), np.mean([one.null for one in known], axis=0))
    p_values = np.where(np.isnan(test.observed), np.nan, test.p_values()) if test else np.full(len(pairs), np.nan)
    for (a, b), p in zip(pairs, p_values, strict=True):
        first, second = values_of(arms[a], headline), values_of(arms[b], headline)
        items = _paired(arms[a], arms[b], headline)
        by_task = [_paired(arms[a], arms[b], RankingMetric.mean_of([score])) for score in headline.scores]
        yield PairwiseComparison(
            a,
            b,
            headline.name,
            float(first.mean() - second.mean()),
            None if items is None else interval(items),
            None if len(by_task) == 1 or any(one is None for one in by_task) else tasks_interval(np.array(by_task)),
            None if np.isnan(p) else float(p),
            None,
            seeds_test(first, second),
        )


def _paired(first: Arm, second: Arm, headline: RankingMetric) -> np.ndarray | None:
    if not same_items([first, second], headline.scores):
        return None
    one, other = replicates_of(first, headline), replicates_of(second, headline)
    return None if one is None or other is None or one.shape != other.shape else one - other


def same_items(arms: Sequence[Arm], scores: Sequence[str]) -> bool:
    """Return whether all runs were scored on the same test items, according to the stored digests of the items."""
    for task in {ScoreName.parse(score).full_task for score in scores}:
        digests = {run.items.digests.get(task) for arm in arms for run in arm.runs if run.items} - {None}
        if len(digests) > 1:
            return False
    return True


def _swap_test(arms: Sequence[Arm], pairs: Sequence[tuple[int, int]], score: str) -> SwapTest | None:
    """Run the swap test on a score for all pairs of arms, or return None if no pair can be tested.

    The result is NaN for a pair of arms if a run has not stored its cosines or was scored on other test pairs. If two
    arms have different numbers of seeds, the seeds of each arm are repeated equally often: for 1 and 3 seeds, the
    single seed is used three times; for 2 and 3 seeds, each seed is paired with each seed of the other arm.
    """
    name = ScoreName.parse(score)
    task = name.full_task
    cosines = [[run.items.cosines[task] for run in arm.runs if run.items and task in run.items.cosines] for arm in arms]
    complete = [len(one) == len(arm.runs) for one, arm in zip(cosines, arms, strict=True)]
    tested = [
        place
        for place, (a, b) in enumerate(pairs)
        if complete[a] and complete[b] and same_items([arms[a], arms[b]], [score])
    ]
    if name.measure not in PAIR_MEASURES or not tested:
        return None
    first = arms[pairs[tested[0]][0]]
    gold = next(run.items.gold[task] for run in first.runs if run.items)
    tested = [place for place in tested if same_items([first, *(arms[arm] for arm in pairs[place])], [score])]
    ranks = {arm: centered_ranks(cosines[arm]) for arm in {arm for place in tested for arm in pairs[place]}}
    sides = list[tuple[np.ndarray, np.ndarray]]()
    for a, b in (pairs[place] for place in tested):
        seeds = math.lcm(len(cosines[a]), len(cosines[b]))
        first_SN, second_SN = (np.tile(ranks[arm], (seeds // len(cosines[arm]), 1)) for arm in (a, b))
        sides.append((first_SN, second_SN))
    test = swap_test(sides, gold, f"swaps of {task}")
    return _for_all_pairs(test, tested, len(pairs))


def _sign_flip_test(arms: Sequence[Arm], pairs: Sequence[tuple[int, int]], score: str) -> SwapTest | None:
    """Run the sign-flip test on a score for all pairs of arms, or return None if no pair can be tested.

    The result is NaN for a pair of arms if a run has not stored its queries or was scored on other queries.
    """
    values = [[run.items.values[score] for run in arm.runs if run.items and score in run.items.values] for arm in arms]
    sizes = {
        arm: {len(one) for one in arrays} for arm, arrays in enumerate(values) if len(arrays) == len(arms[arm].runs)
    }
    tested = [
        place
        for place, (a, b) in enumerate(pairs)
        if a in sizes and b in sizes and len(sizes[a] | sizes[b]) == 1 and same_items([arms[a], arms[b]], [score])
    ]
    if not tested:
        return None
    [size] = sizes[pairs[tested[0]][0]]
    tested = [place for place in tested if sizes[pairs[place][0]] == {size}]
    means = {arm: np.mean(values[arm], axis=0) for place in tested for arm in pairs[place]}
    test = sign_flip_test(np.stack([means[a] - means[b] for a, b in (pairs[place] for place in tested)], 1), score)
    return _for_all_pairs(test, tested, len(pairs))


def _for_all_pairs(test: SwapTest, tested: Sequence[int], pairs: int) -> SwapTest:
    """Convert the result for the tested pairs of arms to a result for all pairs, with NaN for the pairs that were not
    tested.
    """
    observed, null = np.full(pairs, np.nan), np.full((len(test.null), pairs), np.nan)
    observed[tested], null[:, tested] = test.observed, test.null
    return SwapTest(observed, null)


def ranking(arms: Sequence[Arm], headline: RankingMetric, comparisons: Sequence[PairwiseComparison]) -> list[Standing]:
    """Rank the arms by their mean score over seeds. Arms that are not distinguishable share a range of ranks."""
    means = [spread(values_of(arm, headline)).mean for arm in arms]
    better, worse = [0] * len(arms), [0] * len(arms)
    for one in comparisons:
        if one.score == headline.name and one.distinguishable:
            winner, loser = (one.first, one.second) if one.difference > 0 else (one.second, one.first)
            better[loser] += 1
            worse[winner] += 1
    order = sorted(range(len(arms)), key=lambda arm: -means[arm])
    return [Standing(arm, better[arm] + 1, len(arms) - worse[arm]) for arm in order]
