"""Significance of a change, as SciPy's paired bootstrap and an enumeration give it, and its sentences."""

import itertools
import re

import numpy as np
import pytest
import torch
from scipy import stats

from contrastive_encoders.core import ItemScores
from contrastive_encoders.statistics.bootstrap import Estimate, mean, spearman
from contrastive_encoders.statistics.headline import RankingMetric, choose_verdict_metric
from contrastive_encoders.statistics.verdict import add_items_before, compute_verdict

NDCG, OTHER = "faq/cosine/ndcg@10", "forum/cosine/ndcg@10"


def queries(number: int, gain: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each query before and after, in 0..1."""
    rng = np.random.default_rng(seed)
    before = rng.beta(0.7, 0.9, number)
    return before, np.clip(before + rng.normal(gain, 0.15, number), 0, 1)


def of_estimates(estimates: dict[str, Estimate], digests: dict[str, str], **more) -> ItemScores:
    return ItemScores(
        cosines={},
        gold=more.get("gold", {}),
        subsets={},
        digests=digests,
        replicates={name: one.replicates_R.float().numpy() for name, one in estimates.items()},
        values={name: one.values_N.numpy() for name, one in estimates.items() if one.values_N is not None},
    )


def retrieval(sides: dict[str, tuple[np.ndarray, np.ndarray]]):
    """Return the headline of some tasks, and their scores and items as a suite has them."""
    both = list[dict[str, Estimate]]()
    for place in range(2):
        found = {}
        for name, side in sides.items():
            values_N = torch.from_numpy(side[place])
            found[name] = mean(values_N, name.split("/")[0])._replace(values_N=100 * values_N)
        both.append(found)
    digests = {name.split("/")[0]: "0" for name in sides}
    items = add_items_before(of_estimates(both[1], digests), of_estimates(both[0], digests))
    before, after = ({name: one.value for name, one in found.items()} for found in both)
    return RankingMetric.mean_of(list(sides)), before, after, items


@pytest.mark.parametrize("gain", [0.04, 0.0, -0.05])
def test_the_interval_over_queries_is_that_of_a_paired_bootstrap(gain):
    sides = queries(112, gain)
    found = compute_verdict(*retrieval({NDCG: sides}))
    oracle = stats.bootstrap(
        sides[::-1],
        lambda after, before, axis: 100 * (after - before).mean(axis),
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    assert found["interval"] == pytest.approx(list(oracle.confidence_interval), abs=6 * oracle.standard_error / 30)
    unpaired = 100 * np.sqrt(sum(side.var() / len(side) for side in sides))
    assert found["interval"][1] - found["interval"][0] < 2 * unpaired, "far narrower than of two groups of queries"


@pytest.mark.parametrize(
    ("scores", "corpora", "documents", "shown"),
    [
        ([NDCG], {"faq": {"documents": 4120}}, 4120, r"nDCG@10 of faq \d.*112 queries, 4,120 documents"),
        (
            [NDCG],
            {"faq": {"documents": 41, "query_kind": "titles"}},
            41,
            r"nDCG@10 of faq \(titles\) \d.*112 queries, 41 documents",
        ),
        ([NDCG, OTHER], {"faq": {"documents": 41}, "forum": {"documents": 9}}, 50, "224 queries, 50 documents"),
        ([NDCG, OTHER], {"faq": {"documents": 41}}, None, r"224 queries\)"),
    ],
)
def test_the_sentence_says_among_how_many_documents_which_queries_were_ranked(scores, corpora, documents, shown):
    found = compute_verdict(*retrieval({name: queries(112, 0.1) for name in scores}), corpora=corpora)
    assert found["documents"] == documents
    assert re.search(shown, found["sentence"]), found["sentence"]


def test_tasks_of_different_sizes_weigh_alike():
    few, many = queries(20, 0.1, 1), queries(300, -0.01, 2)
    found = compute_verdict(*retrieval({NDCG: few, OTHER: many}))
    gains = [100 * (after - before) for before, after in (few, many)]
    assert found["after"] - found["before"] == pytest.approx(np.mean([gain.mean() for gain in gains]))
    rng = np.random.default_rng(0)
    drawn = [rng.choice(gain, (20_000, len(gain))).mean(1) for gain in gains]
    assert found["interval"] == pytest.approx(list(np.quantile(np.mean(drawn, 0), [0.025, 0.975])), abs=0.25)
    assert (len(found["scores"]), found["items"]) == (2, 320)


def test_p_is_the_share_of_all_signs_that_change_as_much():
    before, after = queries(9, 0.08, 5)
    gains = after - before
    every = np.array(list(itertools.product((1, -1), repeat=9))) @ gains / 9
    found = compute_verdict(*retrieval({NDCG: (before, after)}))
    assert found["p"] == pytest.approx((np.abs(every) >= abs(gains.mean()) - 1e-12).mean())


def test_a_handful_of_queries_is_never_told_apart():
    before = np.array([0.1, 0.3, 0.0, 0.5, 0.4])
    found = compute_verdict(*retrieval({NDCG: (before, before + np.array([0.2, 0.3, 0.25, 0.2, 0.3]))}))
    assert found["interval"][0] > 0
    assert (found["outcome"], found["p"]) == ("inconclusive", 2 / 2**5)
    assert re.search(r"26\.0 -> 51\.0 \(\+25\.0, .*p = 0\.06 .*5 queries", found["sentence"])


def test_correlations_are_of_the_same_pairs_before_and_after():
    rng = np.random.default_rng(3)
    gold = rng.uniform(0, 5, 200)
    cosines = [gold + rng.normal(0, 4, 200), gold + rng.normal(0, 2, 200)]
    name, digests = "stsb/cosine/spearman", {"stsb": "0"}
    sides = [{name: spearman(torch.from_numpy(one), torch.from_numpy(gold), "stsb")} for one in cosines]
    items = [of_estimates(one, digests, gold={"stsb": gold}) for one in sides]
    scores = [{name: one[name].value} for one in sides]
    found = compute_verdict(RankingMetric.mean_of([name]), *scores, add_items_before(items[1], items[0]))

    def change(rated, before, after):
        return 100 * (stats.spearmanr(after, rated).statistic - stats.spearmanr(before, rated).statistic)

    oracle = stats.bootstrap(
        (gold, *cosines),
        change,
        paired=True,
        vectorized=False,
        n_resamples=3000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    assert found["interval"] == pytest.approx(list(oracle.confidence_interval), abs=0.3 * oracle.standard_error)
    assert (found["p"], found["items"], found["outcome"]) == (None, 200, "better")


def test_less_perplexity_is_better():
    name, rng = "generator-dev/perplexity", np.random.default_rng(0)
    items = ItemScores({}, {}, {}, {}, {name: rng.normal(30, 1, 1000)}, {}, {name: rng.normal(90, 1, 1000)}, {})
    found = compute_verdict(RankingMetric.mean_of([name], less_is_better=True), {name: 90.0}, {name: 30.0}, items)
    assert (found["outcome"], found["before"], found["after"]) == ("better", 90.0, 30.0)


def test_other_test_items_than_before_judge_nothing():
    headline, before, after, items = retrieval({NDCG: queries(400, 0.2)})
    begun = items._replace(values=items.values_before, replicates=items.replicates_before, digests={"faq": "other"})
    found = compute_verdict(headline, before, after, add_items_before(items, begun))
    assert (found["outcome"], found["interval"], found["p"]) == ("inconclusive", None, None)
    assert compute_verdict(headline, before, after)["outcome"] == "inconclusive"


RETRIEVAL = ["faq/cosine/mrr", NDCG, OTHER, "faq-dev/cosine/ndcg@10", "faq@64/cosine/ndcg@10"]
STS = ["sts12/all/spearman", "stsb/cosine/pearson", "stsb/cosine/spearman", "stsb-dev/cosine/spearman"]


@pytest.mark.parametrize(
    ("names", "monitor", "chosen"),
    [
        (RETRIEVAL, None, [NDCG, OTHER]),
        (RETRIEVAL, "faq/cosine/mrr", ["faq/cosine/mrr"]),
        ([*STS, NDCG], None, [NDCG]),
        (STS, None, ["sts12/all/spearman", "stsb/cosine/spearman"]),
        (["sts-avg7/all/spearman", *STS], None, ["sts-avg7/all/spearman"]),
        (STS, STS[3], ["sts12/all/spearman", "stsb/cosine/spearman"]),  # the score by which the weights were chosen
        (["stsb/geometry/alignment", "stsb/geometry/uniformity"], None, None),  # lower is better
        (["pydocs/cosine/mrr", NDCG], None, [NDCG]),
        (["rated/cosine/kendall", "rated/cosine/pearson", "rated/cosine/spearman"], None, ["rated/cosine/kendall"]),
        (["rated/cosine/kendall", "rated/cosine/spearman", NDCG], None, [NDCG]),
        (["same/cosine/ap", "same/cosine/f1", "same/cosine/spearman"], None, ["same/cosine/spearman"]),
        (["mr/default/accuracy", "transfer-avg7/default/accuracy"], None, ["transfer-avg7/default/accuracy"]),
    ],
)
def test_the_headline_is_what_is_monitored_else_retrieval_else_sts(names, monitor, chosen):
    scores = dict.fromkeys(names, 1.0)
    averages = [name for name in names if "-avg" in name]
    found = choose_verdict_metric(scores, scores, averages, monitor)
    assert (found and found.scores) == chosen
    assert choose_verdict_metric({}, scores, averages, monitor) is None
