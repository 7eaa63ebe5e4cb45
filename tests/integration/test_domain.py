"""One command from the raw sentences of a domain to a trained encoder: synthesis, three stages, scores of each."""

import os
import sys

import pytest

from cli.child_processes import lone_environment, run_child
from cli.process_group import find_ranks
from storage.results import read_results


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
    assert "1 of its 36 sentences" in outcome.err
    results = read_results(folder / "results.json")
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["sentences"]["left_out"]["held out"] == 1


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("domain.generator=null", "domain.generator"),
        ("+domain.synthesis.rules.treshold=0.8", "rules.threshold"),
        ("stages.nli.data.path=nowhere.jsonl", "nowhere.jsonl: no such file"),
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
