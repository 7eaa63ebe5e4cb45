"""One command from the raw sentences of a domain to a trained encoder: synthesis, three stages, scores of each."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf

from cli.child_processes import lone_environment, run_child
from cli.process_group import find_ranks
from contracts import InputError, PairTask
from evaluation.tasks.sts import Similarity
from storage.results import read_results
from tests.objectives import settings
from training import domain
from training.stages import Stage


@pytest.fixture(scope="module")
def finished(domain_words, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    outcome = command(*domain_words, f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    return folder, outcome


def test_raw_sentences_become_a_stage_between_open_text_and_nli(finished):
    folder, _ = finished
    results = read_results(folder / "results.json")
    assert sorted(results["stages"], key=lambda name: results["stages"][name]["place"]) == ["open", "domain", "nli"]
    assert (folder / "encoder" / "modules.json").is_file()
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["counts"]["accepted"] > 16


def test_the_task_is_scored_before_after_and_in_between(finished):
    results = read_results(finished[0] / "results.json")
    name = "stsb/cosine/spearman"
    assert name in results["scores_before"]
    assert all(name in stage["scores"] for stage in results["stages"].values())
    assert results["stages"]["nli"]["scores"][name] == results["scores"][name]


def test_sentences_that_are_scored_are_left_out_and_counted(finished, tested, sentences):
    folder, outcome = finished
    assert "1 of its 36 sentences are among those that are scored" in outcome.err
    results = read_results(folder / "results.json")
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["sentences"]["left_out"]["held out"] == 1


def test_a_second_command_passes_over_what_is_done(domain_words, finished, command):
    outcome = command(*domain_words, f"output_dir={finished[0]}")
    assert outcome.status == 0
    assert "is finished" in outcome.err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("domain.generator=null", "domain.generator"),
        ("domain.path=nowhere.txt", "domain.path"),
        ("+domain.synthesis.rules.treshold=0.8", "rules.threshold"),
        ("domain.generator=nowhere/generator", "nowhere/generator"),
        ("stages.nli.data.path=nowhere.jsonl", "stage nli (its keys are stages.nli.KEY): nowhere.jsonl: no such file"),
    ],
)
def test_a_wrong_word_is_told_before_anything_is_trained(word, message, domain_words, command, tmp_path):
    key = word.partition("=")[0]
    others = [one for one in domain_words if one.partition("=")[0] not in (key, "domain.folder")]
    folder = tmp_path / "run"
    outcome = command(*others, word, f"domain.folder={tmp_path}/made", f"output_dir={folder}")
    assert outcome.status == 2, outcome.err
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(folder.glob("**/*.ckpt"))
    assert not list(tmp_path.glob("made/**/shard-*")), "nor are triplets written for a run that cannot be"


def test_who_asks_a_run_to_end_asks_its_synthesis_too(tmp_path):
    """The process that is waited for has SIGTERM sent to the one that waits."""
    left = tmp_path / "left"
    script = f"""if True:
        import os, pathlib, signal, sys
        def leave(*_):
            pathlib.Path({str(left)!r}).write_text("whole")
            sys.exit(3)
        signal.signal(signal.SIGTERM, leave)
        os.kill(os.getppid(), signal.SIGTERM)
        while True:
            signal.pause()
    """
    assert run_child([sys.executable, "-c", script]) == 143
    assert left.read_text() == "whole"
    assert run_child([sys.executable, "-c", "raise SystemExit(2)"]) == 2


@pytest.mark.parametrize(
    "launched",
    [
        {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0", "SLURM_JOB_NAME": "train"},
    ],
)
def test_synthesis_is_not_taken_for_one_of_the_processes_that_train(launched, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    assert find_ranks().world == 8
    kept = lone_environment()
    for name in launched.keys() - kept.keys():
        monkeypatch.delenv(name)
    assert find_ranks() == (0, 1)
    assert kept["PATH"] == os.environ["PATH"]


def test_a_long_text_that_is_scored_is_held_out_line_by_line_too(tmp_path, monkeypatch):
    """Documents are split at newlines, so its lines would not be known again by the whole."""
    task = PairTask("one", ["A title\nIts  body. More of it."], ["short"], np.zeros(1), ["all"])
    monkeypatch.setattr("training.domain.load_tasks", lambda *_, **__: SimpleNamespace(tasks=[Similarity(task)]))
    cfg = OmegaConf.create({"evaluation": {"data_root": "somewhere", "suite": ["one"], "during": []}})
    assert domain.write_held_out(cfg, tmp_path / "held.txt") == 4
    assert (tmp_path / "held.txt").read_text().splitlines() == [
        "A title",
        "A title Its body. More of it.",
        "Its body. More of it.",
        "short",
    ]


def test_nothing_is_written_for_a_stage_that_does_not_run(rows, tmp_path):
    data = settings("data", "triplets", path=str(rows), tokenizer="none")
    data["_target_"] = "datamodules.text_rows.Triplets"
    whole = OmegaConf.create(
        {
            "output_dir": str(tmp_path / "run"),
            "overwrite": False,
            "backbone": "some-id",
            "domain": {"path": str(rows), "generator": None, "folder": str(tmp_path / "made"), "synthesis": {}},
            "data": data,
        }
    )
    other = Stage("nli", whole, [], "", "")
    assert domain.synthesise_domain(whole, [other]) == 0
    reader = Stage(
        "domain", OmegaConf.merge(whole, {"data": {"path": str(tmp_path / "made" / "triplets")}}), [], "", ""
    )
    with pytest.raises(InputError, match=r"domain\.generator=null"):
        domain.synthesise_domain(whole, [other, reader])
    assert not (tmp_path / "made").exists()
