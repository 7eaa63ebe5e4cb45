"""Closed forms of constructed embeddings, and the definitions written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from contrastive_encoders.core import InputError, RatedPairs
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks import geometry
from contrastive_encoders.evaluation.tasks.geometry import Geometry, uniformities

NO_INTERVALS = ScoringOptions(intervals=False)


def task_of(pairs: list[tuple[str, str, float]], threshold: float = 4.0) -> Geometry:
    left, right, gold = zip(*pairs, strict=True)
    return Geometry("geometry", RatedPairs("stsb", [*left], [*right], np.array(gold), ["stsb"] * len(gold)), threshold)


def values(task: Geometry, vectors: dict[str, list[float]], how: ScoringOptions = NO_INTERVALS) -> dict[str, float]:
    pool = EmbeddingPool({text: row for row, text in enumerate(vectors)}, torch.tensor(list(vectors.values())).float())
    return {name.removeprefix("stsb/geometry/"): one.value for name, one in task.score(pool, how).items()}


METRICS = (
    "alignment",
    "uniformity",
    "uniformity-distinct",
    "anisotropy",
    "effective-rank",
    "effective-rank-centred",
    "norm",
    "norm-std",
)
FOUR = [("a", "b", 5), ("c", "d", 1)]


@pytest.mark.parametrize(
    ("pairs", "vectors", "wanted"),
    [
        # orthonormal: squared distance 2 between any two; all singular values equal: full rank
        (FOUR, torch.eye(4).tolist(), (2, -4, -4, 0, 4, 3, 1, 0)),
        (FOUR, [[3.0, 4.0]] * 4, (0, 0, 0, 1, 1, 0, 5, 0)),
        ([("a", "b", 4.5)], [[0.0, 2.0], [0.0, -4.0]], (4, -8, -8, -1, 1, 1, 3, 1)),
    ],
    ids=["orthonormal", "identical", "antipodal"],
)
def test_closed_forms(pairs, vectors, wanted):
    found = values(task_of(pairs), dict(zip("abcd", vectors, strict=False)))
    assert found == pytest.approx(dict(zip(METRICS, wanted, strict=True)), abs=1e-6)


def test_a_text_in_two_rows_counts_twice_but_is_not_compared_with_itself_within_one():
    """a and b are orthogonal. The sentences are a b a b: of six pairs, two are equal texts."""
    found = values(task_of([("a", "b", 5), ("a", "b", 2)]), {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    assert found["uniformity"] == pytest.approx(math.log((2 * 1 + 4 * math.exp(-4)) / 6))
    assert found["uniformity-distinct"] == pytest.approx(-4)


def test_only_pairs_above_the_threshold_align():
    pairs = [("a", "b", 4.0), ("a", "c", 4.2), ("b", "c", 3.5)]
    vectors = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [1.0, 0.0]}
    assert values(task_of(pairs), vectors)["alignment"] == pytest.approx(0)  # exactly 4 is not above 4
    found = values(task_of(pairs, threshold=3), vectors)
    assert found["alignment>3"] == pytest.approx((2 + 0 + 2) / 3)


@pytest.fixture
def random_rows() -> tuple[Geometry, dict[str, list[float]]]:
    rng = np.random.default_rng(1)
    names = [f"t{i}" for i in range(60)]
    pairs = [(str(rng.choice(names)), str(rng.choice(names)), float(rng.uniform(0, 5))) for _ in range(70)]
    return task_of(pairs), {name: (rng.standard_normal(6) + 0.3).tolist() for name in names}


def test_definitions_written_out(random_rows, monkeypatch):
    monkeypatch.setattr(geometry, "BLOCK", 7)
    task, vectors = random_rows
    rows = {text: np.float32(vector).astype(np.float64) for text, vector in vectors.items()}
    unit = {text: row / np.linalg.norm(row) for text, row in rows.items()}
    sentences = [*task.pairs.left, *task.pairs.right]
    distinct = sorted(set(sentences))

    def log_mean_kernel(texts: list[str]) -> float:
        distances = torch.pdist(torch.from_numpy(np.stack([unit[text] for text in texts])), p=2)
        return float(distances.pow(2).mul(-2).exp().mean().log())

    matrix = np.stack([rows[text] for text in distinct])
    spectra = [np.linalg.svd(one, compute_uv=False) for one in (matrix, matrix - matrix.mean(0))]
    norms = np.linalg.norm(matrix, axis=1)
    aligned = [
        np.sum((unit[a] - unit[b]) ** 2)
        for a, b, score in zip(task.pairs.left, task.pairs.right, task.pairs.gold, strict=True)
        if score > 4
    ]
    found = values(task, vectors)
    wanted = {
        "alignment": np.mean(aligned),
        "uniformity": log_mean_kernel(sentences),
        "uniformity-distinct": log_mean_kernel(distinct),
        "anisotropy": np.mean([unit[a] @ unit[b] for a, b in itertools.combinations(distinct, 2)]),
        "effective-rank": np.exp(entropy(spectra[0])),
        "effective-rank-centred": np.exp(entropy(spectra[1])),
        "norm": norms.mean(),
        "norm-std": norms.std(),
    }
    # a text compared with itself in another row has distance 1e-8 in pdist, 0 here
    assert found == pytest.approx(wanted, abs=1e-7)


def test_uniformity_s_interval_is_that_of_the_full_bootstrap_over_rows():
    """Rows are resampled and the full statistic is computed; pairs of one row count only within one draw of it."""
    rng = np.random.default_rng(3)
    rows = 150
    units = torch.nn.functional.normalize(torch.from_numpy(rng.normal([1, 0, 0, 0], 1, (2 * rows, 4))))
    pairs = torch.arange(2 * rows).view(rows, 2)
    estimate, _ = uniformities(units, pairs, "stsb")
    kernel = torch.exp(-2 * torch.cdist(units, units).square()).numpy()
    between = kernel.reshape(rows, 2, rows, 2).sum((1, 3))
    within = kernel.reshape(rows, 2, rows, 2)[np.arange(rows), 0, np.arange(rows), 1]
    np.fill_diagonal(between, 0)
    drawn = rng.multinomial(rows, np.full(rows, 1 / rows), size=2000).astype(float)
    sums = np.einsum("ri,ij,rj->r", drawn, between, drawn) + 2 * drawn @ within
    counts = 4 * (rows**2 - (drawn**2).sum(1)) + 2 * rows
    low, high = np.quantile(np.log(sums / counts), [0.025, 0.975])
    assert estimate.interval() == pytest.approx([low, high], abs=0.1 * (high - low))


def test_no_pair_above_the_threshold_is_an_error():
    with pytest.raises(InputError) as refused:
        task_of([("a", "b", 3.0)])
    assert (refused.value.key, refused.value.value) == ("alignment_threshold", "4")
