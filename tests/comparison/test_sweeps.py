"""Sweep files are W&B's, every trial of every one composes, and a sweep goes on where it stopped."""

import json
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from comparison import processes as processes
from comparison.processes import Job, run_all
from comparison.race import plan, train_all
from comparison.sweep import jobs_of, read_words, run
from comparison.sweep_file import read_sweep, trials_of
from contracts import InputError
from training.checks import check_choice, check_values

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
FAKE = """
import json, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv[1:])
folder = pathlib.Path(words["output_dir"]); folder.mkdir(parents=True, exist_ok=True)
count = folder / "attempts"; done = int(count.read_text()) if count.exists() else 0; count.write_text(str(done + 1))
fails = words.get("fails", "").split(",")
if str(done) in fails: print("it broke"); sys.exit(1)
if words.get("stops") == str(done): sys.exit(130)
if words.get("wrong"): print("no such key"); sys.exit(2)
steps = int(words.get("max_steps", 10)); each = int(words.get("each", 8))
results = dict(version=1, objective=words.get("model", "m"), backbone="b", intervals={},
    recipe=dict(words, seed=words.get("seed")), best_step=steps, seeds=[int(words.get("seed", 1))], versions={},
    scores={"stsb/cosine/spearman": 50.0 + float(words.get("model.lr", 0))}, device="", processes=1,
    spent=dict(steps=steps, examples=steps * each, real_tokens=steps * each * 10, padded_tokens=0,
               wall_seconds=steps * 0.5, peak_memory_bytes=1),
    git_commit=None, data=[], overlap={})
(folder / "metrics.csv").write_text("step,time/elapsed_s\\n5,3.0\\n%d,%f\\n" % (steps, 3.0 + (steps - 5) * 0.1 * each))
(folder / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def fake_train(tmp_path, monkeypatch) -> Path:
    """In train.py's place: it fails, stops and finishes as it is told."""
    path = tmp_path / "fake_train.py"
    path.write_text(textwrap.dedent(FAKE), encoding="utf-8")
    monkeypatch.setattr(processes, "TRAIN", path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return path


def attempts(folder: Path) -> int:
    return int((folder / "attempts").read_text())


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_trial_of_a_sweep_composes(path):
    sweep = read_sweep(path)
    trials = trials_of(sweep)
    assert len(trials) >= 8
    assert len({tuple(trial.words()) for trial in trials}) == len(trials)
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for trial in trials:
            cfg = compose("train", ["output_dir=somewhere", *sweep.words, *trial.words()])
            check_choice(cfg)
            check_values(cfg)
    assert cfg.monitor == sweep.metric  # a run logs it, under this name
    assert sweep.metric.split("/")[0] in cfg.evaluation.during
    assert cfg.evaluation.every_n_steps
    assert cfg.evaluation.data_root


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_words_are_those_of_an_agent(path):
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    for trial in trials_of(read_sweep(path), 5):
        args = {key: {"value": value} for key, value in trial.values.items()}
        assert trial.words() == utils.create_sweep_command_args({"args": args})["args_no_hyphens"]


def test_the_paper_sweep_draws_from_equal_documents():
    sweep = read_sweep(ROOT / "configs" / "sweeps" / "declutr_tau_ap.yaml")
    assert {"data.min_document_length=2048", "data.equalise_spans_to=2"} <= set(sweep.words)
    assert len(trials_of(sweep)) == 3 * 2 * 3 * 2


def test_a_random_trial_does_not_depend_on_how_many_are_drawn():
    sweep = read_sweep(ROOT / "configs" / "sweeps" / "gense_tau_weight.yaml")
    assert trials_of(sweep, 3) == trials_of(sweep, 9)[:3]
    drawn = [trial.values["model.temperature"] for trial in trials_of(sweep, 200)]
    assert min(drawn) >= 0.005
    assert max(drawn) <= 0.2
    assert 0.02 < sorted(drawn)[100] < 0.05  # the middle of a logarithmic scale is 0.032
    assert trials_of(sweep, 3, seed=2) != trials_of(sweep, 3)


def sweep_file(folder: Path, **more) -> Path:
    content = {
        "program": "train.py", "method": "grid", "metric": {"name": "stsb/cosine/spearman", "goal": "maximize"},
        "command": ["${env}", "${interpreter}", "${program}", "model=m", "${args_no_hyphens}"],
        "parameters": {"model.lr": {"values": [1, 2, 3]}}, **more,
    }  # fmt: skip
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_sweep_runs_retries_and_goes_on(tmp_path, fake_train, caplog):
    caplog.set_level("INFO")
    words = [str(sweep_file(tmp_path)), f"output={tmp_path / 'out'}", "parallel=2"]
    jobs = jobs_of(read_words(words))
    (jobs[1].folder).mkdir(parents=True)
    (jobs[1].folder / "results.json").write_text('{"scores": {}}', encoding="utf-8")
    assert run(words) == 0
    assert not (jobs[1].folder / "attempts").exists()
    assert attempts(jobs[0].folder) == attempts(jobs[2].folder) == 1
    assert "lr=3" in caplog.text
    assert run(words) == 0
    assert attempts(jobs[0].folder) == 1


def test_a_failure_is_retried_once_and_recorded(tmp_path, fake_train):
    once, twice = (Job(name, [f"fails={fails}"], tmp_path / name) for name, fails in (("once", "0"), ("twice", "0,1")))
    wrong = Job("wrong", ["wrong=1"], tmp_path / "wrong")
    done = {one.name: one for one in run_all([once, twice, wrong], tmp_path / "record.jsonl")}
    assert (done["once"].status, done["once"].attempts) == (0, 2)
    assert (done["twice"].status, done["twice"].attempts) == (1, 2)
    assert (done["wrong"].status, done["wrong"].attempts) == (2, 1)
    assert "no such key" in done["wrong"].said
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["status"] for line in lines] == [0, 1, 2]


def test_an_interruption_ends_it_and_the_same_command_goes_on(tmp_path, fake_train):
    jobs = [Job(str(place), ["stops=0"] if place == 1 else [], tmp_path / str(place)) for place in range(3)]
    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, tmp_path / "record.jsonl")
    assert not (tmp_path / "2").exists()
    assert all(one.finished for one in run_all(jobs, tmp_path / "record.jsonl"))
    assert [attempts(tmp_path / str(place)) for place in range(3)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"examples": 800}, {"a": 100, "b": 50}),
        ({"tokens": 8000}, {"a": 100, "b": 50}),
        ({"seconds": 80}, {"a": 100, "b": 50}),
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_race_gives_each_arm_the_budget(tmp_path, fake_train, budget, steps):
    race = plan(
        {"name": "r", "arms": {"a": ["each=8"], "b": ["each=16"]}, "seeds": [1, 2]}, budget, None, tmp_path / "out"
    )
    assert train_all(race, tmp_path / "out") == []
    for label, wanted in steps.items():
        for seed in (1, 2):
            results = json.loads(
                (tmp_path / "out" / "runs" / f"{label}-seed{seed}" / "results.json").read_text(encoding="utf-8")
            )
            assert results["spent"]["steps"] == wanted
            assert ("max_time" in results["recipe"]) == ("seconds" in budget)
    labels = json.loads((tmp_path / "out" / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert labels["b-seed2"] == "b"
    more = plan({"arms": {"a": ["each=8"], "b": ["each=16"]}, "seeds": [3]}, budget, None, tmp_path / "out")
    train_all(more, tmp_path / "out")
    labels = json.loads((tmp_path / "out" / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert (labels["b-seed2"], labels["b-seed3"]) == ("b", "b")
    with pytest.raises(InputError, match="another race"):
        plan({"arms": {"a": []}, "seeds": [1]}, budget, None, tmp_path / "out")


def test_the_record_of_a_race_that_is_damaged_is_told(tmp_path):
    (tmp_path / "race.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"race\.json: wanted JSON"):
        plan({"arms": {"a": []}, "seeds": [1]}, {"seconds": 1}, None, tmp_path)


@pytest.mark.parametrize(
    ("race", "budget", "said"),
    [
        ({"arms": {}}, {"seconds": 1}, "wanted arms"),
        ({"arms": {"a": []}, "seeds": [1]}, {"hours": 1}, "examples, tokens, seconds"),
        ({"arms": {"a": []}, "seeds": [1]}, {"seconds": 1, "tokens": 2}, "one of"),
        ({"arms": {"a": []}, "seeds": []}, {"seconds": 1}, "seeds"),
    ],
)
def test_a_race_that_cannot_be_run_is_told(tmp_path, race, budget, said):
    with pytest.raises(InputError, match=said):
        plan(race, budget, None, tmp_path)


def test_an_arm_that_train_refuses_ends_the_race(tmp_path, fake_train):
    race = plan({"arms": {"a": ["wrong=1"]}, "seeds": [1]}, {"seconds": 5}, None, tmp_path / "out")
    with pytest.raises(InputError, match="no such key"):
        train_all(race, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "annealing"}, "annealing"),
        ({"command": ["${program}"]}, "args_no_hyphens"),
        ({"parameters": {}}, "parameters"),
        ({"parameters": {"lr": {"min": 0.1, "max": 1.0}}}, "grid wants value"),
        ({"method": "random", "parameters": {"lr": {"min": 1, "max": 0}}}, "min and max"),
        ({"method": "random", "parameters": {"lr": {"distribution": "beta", "min": 0.1, "max": 1.0}}}, "beta"),
    ],
)
def test_a_sweep_file_that_is_none_is_told(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        trials_of(read_sweep(sweep_file(tmp_path, **change)))


def test_races_compose():
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for path in (ROOT / "configs" / "race").glob("*.yaml"):
            cfg = compose("comparison", [f"race={path.stem}", "race.texts=texts"])
            for words in cfg.race.arms.values():
                composed = compose("train", ["output_dir=x", *map(str, cfg.race.common), *map(str, words)])
                check_choice(composed)
                check_values(composed)
                assert composed.evaluation.data_root is None
    assert sys.executable
