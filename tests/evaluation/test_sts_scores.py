import logging

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics.pairwise import (
    paired_cosine_distances,
    paired_euclidean_distances,
    paired_manhattan_distances,
)

from contrastive_encoders.core import InputError, RatedPairs
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.sts import SimilarityTask
from tests.embedders import OnTheCPU

PAIRS = "sts12,sts12@senteval,sts13,sts14,sts15,sts16,stsb-dev,stsb,sickr,sickr-all"
ORACLES = {"spearman": spearmanr, "pearson": pearsonr}


def similarities(task, embedder):
    """Return SciPy's similarities, pair by pair; rounded, because a sentence and itself are not exactly 1."""
    vectors = [embedder.embed(pair).double().numpy() for pair in zip(task.left, task.right, strict=True)]
    return np.round([1 - cosine(*pair) for pair in vectors], 12)


def test_all_mean_and_wmean_are_what_their_definitions_say(data_root, bag_of_words):
    (task,) = load_tasks(data_root, "sts12", EvaluateConfig()).tasks
    values, intervals, *_ = Suite([task]).run(bag_of_words, intervals=True)
    task = task.pairs
    predicted, subsets = similarities(task, bag_of_words), np.array(task.subsets)
    for metric, oracle in ORACLES.items():
        parts = {s: 100 * oracle(predicted[subsets == s], task.gold[subsets == s]).statistic for s in set(subsets)}
        sizes = {s: int((subsets == s).sum()) for s in parts}
        assert len(set(sizes.values())) > 1  # otherwise mean and wmean would be equal
        expected = {
            f"sts12/all/{metric}": 100 * oracle(predicted, task.gold).statistic,
            f"sts12/mean/{metric}": sum(parts.values()) / 3,
            f"sts12/wmean/{metric}": sum(parts[s] * sizes[s] for s in parts) / len(subsets),
        }
        assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert set(values) == set(intervals)
    assert all(low <= values[name] <= high for name, (low, high) in intervals.items())


def test_the_four_way_maximum_is_old_sentence_transformers(data_root, bag_of_words):
    """Version 2.2 of the EmbeddingSimilarityEvaluator, without main_similarity, took the best of four."""
    (task,) = load_tasks(data_root, "stsb", EvaluateConfig()).tasks
    values = Suite([task]).run(bag_of_words, intervals=True).values
    left, right = (bag_of_words.embed(side).double().numpy() for side in (task.pairs.left, task.pairs.right))
    four = [1 - paired_cosine_distances(left, right), -paired_euclidean_distances(left, right)]
    four += [-paired_manhattan_distances(left, right), (left * right).sum(1)]
    for metric, oracle in ORACLES.items():
        each = [100 * oracle(similarity, task.pairs.gold).statistic for similarity in four]
        assert max(each) - each[0] > 0.01, "or cosine would do"
        assert values[f"stsb/max/{metric}"] == pytest.approx(max(each), abs=1e-3)


def test_equal_sentences_tie(bag_of_words):
    texts = ["tea salt", "gull drum moss", "lamp rope fern coal", "bell", "kite plum"]
    task = RatedPairs("stsb", [*texts, "a b"], [*texts, "c d"], np.array([5.0, 5, 5, 5, 5, 0]), ["stsb"] * 6)
    values = Suite([task]).run(bag_of_words, intervals=True).values
    assert values["stsb/cosine/spearman"] == pytest.approx(100, abs=1e-3)


def test_names_of_the_whole_suite(data_root, bag_of_words):
    suite = Suite(load_tasks(data_root, PAIRS, EvaluateConfig()).tasks)
    names = set(suite.run(bag_of_words, intervals=True).values)
    years = ["sts12", "sts13", "sts14", "sts15", "sts16", "sts12@senteval"]
    expected = {f"{year}/{protocol}" for year in years for protocol in ("all", "mean", "wmean", "max")}
    expected |= {f"{task}/{p}" for task in ("stsb-dev", "stsb", "sickr", "sickr-all") for p in ("cosine", "max")}
    expected.add("sts-avg7/all")
    expected = {f"{name}/{metric}" for name in expected for metric in ("spearman", "pearson")}
    assert names == expected | {"sts-avg5/mean/spearman", "sts-avg5/all/spearman"}
    assert set(suite.score_names()) == names


def test_each_distinct_sentence_is_encoded_once(data_root, bag_of_words):
    tasks = load_tasks(data_root, PAIRS, EvaluateConfig()).tasks
    suite = Suite(tasks)
    suite.run(bag_of_words, intervals=True)
    (encoded,) = bag_of_words.calls
    assert sorted(encoded) == sorted({text for task in tasks for text in [*task.pairs.left, *task.pairs.right]})
    assert set(encoded) == {text for texts in suite.sentences().values() for text in texts}


class Collapsed(OnTheCPU):
    def __init__(self, value: float) -> None:
        self.value = value

    def embed(self, texts, **_):
        return torch.full((len(texts), 8), self.value)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, float("nan"), float("inf")])
def test_a_collapsed_encoder_scores_zero_and_says_so(data_root, caplog, value):
    with caplog.at_level(logging.WARNING, "contrastive_encoders"):
        suite = Suite(load_tasks(data_root, "sts12", EvaluateConfig()).tasks)
        values, intervals, *_ = suite.run(Collapsed(value), intervals=True)
    assert set(values.values()) == {0.0}
    assert all(interval == [0, 0] for interval in intervals.values())
    assert sum("correlation" in record.message for record in caplog.records) == 1


def test_one_broken_vector_counts_as_no_similarity(caplog):
    class OneNaN(OnTheCPU):
        def embed(self, texts, **_):
            return torch.tensor([[float("nan") if text == "x" else len(text), 1.0] for text in texts])

    task = RatedPairs("stsb", ["a", "bb", "x", "dddd"], ["eee", "ff", "g", "h"], np.array([1.0, 5, 0, 3]), ["stsb"] * 4)
    found = SimilarityTask(task).score(embed_pool(OneNaN(), [task.left, task.right]), ScoringOptions())
    cosines = [4 / np.sqrt(2 * 10), 1.0, 0.0, 5 / np.sqrt(17 * 2)]
    assert found["stsb/cosine/pearson"].value == pytest.approx(100 * pearsonr(cosines, task.gold).statistic, abs=1e-6)
    assert "1 of 4 pairs" in caplog.text


def test_a_suite_names_a_task_once(data_root):
    with pytest.raises(InputError) as refused:
        Suite(load_tasks(data_root, "stsb", EvaluateConfig()).tasks * 2)
    assert refused.value.key == "tasks"
    assert "stsb/cosine/spearman" in refused.value.value
