"""A run that is monitored by a user-defined task."""

import json

import pytest

from contrastive_encoders.io.metrics import read_rows
from tests.data import write_rows
from tests.integration.conftest import TINY


@pytest.fixture
def overrides(tmp_path):
    rows = [{"question": f"What is item {n}?", "answer": f"Item {n} of the list is {n * n}."} for n in range(24)]
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "faq.jsonl", rows[:12])
    (tmp_path / "mine.yaml").write_text("mine: {path: faq.jsonl, metrics: [ndcg@10, mrr@10]}\n")
    run = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=6", "max_steps=4"]
    return [*run, f"data.path={tmp_path / 'train.jsonl'}", *TINY]


def test_it_is_scored_while_training_and_at_the_end_and_looked_for_in_the_data(overrides, command, tmp_path):
    score = "mine/cosine/ndcg@10"
    given = [
        f"evaluation.custom_tasks=[{tmp_path / 'mine.yaml'}]",
        "evaluation.every_n_steps=2",
        "evaluation.at_start=true",
    ]
    done = command(*overrides, *given, f"monitor={score}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    scored = {
        int(row["step"]): float(row[score]) for row in read_rows(tmp_path / "run" / "metrics.csv") if score in row
    }
    assert set(scored) == {0, 2, 4}
    assert results["scores"][score] == pytest.approx(max(scored[2], scored[4]))
    assert results["scores_before"][score] == pytest.approx(scored[0])
    assert "mine/tfidf/ndcg@10" in results["baselines"]
    assert results["overlap"]["mine"]["found"] == results["overlap"]["mine"]["checked"] > 0
    assert score in results["intervals"]
    wrong = command(*overrides, *given, "monitor=mine/cosine/map", f"output_dir={tmp_path / 'other'}")
    assert wrong.status == 2
    assert f"mine/cosine/mrr@10, {score}" in wrong.err
