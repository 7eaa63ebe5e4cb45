"""Documents with equal similarities: the metrics are the mean of trec_eval's over random orders of the ties."""

import numpy as np
import pytest
import torch

from contrastive_encoders.core import RetrievalData
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask

SHUFFLES = 10_000
METRICS = ("mrr", "mrr@3", "recall@1", "recall@3", "recall@5", "ndcg@1", "ndcg@4", "ndcg@10", "map@3", "map@20")

# One letter for each similarity, the highest first; the judged documents with their gains (-1: not in the corpus).
QUERIES = {
    "one relevant document among equals": ("aaaaaaaaaaaa", {4: 1}),
    "several relevant documents among equals": ("aaaaaaaaaaaa", {0: 1, 5: 3, 7: 2}),
    "a tie across the cutoffs": ("abcccccdefgh", {1: 1, 3: 2, 6: 1}),
    "two ties with relevant documents": ("abbbbcddddee", {2: 1, 3: 3, 6: 2, 9: 1}),
    "all of a tie are relevant": ("abbbcdefghij", {1: 2, 2: 1, 3: 3}),
    "a tie and a single document": ("abccccccccdd", {1: 1, 4: 2}),
    "a relevant document is not in the corpus": ("aabbbbbbbccc", {0: 1, 3: 1, 12: 2}),
    "no relevant document is tied": ("abcddddddddd", {0: 1, 2: 2}),
}


def by_trec_eval(qrels, run, metric):
    """Return the mean of each metric over the queries; map@k is divided by at most k."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    kind, _, cutoff = metric.partition("@")
    name = {"mrr": "recip_rank", "ndcg": f"ndcg_cut_{cutoff}", "map": f"map_cut_{cutoff}", "recall": f"recall_{cutoff}"}
    found = pytrec_eval.RelevanceEvaluator(qrels, {name[kind]}).evaluate(run)
    values = np.array([found[query][name[kind]] for query in run])
    if kind == "mrr" and cutoff:
        return values * (values >= 1 / int(cutoff))
    if kind == "map":
        return values * [len(qrels[query]) / min(len(qrels[query]), int(cutoff)) for query in run]
    return values


def own_metrics(similarity_QN, relevant, metrics=METRICS):
    queries, documents = similarity_QN.shape
    task = RetrievalData("ties", ["q"] * queries, ["d"] * documents, relevant)
    scores = RetrievalTask(task, metrics).scores("cosine", lambda start, stop: similarity_QN[start:stop])
    return {name.removeprefix("ties/cosine/"): estimate.values_N / 100 for name, estimate in scores.items()}


@pytest.mark.rotates
@pytest.mark.parametrize("case", QUERIES)
def test_ties_are_the_mean_over_random_orders(case):
    letters, gains = QUERIES[case]
    similarities = torch.tensor([[-float(ord(letter)) for letter in letters]], dtype=torch.float64)
    inside = {document if document < len(letters) else -1: float(gain) for document, gain in gains.items()}
    found = own_metrics(similarities, [inside])

    rng = np.random.default_rng(7)
    qrels, run = {}, {}
    for i in range(SHUFFLES):
        order = np.lexsort((rng.random(len(letters)), list(letters)))
        run[str(i)] = {str(document): float(-rank) for rank, document in enumerate(order)}
        qrels[str(i)] = {str(document): gain for document, gain in gains.items()}
    for metric in METRICS:
        values = by_trec_eval(qrels, run, metric)
        error = values.std() / np.sqrt(SHUFFLES)
        assert abs(float(found[metric]) - values.mean()) <= 4 * error + 1e-9, metric


def test_metrics_without_ties_are_trec_evals():
    rng = np.random.default_rng(11)
    similarities = torch.from_numpy(rng.permuted(np.tile(np.arange(40.0), (30, 1)), axis=1))
    relevant = [
        {int(document): float(rng.integers(1, 4)) for document in rng.choice(40, rng.integers(1, 8), replace=False)}
        for _ in range(30)
    ]
    found = own_metrics(similarities, relevant)
    qrels = {str(i): {str(document): int(gain) for document, gain in one.items()} for i, one in enumerate(relevant)}
    run = {str(i): {str(j): float(value) for j, value in enumerate(row)} for i, row in enumerate(similarities)}
    for metric in METRICS:
        assert found[metric].numpy() == pytest.approx(by_trec_eval(qrels, run, metric), abs=1e-6), metric


def test_a_collapsed_encoder_scores_as_a_random_order(bag_of_words, monkeypatch):
    """All embeddings are equal: the mean of 1/1 ... 1/40, and 10 of 40 within the first ten."""
    texts = [f"text {i}" for i in range(40)]
    monkeypatch.setattr(type(bag_of_words), "embed", lambda self, texts: torch.ones(len(texts), 3))
    values, *_ = Suite([RetrievalData("ties", texts, texts)]).run(bag_of_words, intervals=False)
    harmonic = sum(1 / rank for rank in range(1, 41)) / 40
    assert values["ties/cosine/mrr"] == pytest.approx(100 * harmonic)
    assert values["ties/cosine/recall@10"] == pytest.approx(25.0)


def test_mrr_of_one_relevant_document_in_a_large_tie():
    """The tie has 20,000 documents, one or two of them relevant."""
    documents = 20_000
    found = own_metrics(torch.zeros(2, documents, dtype=torch.float64), [{5: 1.0}, {5: 1.0, 9: 1.0}], ("mrr",))["mrr"]
    one = np.mean(1 / np.arange(1, documents + 1))
    # of two: the first is at rank r if the second is at one of the documents - r ranks below
    ranks = np.arange(1, documents)
    two = np.sum(2 * (documents - ranks) / (documents * (documents - 1)) / ranks)
    assert found.tolist() == pytest.approx([one, two], rel=1e-9)
