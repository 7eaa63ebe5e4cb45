"""The domain tasks against slow loops from useb's description, scikit-learn, SciPy and torchmetrics."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks import cqadupstack
from contrastive_encoders.evaluation.tasks.askubuntu import AskUbuntuTask, CandidateList
from contrastive_encoders.evaluation.tasks.cqadupstack import Forum, ForumRetrieval, average_precisions
from contrastive_encoders.evaluation.tasks.paraphrase import Paraphrases

NO_INTERVALS = ScoringOptions(intervals=False)


def pool_of(vectors: dict[str, list[float]]) -> EmbeddingPool:
    return EmbeddingPool({text: row for row, text in enumerate(vectors)}, torch.tensor(list(vectors.values())).float())


def random_pool(texts, seed, width=8) -> EmbeddingPool:
    rng = np.random.default_rng(seed)
    return pool_of({text: rng.standard_normal(width).tolist() for text in texts})


def cosine(pool: EmbeddingPool, a: str, b: str) -> float:
    x, y = (pool.lookup([text])[0].double().numpy() for text in (a, b))
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


# ------------------------------------------------------------------------------------- reranking


def slow_reranking(queries, pool):
    """Score with lists and a stable sort, query by query."""
    rows = []
    for one in queries:
        ranked = sorted(
            zip(one.texts, one.relevant, strict=True), key=lambda pair: cosine(pool, one.query, pair[0]), reverse=True
        )
        hits = [relevant for _, relevant in ranked]
        precisions = [sum(hits[:k]) / k for k in range(1, len(hits) + 1)]
        ap = np.mean([p for p, hit in zip(precisions, hits, strict=True) if hit])
        rows.append([ap, precisions[0], precisions[4], 1 / (hits.index(True) + 1)])
    return 100 * np.mean(rows, axis=0)


def test_reranking_is_that_of_a_slow_loop():
    rng = np.random.default_rng(1)
    queries = []
    for number in range(15):
        relevant = (rng.random(20) < 0.2).tolist()
        relevant[int(rng.integers(20))] = True
        queries.append(CandidateList(f"q{number}", [f"c{int(i)}" for i in rng.choice(60, 20, replace=False)], relevant))
    task = AskUbuntuTask("askubuntu", queries)
    pool = random_pool(sorted({text for texts in task.texts() for text in texts}), seed=2)
    found = task.score(pool, NO_INTERVALS)
    assert list(found) == task.score_names() == [f"askubuntu/cosine/{m}" for m in ("map", "p@1", "p@5", "mrr")]
    np.testing.assert_allclose([one.value for one in found.values()], slow_reranking(queries, pool), rtol=1e-9)


def test_ties_keep_the_order_of_the_file():
    """The embedding is scaled to other norms, for which float32 cosines differ in the last digit."""
    vectors = {"q": [0.1, 0.7, 0.3], **{f"c{i}": [0.1 * i, 0.7 * i, 0.3 * i] for i in range(1, 8)}}
    relevant = [False, False, True, False, False, False, True]
    task = AskUbuntuTask("askubuntu", [CandidateList("q", [f"c{i}" for i in range(1, 8)], relevant)])
    found = task.score(pool_of(vectors), NO_INTERVALS)
    assert found["askubuntu/cosine/mrr"].value == pytest.approx(100 / 3)
    assert found["askubuntu/cosine/map"].value == pytest.approx(100 * (1 / 3 + 2 / 7) / 2)


# ------------------------------------------------------------------------------- forum retrieval


@given(st.data())
def test_average_precisions_are_those_of_scikit_learn_ties_included(data):
    size = data.draw(st.integers(1, 30))
    cosines = sorted(data.draw(st.lists(st.integers(0, 8), min_size=size, max_size=size)), reverse=True)
    hits = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    found = average_precisions(torch.tensor([cosines]).double(), torch.tensor([hits]))
    wanted = average_precision_score(hits, cosines) if any(hits) else 0.0
    assert found.item() == pytest.approx(wanted, abs=1e-12)


def slow_forum(forum: Forum, pool: EmbeddingPool) -> tuple[float, float]:
    """Score query by query over the entire forum, as useb describes it."""
    aps, ndcgs = [], []
    for query, relevant, duplicates in zip(forum.queries, forum.relevant, forum.duplicates, strict=True):
        similar = [cosine(pool, query, document) for document in forum.documents]
        top = sorted(range(len(similar)), key=lambda row: -similar[row])[:100]
        hits = [row in relevant for row in top]
        aps.append(average_precision_score(hits, [similar[row] for row in top]) if any(hits) else 0.0)
        if duplicates:
            gained = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits[:10]))
            ndcgs.append(gained / sum(1 / math.log2(place + 2) for place in range(min(10, duplicates))))
    return 100 * np.mean(aps), 100 * np.mean(ndcgs)


def make_forum(name: str, seed: int, queries: int = 23, documents: int = 240) -> Forum:
    rng = np.random.default_rng(seed)
    relevant = [sorted(rng.choice(documents, int(rng.integers(0, 14)), replace=False).tolist()) for _ in range(queries)]
    # one duplicate of every third query is a query itself, and not among the documents
    duplicates = [len(rows) + (number % 3 == 1) for number, rows in enumerate(relevant)]
    return Forum(
        name,
        [f"{name} query {i}" for i in range(queries)],
        [f"{name} document {i}" for i in range(documents)],
        relevant,
        duplicates,
    )


@pytest.fixture
def forums() -> ForumRetrieval:
    return ForumRetrieval("cqadupstack", [make_forum("android", 1), make_forum("tex", 2, queries=7, documents=60)])


def forum_pool(task: ForumRetrieval) -> EmbeddingPool:
    return random_pool([text for texts in task.texts() for text in texts], seed=4, width=5)


def test_forums_are_scored_as_by_a_slow_loop_and_averaged_plainly(forums):
    pool = forum_pool(forums)
    found = {name: one.value for name, one in forums.score(pool, NO_INTERVALS).items()}
    assert list(found) == forums.score_names()
    slow = {forum.name: slow_forum(forum, pool) for forum in forums.forums}
    for name, (ap, ndcg) in slow.items():
        assert found[f"cqadupstack-{name}/cosine/map@100"] == pytest.approx(ap, rel=1e-9)
        assert found[f"cqadupstack-{name}/cosine/ndcg@10"] == pytest.approx(ndcg, rel=1e-9)
    means = np.mean(list(slow.values()), axis=0)
    assert found["cqadupstack/cosine/map@100"] == pytest.approx(means[0], rel=1e-9)
    assert found["cqadupstack/cosine/ndcg@10"] == pytest.approx(means[1], rel=1e-9)


def test_average_precision_is_normalized_by_what_the_100_nearest_hold():
    """There are two duplicates: one is the nearest document, the other comes after 150 documents."""
    angles = {"q": 0.0, **{f"d{i}": 0.001 * (i + 1) for i in range(152)}}
    vectors = {text: [math.cos(angle), math.sin(angle)] for text, angle in angles.items()}
    task = ForumRetrieval("cqadupstack", [Forum("gis", ["q"], [f"d{i}" for i in range(152)], [[0, 151]], [2])])
    found = task.score(pool_of(vectors), NO_INTERVALS)
    assert found["cqadupstack-gis/cosine/map@100"].value == pytest.approx(100)
    assert found["cqadupstack-gis/cosine/ndcg@10"].value == pytest.approx(100 / (1 + 1 / math.log2(3)))


def test_blocks_do_not_change_the_scores(forums, monkeypatch):
    pool = forum_pool(forums)
    whole = forums.score(pool, NO_INTERVALS)
    monkeypatch.setattr(cqadupstack, "CELLS", 700)  # two queries at a time
    assert forums.score(pool, NO_INTERVALS) == whole


# ----------------------------------------------------------------------------------- paraphrases


def test_average_precision_leaves_the_debatable_out_and_spearman_keeps_them():
    rng = np.random.default_rng(5)
    votes = rng.integers(0, 7, size=80).astype(float)
    pairs = RatedPairs("twitterurl", [f"a{i}" for i in range(80)], [f"b{i % 50}" for i in range(80)], votes, ["x"] * 80)
    task = Paraphrases(pairs)
    pool = random_pool(sorted({text for texts in task.texts() for text in texts}), seed=6)
    found = task.score(pool, ScoringOptions())
    similar = np.array([cosine(pool, a, b) for a, b in zip(pairs.left, pairs.right, strict=True)])
    decided = votes != 3
    assert list(found) == task.score_names()
    ap, rho = (found[f"twitterurl/cosine/{metric}"] for metric in ("ap", "spearman"))
    assert ap.value == pytest.approx(100 * average_precision_score(votes[decided] > 3, similar[decided]), abs=1e-9)
    assert rho.value == pytest.approx(100 * scipy.stats.spearmanr(similar, votes).statistic, abs=1e-4)
