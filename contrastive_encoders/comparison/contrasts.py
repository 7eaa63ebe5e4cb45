"""Pairwise tests between arms on every task and on their average, and the resulting ranking."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.core import InputError
from contrastive_encoders.statistics.paired_tests import (
    ALPHA,
    SwapTest,
    centred_ranks,
    holm,
    interval,
    over_tasks,
    seeds_test,
    sign_test,
    spread,
    swap_test,
)

PREFERRED = ("sts-avg7/all/spearman", "sts-avg5/mean/spearman")
OUR_MEAN = "mean of {n} tasks"
OF_QUERIES = ("/ndcg@10", "/mrr")  # scores of retrieval, the best first
OF_PAIRS = ("all/spearman", "cosine/spearman")  # protocol and metric of what the swap test judges


class Headline(NamedTuple):
    """The score that arms are ranked by, and those that it is the average of; ``tasks`` is at least itself."""

    name: str
    tasks: list[str]


class Contrast(NamedTuple):
    """Difference between two arms, first minus second, with 95% intervals over test items and p-values."""

    first: int
    second: int
    score: str
    difference: float
    over_items: tuple[float, float] | None
    over_tasks: tuple[float, float] | None  # of an average only
    p: float | None
    p_holm: float | None
    p_seeds: float | None  # None: too few seeds

    @property
    def distinguishable(self) -> bool:
        """For these seeds: the interval has no zero in it and, where there is a test, p after correction is small."""
        known = list[bool]()
        if self.over_items is not None:
            known.append(self.over_items[0] > 0 if self.difference > 0 else self.over_items[1] < 0)
        if self.p_holm is not None:
            known.append(self.p_holm < ALPHA)
        return bool(known) and all(known)


class Standing(NamedTuple):
    arm: int
    best_rank: int  # one more than the arms that are better, distinguishably
    worst_rank: int


def choose_headline(arms: Sequence[Arm], wanted: str | None) -> Headline:
    """
    Raises:
        InputError: a run lacks the score, or the arms have none in common.
    """
    shared = [name for name in arms[0].runs[0].results["scores"] if all(arm.has(name) for arm in arms)]
    if wanted is not None and wanted not in shared:
        lacking = [str(run.path) for arm in arms for run in arm.runs if wanted not in run.results["scores"]]
        raise InputError(
            f"headline={wanted}: {lacking[0]} has no such score. All runs have: {', '.join(shared) or 'none'}."
        )
    members = {name: held for arm in arms for run in arm.runs for name, held in run.results.get("averages", {}).items()}
    for name in [wanted] if wanted else PREFERRED:
        if name in shared:
            held = [one for one in members.get(name, [name]) if one in shared]
            return Headline(name, held or [name])
    tasks = [name for name in shared if name.endswith(OF_PAIRS) and not is_dev(name) and name not in members]
    for ending in OF_QUERIES:
        tasks = tasks or [name for name in shared if name.endswith(ending) and not is_dev(name) and name not in members]
    tasks = tasks or [name for name in shared if name.endswith(OF_PAIRS)] or shared[:1]
    if not tasks:
        has = "; ".join(f"{arm.runs[0].path}: {_some_of(arm.runs[0].results['scores'])}" for arm in arms)
        raise InputError(
            key="runs",
            expected=f"runs with a score in common, but {has}",
            hint=f"Set headline={next(iter(arms[0].runs[0].results['scores']))} to compare the runs that have it.",
        )
    return Headline(tasks[0] if len(tasks) == 1 else OUR_MEAN.format(n=len(tasks)), tasks)


def _some_of(scores: Iterable[str]) -> str:
    names = sorted(scores)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def is_dev(name: str) -> bool:
    """Whether a score is of a development set, or of a variant of a task, such as shorter embeddings."""
    task = name.split("/")[0]
    return "-dev" in task or "@" in task


def values_of(arm: Arm, headline: Headline, score: str) -> np.ndarray:
    """(runs,) also of an average that is ours."""
    if arm.has(score):
        return arm.values(score)
    return np.mean([arm.values(task) for task in headline.tasks], axis=0)


def replicates_of(arm: Arm, headline: Headline, score: str) -> np.ndarray | None:
    """(R,) the mean over seeds; None where a run did not keep them."""
    if score == headline.name and len(headline.tasks) > 1:
        parts = [replicates_of(arm, headline, task) for task in headline.tasks]
        return None if any(part is None for part in parts) else np.mean(np.array(parts), axis=0)
    kept = [run.items.replicates.get(score) if run.items else None for run in arm.runs]
    return None if any(one is None for one in kept) else np.mean(np.array(kept, np.float64), axis=0)


def contrasts(arms: Sequence[Arm], headline: Headline) -> list[Contrast]:
    """Compare all pairs of arms by the headline, then by each task; Holm's correction is over each of the two."""
    pairs = list(combinations(range(len(arms)), 2))
    if not pairs:
        return []
    tests = {task: _swap_test(arms, pairs, task) or _sign_test(arms, pairs, task) for task in headline.tasks}
    families = [[headline.name], [task for task in headline.tasks if task != headline.name]]
    found = list[Contrast]()
    for family in families:
        family_found = [one for score in family for one in _of_score(arms, pairs, headline, score, tests)]
        with_p = [place for place, one in enumerate(family_found) if one.p is not None]
        corrected = holm([float(family_found[place].p or 0.0) for place in with_p])
        for place, p_holm in zip(with_p, corrected, strict=True):
            family_found[place] = family_found[place]._replace(p_holm=p_holm)
        found += family_found
    return found


def _of_score(
    arms: Sequence[Arm],
    pairs: Sequence[tuple[int, int]],
    headline: Headline,
    score: str,
    tests: dict[str, SwapTest | None],
) -> Iterator[Contrast]:
    whole = score == headline.name and len(headline.tasks) > 1
    parts = [tests[task] for task in headline.tasks] if whole else [tests[score]]
    known = [part for part in parts if part is not None]
    test = None
    if len(known) == len(parts):
        test = SwapTest(np.mean([one.observed for one in known], axis=0), np.mean([one.null for one in known], axis=0))
    judged = np.where(np.isnan(test.observed), np.nan, test.p_values()) if test else np.full(len(pairs), np.nan)
    for (a, b), p in zip(pairs, judged, strict=True):
        first, second = values_of(arms[a], headline, score), values_of(arms[b], headline, score)
        items = _paired(arms[a], arms[b], headline, score)
        by_task = [_paired(arms[a], arms[b], headline, task) for task in headline.tasks] if whole else [None]
        yield Contrast(
            a,
            b,
            score,
            float(first.mean() - second.mean()),
            None if items is None else interval(items),
            None if any(one is None for one in by_task) else over_tasks(np.array(by_task)),
            None if np.isnan(p) else float(p),
            None,
            seeds_test(first, second),
        )


def _paired(first: Arm, second: Arm, headline: Headline, score: str) -> np.ndarray | None:
    if not same_items([first, second], headline.tasks if score == headline.name else [score]):
        return None
    one, other = replicates_of(first, headline, score), replicates_of(second, headline, score)
    return None if one is None or other is None or one.shape != other.shape else one - other


def same_items(arms: Sequence[Arm], scores: Sequence[str]) -> bool:
    """Whether all runs were scored on the same test pairs, as far as their digests tell."""
    for task in {score.split("/")[0] for score in scores}:
        digests = {run.items.digests.get(task) for arm in arms for run in arm.runs if run.items} - {None}
        if len(digests) > 1:
            return False
    return True


def _swap_test(arms: Sequence[Arm], pairs: Sequence[tuple[int, int]], score: str) -> SwapTest | None:
    """NaN for a pair of which a run did not keep its cosines, or has other test pairs; None where all are so.

    Of arms with unequal numbers of seeds each seed stands as often as the others of its arm: 1 against 3 is three
    times the one, 2 against 3 each with each.
    """
    task, _, kind = score.partition("/")
    kept = [[run.items.cosines[task] for run in arm.runs if run.items and task in run.items.cosines] for arm in arms]
    whole = [len(one) == len(arm.runs) for one, arm in zip(kept, arms, strict=True)]
    tested = [
        place for place, (a, b) in enumerate(pairs) if whole[a] and whole[b] and same_items([arms[a], arms[b]], [score])
    ]
    if kind not in OF_PAIRS or not tested:
        return None
    first = arms[pairs[tested[0]][0]]
    gold = next(run.items.gold[task] for run in first.runs if run.items)
    tested = [place for place in tested if same_items([first, *(arms[arm] for arm in pairs[place])], [score])]
    ranks = {arm: centred_ranks(kept[arm]) for arm in {arm for place in tested for arm in pairs[place]}}
    sides = list[tuple[np.ndarray, np.ndarray]]()
    for a, b in (pairs[place] for place in tested):
        seeds = math.lcm(len(kept[a]), len(kept[b]))
        first_SN, second_SN = (np.tile(ranks[arm], (seeds // len(kept[arm]), 1)) for arm in (a, b))
        sides.append((first_SN, second_SN))
    found = swap_test(sides, gold, f"swaps of {task}")
    return _of_all(found, tested, len(pairs))


def _sign_test(arms: Sequence[Arm], pairs: Sequence[tuple[int, int]], score: str) -> SwapTest | None:
    """NaN for a pair of which a run did not keep its queries, or has others; None where all are so."""
    kept = [[run.items.values[score] for run in arm.runs if run.items and score in run.items.values] for arm in arms]
    sizes = {arm: {len(one) for one in held} for arm, held in enumerate(kept) if len(held) == len(arms[arm].runs)}
    tested = [
        place
        for place, (a, b) in enumerate(pairs)
        if a in sizes and b in sizes and len(sizes[a] | sizes[b]) == 1 and same_items([arms[a], arms[b]], [score])
    ]
    if not tested:
        return None
    [size] = sizes[pairs[tested[0]][0]]
    tested = [place for place in tested if sizes[pairs[place][0]] == {size}]
    means = {arm: np.mean(kept[arm], axis=0) for place in tested for arm in pairs[place]}
    found = sign_test(np.stack([means[a] - means[b] for a, b in (pairs[place] for place in tested)], 1), score)
    return _of_all(found, tested, len(pairs))


def _of_all(found: SwapTest, tested: Sequence[int], pairs: int) -> SwapTest:
    """The test of all pairs: NaN for those that were not tested."""
    observed, null = np.full(pairs, np.nan), np.full((len(found.null), pairs), np.nan)
    observed[tested], null[:, tested] = found.observed, found.null
    return SwapTest(observed, null)


def ranking(arms: Sequence[Arm], headline: Headline, found: Sequence[Contrast]) -> list[Standing]:
    """Rank the arms by the mean over seeds; arms that cannot be told apart share a range of ranks."""
    means = [spread(values_of(arm, headline, headline.name)).mean for arm in arms]
    better, worse = [0] * len(arms), [0] * len(arms)
    for one in found:
        if one.score == headline.name and one.distinguishable:
            winner, loser = (one.first, one.second) if one.difference > 0 else (one.second, one.first)
            better[loser] += 1
            worse[winner] += 1
    order = sorted(range(len(arms)), key=lambda arm: -means[arm])
    return [Standing(arm, better[arm] + 1, len(arms) - worse[arm]) for arm in order]
