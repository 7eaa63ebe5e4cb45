"""The paired comparison of a headline score before and after training.

The two are told apart where the 95 % interval of the change lies on one side of zero and, of retrieval, a paired
permutation test over queries agrees: a bootstrap of five queries alone is far too sure of itself. The interval is of
the bootstrap that every score has (``statistics.py``): a resample is the same items before and after, so that the
differences of the replicates are those of the paired bootstrap.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from contrastive_encoders.core import Corpus, ItemScores, Verdict

ALPHA = 0.05
SWAPS = 9999
BLOCK = 2**22  # signs drawn at a time
OF_QUERIES = ("/ndcg@10", "/mrr")  # the first of them that a task has
AVERAGES = ("sts-avg7/all/spearman", "sts-avg5/mean/spearman")
OF_PAIRS = ("/all/spearman", "/cosine/spearman")
PAIR_METRICS = ("spearman", "pearson", "ap", "f1")  # of pairs, without a metric of the user's own
OF_PREFIXES = re.compile(r"@\d+$")  # a task in another form has a word there
IN_WORDS = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "recall": "Recall", "spearman": "Spearman", "ap": "AP"}


class Headline(NamedTuple):
    """The scores whose mean is judged."""

    scores: list[str]
    less_is_better: bool = False

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(OF_PREFIXES.sub("", name.partition("/")[0]) for name in self.scores))

    def named(self, corpora: Sequence[Corpus]) -> str:
        """``nDCG@10 of faq``, ``nDCG@10 of held_out (titles)``, ``nDCG@10, the mean of 3 tasks,``."""
        metric, at, most = self.scores[0].rpartition("/")[2].partition("@")
        words = f"{IN_WORDS.get(metric, metric)}{at}{most}"
        if len(self.scores) > 1:
            return f"{words}, the mean of {len(self.scores)} tasks,"
        kind = corpora[0].get("query_kind") if corpora else None
        return f"{words} of {self.scores[0].partition('/')[0]}{f' ({kind})' if kind else ''}"

    def of(self, scores: Mapping[str, float]) -> float:
        return float(np.mean([scores[name] for name in self.scores]))


def choose_headline(
    before: Mapping[str, float],
    after: Mapping[str, float],
    averages: Collection[str] = (),
    monitor: str | None = None,
    monitor_is_less: bool = False,
) -> Headline | None:
    """Choose the monitored score; else nDCG@10 of the retrieval tasks, else a metric of the user's own, else Spearman's
    correlation, else any score.

    Of tasks for development, whose best step is the one that was kept, and of prefixes of vectors, only where there are
    no others. None: nothing was scored both before and after, or only measures that have no better or worse.
    """
    shared = [name for name in after if name in before and "/geometry/" not in name]
    if monitor in shared and (_is_plain(str(monitor)) or not any(map(_is_plain, shared))):
        return Headline([str(monitor)], monitor_is_less)
    names = [name for name in shared if _is_plain(name)] or shared
    single = [name for name in names if name not in averages]
    of_queries = dict[str, str]()
    for ending in OF_QUERIES:
        for name in (name for name in single if name.endswith(ending)):
            of_queries.setdefault(name.split("/")[0], name)
    for ending in OF_QUERIES:  # MRR and nDCG@10 have no mean
        if found := [name for name in of_queries.values() if name.endswith(ending)]:
            return Headline(found)
    if own := _own_metrics(single):
        return Headline([name for name in own if name.rpartition("/")[2] == own[0].rpartition("/")[2]])
    for name in AVERAGES:
        if name in names:
            return Headline([name])
    if found := [name for name in single if name.endswith(OF_PAIRS)]:
        return Headline(found)
    others = [name for name in names if name in averages] or names
    return Headline(others[:1]) if others else None


def _own_metrics(scores: Sequence[str]) -> list[str]:
    """Return the scores of pairs by functions of the user's own: ``TASK/cosine/FUNCTION`` beside Spearman's."""
    pairs = {name.removesuffix("/spearman") for name in scores if name.endswith("/cosine/spearman")}
    split = [(name, *name.rpartition("/")[::2]) for name in scores]
    return [name for name, begin, metric in split if begin in pairs and metric not in PAIR_METRICS]


def _is_plain(score: str) -> bool:
    """Whether a score is of a test set and of whole vectors."""
    task = score.split("/")[0]
    return "-dev" not in task and not OF_PREFIXES.search(task)


def with_before(items: ItemScores, before: ItemScores | None) -> ItemScores:
    """The items of the end with those of the start, of tasks that hold the same texts as they did then."""
    if before is None:
        return items

    def is_same(score: str) -> bool:
        task = score.split("/")[0]
        if task in items.digests:
            return items.digests[task] == before.digests.get(task)
        return items.digests == before.digests  # an average

    return items._replace(
        replicates_before={name: one for name, one in before.replicates.items() if is_same(name)},
        values_before={name: one for name, one in before.values.items() if is_same(name)},
    )


def judge(
    headline: Headline,
    before: Mapping[str, float],
    after: Mapping[str, float],
    items: ItemScores | None = None,
    baselines: Mapping[str, float] | None = None,
    best_of: int = 1,
    corpora: Mapping[str, Corpus] | None = None,
    at_start: Mapping[str, float] | None = None,
    changed: Sequence[str] = (),
) -> Verdict:
    """``items`` as of ``with_before``; without them nothing can be told apart. ``best_of``: scorings by this very
    headline that the weights were chosen from. ``corpora``: retrieval task -> what its queries are ranked among.
    ``at_start`` are the scores of the untrained encoder with the overrides ``changed``, which ``before`` is without.
    """
    searched = [corpora[task] for task in headline.tasks if task in corpora] if corpora else []
    first, last = headline.of(before), headline.of(after)
    interval = _interval(headline, items) if items else None
    p = _permuted(headline, items) if items else None
    outcome: Literal["better", "not told apart", "worse"] = "not told apart"
    if interval and (interval[0] > 0 or interval[1] < 0) and (p is None or p < ALPHA):
        outcome = "better" if (interval[0] > 0) != headline.less_is_better else "worse"
    words = [name.replace("/cosine/", "/tfidf/") for name in headline.scores]
    known = baselines and words != headline.scores and all(name in baselines for name in words)
    found = Verdict(
        headline=headline.named(searched).rstrip(","),
        scores=headline.scores,
        outcome=outcome,
        before=first,
        after=last,
        interval=interval,
        p=p,
        items=_count(headline, items)[0] if items else None,
        documents=sum(one["documents"] for one in searched) if len(searched) == len(headline.tasks) else None,
        tfidf=float(np.mean([baselines[name] for name in words])) if baselines and known else None,
        sentence="",
        to_try=[],
    )
    if at_start is not None:
        found["at_start"] = headline.of(at_start)
    what = _count(headline, items)[1] if items else ""
    found["sentence"] = _sentence(headline.named(searched), found, what, best_of, changed)
    return found


def _sentence(headline: str, found: Verdict, what: str, best_of: int, changed: Sequence[str]) -> str:
    begin = {"better": "Better", "not told apart": "Cannot be told apart", "worse": "Worse"}[found["outcome"]]
    interval, first, last = found["interval"], found["before"], found["after"]
    digits = 1 if interval is None or min(map(abs, interval)) >= 0.05 else 2
    facts = [f"{last - first:+z.{digits}f}"]
    if interval is None:
        facts.append("no test items to judge it by")
    else:
        low, high = interval
        facts.append(f"95 % interval {low:+z.{digits}f} to {high:+z.{digits}f}")
        p = found["p"]
        if p is not None and (low > 0 or high < 0) and p >= ALPHA:
            facts.append(f"p = {p:.2f} by a permutation test")
    if found["items"]:
        facts.append(f"{found['items']:,} {what}")
    if found["documents"]:
        facts.append(f"{found['documents']:,} documents")
    if best_of > 1:
        facts.append(f"the best of {best_of} scorings, so a little too good")
    said = f"{begin}: {headline} {first:.{digits}f} -> {last:.{digits}f} ({', '.join(facts)})."
    if found["outcome"] == "worse":
        said += " Keep what you had."
    if "at_start" in found:
        said += f" With {' '.join(changed)} it had {found['at_start']:.{digits}f} before training."
    if (tfidf := found["tfidf"]) is not None:
        said += f" TF-IDF: {tfidf:.1f}{', above both' if tfidf > max(first, last) else ''}."
    return said


def _interval(headline: Headline, items: ItemScores) -> list[float] | None:
    """[2.5 %, 97.5 %] of the change."""
    if not (sides := _paired(headline, items.replicates_before, items.replicates)):
        return None
    change_R = np.mean([after - before for before, after in sides], axis=0)
    return [float(bound) for bound in np.quantile(change_R, [0.025, 0.975])]


def _permuted(headline: Headline, items: ItemScores) -> float | None:
    """p, two-sided: without an effect a query's scores before and after are exchangeable, so its sign is chance."""
    if not (sides := _paired(headline, items.values_before, items.values)):
        return None
    # of the mean over tasks of the means over queries
    parts_N = np.concatenate([(after - before) / (len(sides) * len(after)) for before, after in sides])
    if not parts_N.any():
        return 1.0
    found = stats.permutation_test(
        (parts_N,),
        np.sum,
        permutation_type="samples",
        n_resamples=SWAPS,
        vectorized=True,
        batch=max(1, BLOCK // len(parts_N)),
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def _paired(
    headline: Headline, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both sides of each score, float64; none where one is missing, or of other items."""
    sides: Sequence[tuple[Any, Any]] = [(before.get(name), after.get(name)) for name in headline.scores]
    if any(one is None or other is None or one.shape != other.shape for one, other in sides):
        return []
    return [(np.asarray(one, np.float64), np.asarray(other, np.float64)) for one, other in sides]


def _count(headline: Headline, items: ItemScores) -> tuple[int | None, str]:
    """Return the number of queries, or of pairs of texts, behind the scores."""
    if all(name in items.values for name in headline.scores):
        return sum(len(items.values[name]) for name in headline.scores), "queries"
    tasks = [name.split("/")[0] for name in headline.scores]
    if all(task in items.gold for task in tasks):
        return sum(len(items.gold[task]) for task in tasks), "pairs"
    return None, ""
