"""A user-defined metric: the bootstrap agrees with the closed form of Pearson's, and code runs only if it may."""

import json

import numpy as np
import pytest
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.statistics.bootstrap import of_function, pearson


def correlation(predicted, gold):
    return 100 * np.corrcoef(predicted, gold)[0, 1]


def nothing(predicted, gold):
    return float("nan")


def test_the_bootstrap_is_that_of_pearson():
    predicted, gold = torch.randn(2, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found, expected = (
        of_function(correlation, predicted, gold + predicted, "a"),
        pearson(predicted, gold + predicted, "a"),
    )
    assert found.value == pytest.approx(expected.value, abs=1e-6)
    torch.testing.assert_close(found.replicates_R.double(), expected.replicates_R.double(), rtol=0, atol=1e-3)
    assert of_function(correlation, predicted, gold).interval() is None


def test_a_metric_without_a_number_is_refused():
    with pytest.raises(InputError) as refused:
        of_function(nothing, torch.zeros(3), torch.zeros(3))
    assert "nothing" in str(refused.value)
    assert "nan" in str(refused.value)


@pytest.mark.parametrize("scores", [[0.2, 1.0, 0.6, 0.1], [0, 1, 1, 0]], ids=["ratings", "yes or no"])
@pytest.mark.advice("contrastive_encoders.core.import_target:untrusted")
def test_it_is_a_score_of_its_task_where_its_package_is_allowed(scores, bag_of_words, tmp_path):
    rows = [
        {"sentence1": f"word{place} and", "sentence2": f"word{place + place % 2} or", "score": score}
        for place, score in enumerate(scores)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (own,) = resolve_custom_tasks({"mine": {"path": str(tmp_path / "mine.jsonl"), "metric": f"{__name__}.correlation"}})
    with pytest.raises(InputError) as refused:
        own.read(EvaluateConfig())
    assert "allow_targets=[tests]" in str(refused.value)
    found = Suite(own.read(EvaluateConfig(allow_targets=["tests"]))).run(bag_of_words, intervals=True)
    assert {"mine/cosine/spearman", "mine/cosine/correlation"} <= found.values.keys() & found.intervals.keys()
    left, right = (bag_of_words.embed([row[side] for row in rows]) for side in ("sentence1", "sentence2"))
    expected = correlation(torch.cosine_similarity(left, right).numpy(), scores)
    assert found.values["mine/cosine/correlation"] == pytest.approx(expected, abs=1e-3)
