"""What a run says at its end of the encoder that it began from, by the real command."""

import itertools
import json
import os
import random
import re
import signal

import pytest

from export.model_card import model_card
from files.items import read_items
from files.results import read_results
from files.tables import escaped
from tests.integration.conftest import SIZES
from tests.integration.curves import reached

SCORE = "mine/cosine/ndcg@10"
STEPS = 40


def pair(words):
    """A question in one language and its answer in another: words alone find nothing, and there is much to learn."""
    return {"question": " ".join(f"q{word}q" for word in words), "answer": " ".join(f"x{word}z" for word in words)}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    drawn = random.Random(0).sample(list(itertools.combinations("abcdefghijklmnopqrstuvwx", 3)), 480)
    for name, part in (("train", drawn[:400]), ("mine", drawn[400:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair(words)) + "\n" for words in part))
    run = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=32", f"max_steps={STEPS}"]
    run += [f"data.path={folder / 'train.jsonl'}", f"evaluation.tasks={folder / 'mine.jsonl'}", "tiny.dropout=0"]
    return [*run, "backbone=tiny", *SIZES, "log_every_n_steps=2", "model.lr=0.01", "checkpoint.every_n_steps=5"]


@pytest.fixture(scope="module")
def better(words, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("better") / "run"
    outcome = command(*words, f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    return folder, outcome


def verdict_in(folder):
    return read_results(folder / "results.json")["verdict"]


def test_a_run_that_made_it_better_says_by_how_much_everywhere(words, better, command):
    folder, outcome = better
    results, verdict = read_results(folder / "results.json"), verdict_in(folder)
    assert (verdict["outcome"], verdict["scores"], verdict["items"]) == ("better", [SCORE], 80)
    assert verdict["before"] == results["scores_before"][SCORE]
    assert verdict["after"] == results["scores"][SCORE]
    assert verdict["tfidf"] == results["baselines"]["mine/tfidf/ndcg@10"]
    low, high = verdict["interval"]
    assert 0 < low < verdict["after"] - verdict["before"] < high
    number = r"[+-]?\d+\.\d"
    said = rf"Better: nDCG@10 of mine {number} -> {number} \({number}, 95 % interval {number} to {number}, 80 queries\)"
    assert re.match(rf"{said}\. TF-IDF: {number}\.$", verdict["sentence"])
    assert verdict["to_try"] == []
    again = command(*words, f"output_dir={folder}")
    assert (again.status, "is finished" in again.err, verdict["sentence"] in again.err) == (0, True, True)
    assert verdict["sentence"] in outcome.out
    assert escaped(verdict["sentence"]) in (folder / "encoder" / "README.md").read_text(encoding="utf-8")
    items = read_items(folder / "items.npz")
    assert items.values_before[SCORE].mean() == pytest.approx(verdict["before"])


@pytest.mark.parametrize(
    ("rate", "outcome", "begin", "shown"),
    [
        ("1e-9", "not told apart", "Cannot be told apart: ", "400 examples are few: give more, data.path="),
        ("3", "worse", "Worse: ", "More than half of the score is gone: learn far more slowly, model.lr=3.0e-02."),
    ],
)
def test_a_run_that_did_not_says_so_and_what_to_try(rate, outcome, begin, shown, words, better, command, tmp_path):
    done = command(
        *words, f"backbone={better[0]}", f"model.lr={rate}", "max_steps=16", f"output_dir={tmp_path / 'run'}"
    )
    assert done.status == 0, done.err
    verdict = verdict_in(tmp_path / "run")
    assert (verdict["outcome"], verdict["before"]) == (outcome, pytest.approx(verdict_in(better[0])["after"], abs=0.01))
    assert verdict["sentence"].startswith(begin)
    assert ("Keep what you had." in verdict["sentence"]) == (outcome == "worse")
    assert any(one.startswith(shown) for one in verdict["to_try"]), verdict["to_try"]
    assert f"{verdict['sentence']}\nWhat this run shows, and what to try:\n  {verdict['to_try'][0]}\n" in done.out


def test_a_killed_and_continued_run_ends_with_the_same_verdict(words, better, start, command, tmp_path):
    run = start(*words, f"output_dir={tmp_path}")
    run.wait_for(lambda: reached(tmp_path, 12))
    run.kill(signal.SIGKILL)
    run.finish()
    outcome = command(*words, f"output_dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert "goes on    from" in outcome.err
    assert verdict_in(tmp_path) == verdict_in(better[0])


def test_two_processes_say_what_one_does(words, better, start, tmp_path):
    slurm = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_NODEID": "0"}
    slurm |= {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NAME": "job", "SLURM_NODELIST": "127.0.0.1"}
    run = [*words, "trainer=cpu", f"output_dir={tmp_path / 'run'}"]
    ranks = [start(*run, **slurm, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in "01"]
    assert [rank.finish().status for rank in ranks] == [0, 0]
    ours, theirs = verdict_in(tmp_path / "run"), verdict_in(better[0])
    for name in ("before", "after", "interval", "tfidf"):
        assert ours[name] == pytest.approx(theirs[name], abs=0.05), name
    assert (ours["outcome"], ours["items"]) == (theirs["outcome"], theirs["items"])


def test_stages_are_judged_by_what_the_first_began_from(words, command, tmp_path):
    stages = ["+stages.one.max_steps=20", "+stages.two.max_steps=4", "stages.two.model.lr=1e-9"]
    outcome = command(*words, *stages, f"output_dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    whole, one, two = (verdict_in(tmp_path / part) for part in ("", "stage-one", "stage-two"))
    assert [found["outcome"] for found in (whole, one, two)] == ["better", "better", "not told apart"]
    assert (whole["before"], whole["after"]) == (one["before"], two["after"])
    assert two["before"] == pytest.approx(one["after"], abs=0.01)
    assert whole["interval"][0] > 0
    assert "stages.two.data.path=" in two["to_try"][-1]
    assert escaped(whole["sentence"]) in (tmp_path / "encoder" / "README.md").read_text(encoding="utf-8")
    assert read_results(tmp_path / "results.json")["stages"].keys() == {"one", "two"}
    assert model_card(read_results(tmp_path / "results.json"))


def test_who_does_not_want_it_says_so(words, command, tmp_path):
    outcome = command(*words, "evaluation.at_start=false", "max_steps=2", f"output_dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert not {"verdict", "scores_before"} & read_results(tmp_path / "results.json").keys()
    assert "before training" not in outcome.err
