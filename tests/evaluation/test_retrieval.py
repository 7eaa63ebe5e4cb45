import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, top_k_accuracy_score

from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.download.registry import listing
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks import retrieval

RNG = np.random.default_rng(3)
WORDS = np.array([f"w{i}" for i in range(60)])
DOCUMENTS = [" ".join(RNG.choice(WORDS, size=12)) for _ in range(50)]
QUERIES = [" ".join(RNG.choice(text.split(), size=2)) + " " + RNG.choice(WORDS) for text in DOCUMENTS[:35]]
TASK = RetrievalData("pydocs", QUERIES, DOCUMENTS)


def oracle(similarity):
    """Return scikit-learn's average precision, which is the reciprocal rank for one relevant document per query."""
    right = np.eye(len(QUERIES), len(DOCUMENTS), dtype=int)
    return (
        100 * label_ranking_average_precision_score(right, similarity),
        100 * top_k_accuracy_score(np.arange(len(QUERIES)), similarity, k=10, labels=np.arange(len(DOCUMENTS))),
        100 * ndcg_score(right, similarity, k=10, ignore_ties=True),
    )


@pytest.mark.parametrize("block", [1024, 8])
def test_mrr_and_recall_are_sklearns(bag_of_words, monkeypatch, block):
    monkeypatch.setattr(retrieval, "BLOCK", block)
    values, intervals, *_ = Suite([TASK]).run(bag_of_words, intervals=True)
    queries, documents = bag_of_words.embed(QUERIES).double(), bag_of_words.embed(DOCUMENTS).double()
    similarity = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=-1).numpy()
    assert list(values) == ["pydocs/cosine/mrr", "pydocs/cosine/recall@10", "pydocs/cosine/ndcg@10"]
    assert tuple(values.values()) == pytest.approx(oracle(similarity), abs=1e-6)
    assert all(0 <= low <= values[name] <= high <= 100 for name, (low, high) in intervals.items())


def test_tfidf_ranks_as_a_dense_tfidf_does():
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True).fit(DOCUMENTS)
    similarity = vectorizer.transform(QUERIES).toarray() @ vectorizer.transform(DOCUMENTS).toarray().T
    baselines = Suite([TASK]).baselines()
    assert list(baselines) == ["pydocs/tfidf/mrr", "pydocs/tfidf/recall@10", "pydocs/tfidf/ndcg@10"]
    assert tuple(baselines.values()) == pytest.approx(oracle(similarity), abs=0.5)  # ties take their last place there


def test_what_training_has_changed_adds_up_and_its_examples_are_true():
    """Before training, even queries are correct; after it, all except every third are correct."""
    places = range(len(QUERIES))
    before = [place if place % 2 == 0 else 40 for place in places]
    after = [41 if place % 3 == 0 else place for place in places]
    found = Suite([TASK]).changes({"pydocs": before}, {"pydocs": after})["pydocs"]
    gained = {QUERIES[place] for place in places if place % 2 and place % 3}
    lost = {QUERIES[place] for place in places if place % 6 == 0}
    assert (found["correct_before"], found["gained"], found["lost"]) == (18, len(gained), len(lost))
    assert len(found["examples"]) == 3
    for one in found["examples"]:
        assert one["query"] in (gained if one["right"] == "after" else lost)
        assert DOCUMENTS[QUERIES.index(one["query"])] == one[one["right"]]
        assert (one["before"], one["after"])[one["right"] == "before"] == DOCUMENTS[40 + (one["right"] == "before")]
    assert Suite([TASK]).changes({}, {"pydocs": after}) == {}


def test_any_relevant_document_that_is_found_first_is_right():
    relevant = [{place: 1.0, 40: 2.0, 41: 0.0, -1: 1.0} for place in range(len(QUERIES))]
    before = [40] * 5 + [41] * 5 + [49] * (len(QUERIES) - 10)
    after = [41] * 5 + [40] * 4 + list(range(9, len(QUERIES)))
    found = Suite([TASK._replace(relevant=relevant)]).changes({"pydocs": before}, {"pydocs": after})["pydocs"]
    assert (found["correct_before"], found["gained"], found["lost"]) == (5, len(QUERIES) - 5, 5)


def test_what_is_found_first_is_most_similar(bag_of_words, monkeypatch):
    monkeypatch.setattr(retrieval, "CELLS", 8 * len(DOCUMENTS))
    queries, documents = bag_of_words.embed(QUERIES), bag_of_words.embed(DOCUMENTS)
    similarity = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=-1)
    (found,) = Suite([TASK]).run(bag_of_words, intervals=False).first_documents.values()
    assert [float(row[place]) for row, place in zip(similarity, found, strict=True)] == pytest.approx(
        similarity.max(-1).values.tolist(), abs=1e-6
    )


def test_a_table_is_the_same_task(bag_of_words, tmp_path):
    (tmp_path / "pydocs").mkdir()
    rows = ["query\tdocument", *map("\t".join, zip(QUERIES, DOCUMENTS[:35], strict=True))]
    (tmp_path / "pydocs" / "test.tsv").write_text("\n".join(rows) + "\n")
    (task,) = load_tasks(tmp_path, "pydocs", EvaluateConfig()).tasks
    direct = RetrievalData("pydocs", QUERIES, DOCUMENTS[:35])
    assert Suite([task]).run(bag_of_words, intervals=True)[:2] == Suite([direct]).run(bag_of_words, intervals=True)[:2]
    with pytest.raises(InputError) as refused:
        listing(tmp_path, ["pydocs"])
    assert "contrastive-encoders download-data pydocs output=DATA_ROOT" in refused.value.hint
