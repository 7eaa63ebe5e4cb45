"""One command from the raw sentences of a domain to a trained encoder: synthesis, three stages, scores of each."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.evaluation.tasks.sts import SimilarityTask
from contrastive_encoders.io.results import read_results
from contrastive_encoders.training import gense_domain
from contrastive_encoders.training.run_config import Evaluation, RunConfig


@pytest.fixture(scope="module")
def finished(domain_overrides, train):
    return train(*domain_overrides)


@pytest.mark.slow  # synthesis and two stages
def test_raw_sentences_become_a_stage_between_open_text_and_nli(finished):
    folder, _ = finished
    results = read_results(folder / "results.json")
    assert sorted(results["stages"], key=lambda name: results["stages"][name]["place"]) == ["open", "domain", "nli"]
    assert (folder / "encoder" / "modules.json").is_file()
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["counts"]["accepted"] > 16


@pytest.mark.rotates
def test_the_task_is_scored_before_after_and_in_between(finished):
    results = read_results(finished[0] / "results.json")
    name = "stsb/cosine/spearman"
    assert name in results["scores_before"]
    assert all(name in stage["scores"] for stage in results["stages"].values())
    assert results["stages"]["nli"]["scores"][name] == results["scores"][name]


def test_sentences_of_the_evaluation_are_excluded_and_counted(finished, tested, sentences):
    folder, outcome = finished
    assert re.search(r"\b1 of .*\b36 ", outcome.err)
    results = read_results(folder / "results.json")
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["sentences"]["left_out"]["held out"] == 1


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("domain.generator=null", "domain.generator"),
        ("+domain.synthesis.rules.treshold=0.8", "rules.threshold"),
        ("stages.nli.data.path=nowhere.jsonl", "nowhere.jsonl"),
    ],
)
def test_a_wrong_override_is_refused_before_training(override, message, domain_overrides, command, tmp_path):
    key = override.partition("=")[0]
    others = [one for one in domain_overrides if one.partition("=")[0] not in (key, "domain.folder")]
    folder = tmp_path / "run"
    outcome = command(*others, override, f"domain.folder={tmp_path}/made", f"output_dir={folder}")
    assert outcome.status == 2, outcome.err
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(folder.glob("**/*.ckpt"))
    assert not list(tmp_path.glob("made/**/shard-*")), "nor are triplets written for a run that cannot be"


def test_a_long_text_that_is_scored_is_held_out_line_by_line_too(tmp_path, monkeypatch):
    """Documents are split at newlines, so matching the full text would miss its lines."""
    task = RatedPairs("one", ["A title\nIts  body. More of it."], ["short"], np.zeros(1), ["all"])
    monkeypatch.setattr(
        "contrastive_encoders.training.gense_domain.load_tasks",
        lambda *_, **__: SimpleNamespace(tasks=[SimilarityTask(task)]),
    )
    run = RunConfig(evaluation=Evaluation(data_root="somewhere", suite=["one"], during_training=[]))
    assert gense_domain.write_held_out(run, tmp_path / "held.txt") == 4
    assert (tmp_path / "held.txt").read_text().splitlines() == [
        "A title",
        "A title Its body. More of it.",
        "Its body. More of it.",
        "short",
    ]
