"""Scores of a reranker: against trec_eval on the library's scores, by the command line, and inputs without a score."""

import json
import math

import numpy as np
import pytest
import torch

from contrastive_encoders.cli import evaluate as command
from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.embedding_pool import EmbeddingCache
from contrastive_encoders.evaluation.reranking import RerankingScorer
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from tests.conftest import SENTENCES
from tests.data import write_rows
from tests.in_process import run_here

QUERIES = [f"{SENTENCES[n]} {SENTENCES[(n + 5) % 12]}" for n in range(8)]
DOCUMENTS = [f"{SENTENCES[n % 12]} {SENTENCES[(n + 1 + n // 12) % 12]}" for n in range(30)]
GAINS = [{(3 * n) % 30: 1.0, (7 * n + 1) % 30: 2.0} for n in range(8)]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task") / "mine"
    write_rows(folder / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(QUERIES)])
    write_rows(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(DOCUMENTS)])
    rows = [f"q{n}\td{place}\t{gain:g}\n" for n, one in enumerate(GAINS) for place, gain in one.items()]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def evaluate(*overrides):
    return run_here("evaluate", command.run, ("device=cpu", *overrides))


def orders(encoder, reranker, top):
    """Yield for each query the documents in the encoder's order, and with the first ones reranked by the library."""
    from sentence_transformers import CrossEncoder

    vectors = [load_encoder(encoder, device="cpu").embed(texts).double().numpy() for texts in (QUERIES, DOCUMENTS)]
    left, right = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in vectors)
    library = CrossEncoder(str(reranker), device="cpu")
    for query, cosines in zip(QUERIES, left @ right.T, strict=True):
        found = np.argsort(-cosines, kind="stable").tolist()
        scores = library.predict([(query, DOCUMENTS[place]) for place in found[:top]])
        yield found, [found[n] for n in np.argsort(-scores, kind="stable")] + found[top:]


def ndcg(order, gains, most=10):
    dcg = sum(gains.get(place, 0.0) / math.log2(rank + 2) for rank, place in enumerate(order[:most]))
    return dcg / sum(gain / math.log2(rank + 2) for rank, gain in enumerate(sorted(gains.values(), reverse=True)))


@pytest.mark.parametrize("top", [4, 12, 100])
def test_ndcg_before_and_after_is_that_of_the_librarys_order(top, tiny_bert, small_reranker, task, tmp_path):
    output = tmp_path / "scores.json"
    overrides = [
        f"encoder={tiny_bert}",
        f"reranker={small_reranker}",
        f"custom_tasks={task}",
        f"output={output}",
        "quiet=true",
    ]
    assert evaluate(*overrides, f"rerank_top={top}") == 0
    results, found = json.loads(output.read_text()), list(orders(tiny_bert, small_reranker, top))
    for place, protocol in enumerate(("cosine", "reranked")):
        wanted = 100 * np.mean([ndcg(one[place], gains) for one, gains in zip(found, GAINS, strict=True)])
        name = f"mine/{protocol}/ndcg@10"
        assert results["scores"][name] == pytest.approx(wanted, abs=1e-6)
        low, high = results["intervals"][name]
        assert low <= wanted <= high


def test_it_is_trec_evals_too(tiny_bert, small_reranker):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    gains = {f"q{n}": {f"d{place}": int(gain) for place, gain in one.items()} for n, one in enumerate(GAINS)}
    run = {
        f"q{n}": {f"d{place}": float(-rank) for rank, place in enumerate(order)}
        for n, (_, order) in enumerate(orders(tiny_bert, small_reranker, 12))
    }
    wanted = pytrec_eval.RelevanceEvaluator(gains, {"ndcg_cut_10"}).evaluate(run)
    from contrastive_encoders.encoders.cross_encoder import load_reranker

    suite = RerankingScorer(
        [RetrievalTask(RetrievalData("mine", QUERIES, DOCUMENTS, GAINS))],
        lambda: load_encoder(tiny_bert, device="cpu"),
        12,
    )
    found = suite.score(load_reranker(small_reranker, device="cpu"), intervals=True)
    values = [100 * one["ndcg_cut_10"] for one in wanted.values()]
    assert found.values["mine/reranked/ndcg@10"] == pytest.approx(np.mean(values), abs=1e-6)
    assert found.items is not None
    np.testing.assert_allclose(found.items.values["mine/reranked/ndcg@10"], values, atol=1e-6)


class Constant:
    def score_pairs(self, queries, documents, **_):
        return torch.zeros(len(queries))


def test_a_reranker_that_tells_nothing_apart_scores_the_mean_over_all_orders(bag_of_words):
    documents = ["one fish", "two fish", "red fish", "blue whale"]
    task = RetrievalTask(RetrievalData("mine", ["one fish"], documents, [{0: 1.0}]))
    reranking = RerankingScorer([task], lambda: bag_of_words, 3)
    found = reranking.score(Constant(), intervals=False).values["mine/reranked/ndcg@10"]
    alone = reranking.before(Constant(), intervals=False).values["mine/reranked/ndcg@10"]
    assert alone == pytest.approx(100)
    assert found == pytest.approx(100 * sum(1 / math.log2(1 + rank) for rank in (1, 2, 3)) / 3)


def test_a_score_that_is_nan_puts_its_document_behind_the_others_and_is_told(bag_of_words, caplog):
    class Broken:
        def score_pairs(self, queries, documents, **_):
            return torch.tensor([math.nan if text == "two fish" else -1.0 * len(text) for text in documents])

    documents = ["one fish", "two fish", "red fish", "blue whale"]
    task = RetrievalTask(RetrievalData("mine", ["one fish"], documents, [{1: 1.0}]))
    reranking = RerankingScorer([task], lambda: bag_of_words, 4)
    found = reranking.score(Broken(), intervals=False).values["mine/reranked/ndcg@10"]
    assert found == pytest.approx(100 / math.log2(1 + 4))
    assert [record.args[:3] for record in caplog.records] == [("mine", 1, 4)]


def test_no_text_is_embedded_twice(bag_of_words):
    tasks = [RetrievalTask(RetrievalData(name, QUERIES, DOCUMENTS, GAINS)) for name in ("mine", "again")]
    store, bag_of_words.calls = EmbeddingCache(None, ""), []
    alone = Suite(tasks).run(bag_of_words, intervals=False, store=store).values
    reranking = RerankingScorer(tasks, lambda: bag_of_words, 5, store)
    again = reranking.before(Constant(), intervals=False).values
    assert again == {name.replace("cosine", "reranked"): value for name, value in alone.items()}
    texts = [text for call in bag_of_words.calls for text in call]
    assert sorted(texts) == sorted({*QUERIES, *DOCUMENTS})


def test_invalid_rerankers_are_refused(tiny_bert, small_reranker, small_tables, task, tmp_path):
    words = {
        "a reranker instead of an encoder": ([f"reranker={small_reranker}", f"custom_tasks={task}"], "^encoder"),
        "sts alone": (
            [f"encoder={tiny_bert}", f"reranker={small_reranker}", f"data_root={small_tables}", "suite=[stsb,sts12]"],
            "retrieval",
        ),
        "no cross-encoder": (
            [f"encoder={tiny_bert}", f"reranker={tiny_bert}", f"custom_tasks={task}"],
            "BertForMaskedLM",
        ),
        "nothing there": (
            [f"encoder={tiny_bert}", f"reranker={tmp_path / 'no'}", f"custom_tasks={task}"],
            "^reranker=.*/no: ",
        ),
        "no document": (
            [f"encoder={tiny_bert}", f"reranker={small_reranker}", f"custom_tasks={task}", "rerank_top=0"],
            "^rerank_top=0: ",
        ),
    }
    for given, message in words.values():
        with pytest.raises(InputError, match=message):
            evaluate(*given, f"output={tmp_path / 'x.json'}")
    assert not list(tmp_path.iterdir())
