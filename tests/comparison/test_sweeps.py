"""Sweep files are W&B's, all their trials compose, and an interrupted sweep resumes."""

import json
import re
import shlex
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from contrastive_encoders.cli.compare import plain
from contrastive_encoders.cli.compare import run as compare_command
from contrastive_encoders.cli.sweep import read_arguments, run
from contrastive_encoders.comparison import run_scheduler as processes
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.hyperparameter_selection import HyperparameterChoice, choose, selection_of
from contrastive_encoders.comparison.outputs import COMPARISON, ENTRIES
from contrastive_encoders.comparison.race import PilotFailedError, Race, plan
from contrastive_encoders.comparison.race import train_all as train_race
from contrastive_encoders.comparison.run_scheduler import Job, JobResult, open_workers
from contrastive_encoders.comparison.study import Trials
from contrastive_encoders.comparison.sweep_file import format_overrides as format_trial_overrides
from contrastive_encoders.comparison.sweep_file import read_sweep
from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.paper_tables import AVERAGES
from contrastive_encoders.io.output_directory import write_marker
from contrastive_encoders.training.checks import check_model_and_data, check_values
from contrastive_encoders.training.compose import compose as compose_run
from contrastive_encoders.training.composition.config_store import compose_config
from contrastive_encoders.training.max_length import check_lengths
from contrastive_encoders.training.resolve import resolve
from tests.in_process import run_here

ROOT = Path(__file__).resolve().parents[2]
AS_PUBLISHED = {  # the monitor, the early termination, and what is shown of a trial
    "declutr_tau_ap": (None, None, "declutr-avg17-dev@senteval/default/score"),
    "dino_lambda": ("dino-dev/max/spearman", None, "stsb/cosine/spearman"),
}
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))
FAKE = """
import json, pathlib, sys
keys = dict(override.split("=", 1) for override in sys.argv[1:])
folder = pathlib.Path(keys["output_dir"]); folder.mkdir(parents=True, exist_ok=True)
count = folder / "attempts"; done = int(count.read_text()) if count.exists() else 0; count.write_text(str(done + 1))
fails = keys.get("fails", "").split(",")
if str(done) in fails: print("it broke"); sys.exit(1)
if keys.get("stops") == str(done): sys.exit(130)
if keys.get("silent"): sys.exit(0)
if keys.get("wrong") == "1": print("no such key"); sys.exit(2)
steps = int(keys.get("max_steps", 10)); each = int(keys.get("each", 8))
results = dict(version=2, objective=keys.get("model", "m"), backbone="b", intervals={},
    recipe=dict(keys, seed=keys.get("seed")), best_step=steps, seeds=[int(keys.get("seed", 1))], versions={},
    scores={} if keys.get("unscored") else {"stsb/cosine/spearman": 50.0 + float(keys.get("model.lr", 0))},
    device="", processes=1,
    cost=dict(steps=steps, examples=steps * each, real_tokens=steps * each * 10, padded_tokens=0,
               wall_seconds=steps * 0.5, peak_memory_bytes=1),
    git_commit=None, data=[], overlap={})
if "stages" in keys:
    names = keys["stages"].split(",")  # the n-th takes n times as long
    results["stages"] = {name: dict(place=n, best_step=steps, scores={},
                                     cost=dict(results["cost"], wall_seconds=n * steps * 0.5))
                         for n, name in enumerate(names, 1)}
    results["cost"] = {key: sum(one["cost"][key] for one in results["stages"].values()) for key in results["cost"]}
(folder / "metrics.csv").write_text("step,time/elapsed_s\\n5,3.0\\n%d,%f\\n" % (steps, 3.0 + (steps - 5) * 0.1 * each))
if keys.get("backbone") == "tiny": (folder / "backbone").mkdir(exist_ok=True)
for place in ("", "stage-open/"):
    for kept in ("checkpoints/last.ckpt", "encoder/model.safetensors"):
        path = folder / (place + kept); path.parent.mkdir(parents=True, exist_ok=True); path.write_text("weights")
(folder / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def fake_train(tmp_path_factory, monkeypatch) -> Path:
    """Replacement for train.py that fails, stops and finishes as the test tells it."""
    path = tmp_path_factory.mktemp("program") / "fake_train.py"
    path.write_text(textwrap.dedent(FAKE), encoding="utf-8")
    monkeypatch.setattr(processes, "TRAIN", (str(path),))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return path


def attempts(folder: Path) -> int:
    return int((folder / "attempts").read_text())


def trials_of(path: Path, output: Path, **more) -> Trials:
    return Trials(read_sweep(path), output, [], more.get("trials"), more.get("seed", 1))


def run_all(jobs: list[Job], output: Path, parallel: int = 1) -> list[JobResult]:
    with open_workers(output, parallel) as pool:
        return processes.run_all(pool, jobs, output / "record.jsonl")


def train_all(race: Race, output: Path, **more) -> list[JobResult]:
    with open_workers(output) as pool:
        return train_race(race, output, pool, **more)


def results_of(output: Path, run: str) -> dict:
    return json.loads((output / "runs" / run / "results.json").read_text(encoding="utf-8"))


def is_another_race(error: InputError, output: Path, key: str, change: str) -> bool:
    """Return whether an output was refused because its race differs in this key and text."""
    return (error.key, error.value) == ("output", output) and f": {key}" in error.hint and change in error.hint


def overrides_of(job: Job) -> list[str]:
    return job.arguments[:-1]  # without quiet=true


@pytest.mark.rotates
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_trial_of_a_sweep_composes(path, tmp_path):
    sweep = read_sweep(path)
    trials = [*map(format_trial_overrides, sweep.grid())]
    trials = trials or [job.arguments[-3:-1] for job in trials_of(path, tmp_path, trials=8).jobs()]
    assert len({tuple(overrides) for overrides in trials}) == len(trials) >= 3
    composed = set[str]()
    for overrides in trials:
        if not composed >= set(overrides):  # otherwise every argument was used, in another trial
            run = resolve(compose_run([*sweep.overrides, *overrides]))
            composed |= set(overrides)
            check_model_and_data(run)
            check_values(run)
    assert run.evaluation.data_root
    if path.stem not in AS_PUBLISHED:
        assert run.monitor == sweep.metric  # a run logs it under this name
        assert sweep.metric.split("/")[0] in run.evaluation.during_training
        assert run.evaluation.every_n_steps
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    for values in sweep.grid()[:5]:
        args = {key: {"value": value} for key, value in values.items()}
        assert format_trial_overrides(values) == utils.create_sweep_command_args({"args": args})["args_no_hyphens"]


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_nothing_in_a_sweep_of_a_paper_is_chosen_by_human_labels_of_sts(name):
    """All trials run to their end; the same search by STS-B's development set has a name that says so."""
    sweep, other = (read_sweep(ROOT / "configs" / "sweeps" / f"{one}.yaml") for one in (name, f"{name}_by_stsb_dev"))
    cfg = compose_config("train", ["output_dir=somewhere", *sweep.overrides, *format_trial_overrides(sweep.grid()[0])])
    assert (cfg.monitor, sweep.rungs, sweep.metric) == AS_PUBLISHED[name]
    assert other.metric == "stsb-dev/cosine/spearman"
    assert other.rungs is not None
    assert set(sweep.parameters) <= set(other.parameters)
    scored = {one.average.format(n=len(one.member_scores()), protocol="default") for one in AVERAGES if one.average}
    assert sweep.metric.replace("@senteval", "") in {*scored, "stsb/cosine/spearman"}
    assert list(cfg.evaluation.suite) == (["senteval@senteval"] if "@senteval" in sweep.metric else ["sts"])


def test_a_grid_keeps_its_order(tmp_path):
    """The last parameter changes first; the paper's sweep draws from equal documents."""
    sweep = read_sweep(ROOT / "configs" / "sweeps" / "declutr_tau_ap.yaml")
    assert {"data.min_document_length=2048", "data.match_span_count_of=2"} <= set(sweep.overrides)
    assert len(sweep.grid()) == 3 * 2 * 3 * 2
    path = sweep_file(tmp_path, parameters={"b": {"values": [2, 1]}, "a": {"values": ["x", [3, None]]}})
    jobs = list(trials_of(path, tmp_path).jobs())
    assert [overrides_of(job)[-2:] for job in jobs] == [
        ["b=2", "a=x"],
        ["b=2", "a=[3, None]"],
        ["b=1", "a=x"],
        ["b=1", "a=[3, None]"],
    ]


def test_a_random_trial_does_not_depend_on_how_many_are_drawn(tmp_path):
    path = ROOT / "configs" / "sweeps" / "gense_tau_weight.yaml"
    three, many, other = (
        [overrides_of(job) for job in trials_of(path, tmp_path / str(place), trials=trials, seed=seed).jobs()]
        for place, (trials, seed) in enumerate([(3, 1), (30, 1), (3, 2)])
    )
    assert three == many[:3]
    assert three != other
    drawn = sorted(float(overrides[-2].partition("=")[2]) for overrides in many)
    assert drawn[0] >= 0.005
    assert drawn[-1] <= 0.2
    assert 0.012 < drawn[15] < 0.08  # the middle of a logarithmic scale is 0.032


def sweep_path(folder: Path) -> Path:
    """Return the path next to the folder, which may be the output."""
    return folder.with_name(f"{folder.name}.sweep.yaml")


def sweep_file(folder: Path, **more) -> Path:
    content = {
        "program": "train.py",
        "method": "grid",
        "metric": {"name": "stsb/cosine/spearman", "goal": "maximize"},
        "command": ["${env}", "${interpreter}", "${program}", "model=m", "${args_no_hyphens}"],
        "parameters": {"model.lr": {"values": [1, 2, 3]}},
        **more,
    }
    path = sweep_path(folder)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def states(overrides: list[str]) -> list[str]:
    asked = read_arguments(overrides)
    trials = Trials(asked.sweep, asked.output, asked.overrides, asked.config.trials, asked.config.seed)
    return [one.state.name for one in trials.study.get_trials()]


@pytest.mark.advice("contrastive_encoders.cli.sweep:run")
def test_a_sweep_runs_finds_what_is_there_and_goes_on(tmp_path, fake_train, caplog):
    caplog.set_level("INFO")
    overrides = [str(sweep_file(tmp_path)), f"output={tmp_path / 'out'}", "parallel=2"]
    with pytest.raises(InputError) as raised:
        run(overrides[1:])
    assert raised.value.key == "FILE"
    jobs = list(trials_of(sweep_path(tmp_path), tmp_path / "another").jobs())
    folders = [tmp_path / "out" / "runs" / job.folder.name for job in jobs]
    (tmp_path / "out").mkdir()
    write_marker(tmp_path / "out", COMPARISON, ENTRIES)
    folders[1].mkdir(parents=True)
    (folders[1] / "results.json").write_text('{"scores": {}}', encoding="utf-8")
    assert run(overrides) == 0
    assert not (folders[1] / "attempts").exists()
    assert attempts(folders[0]) == attempts(folders[2]) == 1
    assert re.search(r"stsb/cosine/spearman: 53\.00 .*trial 2: model\.lr=3", caplog.text)
    assert run(overrides) == 0
    assert [attempts(folders[0]), attempts(folders[2])] == [1, 1]
    assert states(overrides) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert len((tmp_path / "out" / "trials.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    [advised] = set(re.findall(r"contrastive-encoders compare (.*)", caplog.text))
    run_here("compare", compare_command, shlex.split(advised))
    assert (tmp_path / "out" / "comparison" / "report.md").is_file()


@pytest.mark.parametrize("method", ["grid", "random", "bayes"])
def test_trials_that_failed_or_were_interrupted_are_begun_again(tmp_path, fake_train, method):
    lr = {"values": [1, 2]} if method == "grid" else {"min": 0.0, "max": 1.0}
    path = sweep_file(tmp_path, method=method, parameters={"model.lr": lr})
    overrides = [str(path), f"output={tmp_path / 'out'}", "trials=2"]
    failing, stopping = [*overrides, "fails=0,1"], [*overrides, "stops=0"]
    assert [run(failing), run(failing)] == [1, 0]
    assert states(failing) == ["COMPLETE", "COMPLETE"]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(stopping)
    assert run(stopping) == 0
    assert states(stopping) == ["COMPLETE", "COMPLETE"]
    assert sorted(attempts(folder) for folder in (tmp_path / "out" / "runs").iterdir()) == [2, 2, 3, 3]


def test_bayes_is_not_random(tmp_path, fake_train):
    """Later trials of TPE are drawn near those that scored best."""
    parameters = {"model.lr": {"min": 0.0, "max": 100.0}}
    path = sweep_file(tmp_path, method="bayes", parameters=parameters)
    trials = trials_of(path, tmp_path / "out", trials=45)
    drawn = list[float]()
    for job in trials.jobs():
        drawn.append(float(job.arguments[-2].partition("=")[2]))
        job.folder.mkdir(parents=True, exist_ok=True)
        scores = {"scores": {"stsb/cosine/spearman": -abs(drawn[-1] - 80)}}
        (job.folder / "results.json").write_text(json.dumps(scores), encoding="utf-8")
        trials.record(job, JobResult(job.name, 0, 1.0, 1, ""))
    assert sum(abs(one - 80) for one in drawn[-15:]) / 15 < 34 / 2  # 34 with random draws


@pytest.mark.parametrize("method", ["grid", "random", "bayes"])
def test_an_interruption_while_a_trial_is_drawn_changes_nothing(tmp_path, monkeypatch, method):
    from contrastive_encoders.comparison import study

    lr = {"values": [1, 2]} if method == "grid" else {"min": 0.0, "max": 1.0}
    path = sweep_file(tmp_path, method=method, parameters={"one": {"value": 7}, "a": lr, "b": lr})
    undisturbed = [overrides_of(job) for job in trials_of(path, tmp_path / "undisturbed", trials=3).jobs()]
    write, count = study.write_record, iter(range(99))

    def interrupted(*overrides):
        if next(count) == 1:  # of the second trial
            raise KeyboardInterrupt
        write(*overrides)

    with monkeypatch.context() as patch:
        patch.setattr(study, "write_record", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(trials_of(path, tmp_path / "out", trials=3).jobs())
    assert [overrides_of(job) for job in trials_of(path, tmp_path / "out", trials=3).jobs()] == undisturbed


def test_a_refused_trial_is_tried_once_and_others_keep_weights_alone(tmp_path, fake_train, caplog):
    """A run that was refused has nothing to resume from."""
    output = tmp_path / "out"
    path = sweep_file(tmp_path, parameters={"model.lr": {"values": [1, 2]}, "wrong": {"values": [0, 1]}})
    overrides = [str(path), f"output={output}"]
    assert [run(overrides), run(overrides)] == [1, 0]
    tried = [json.loads(line)["status"] for line in (output / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(tried) == [0, 0, 2, 2]
    assert len([*output.rglob("encoder/model.safetensors")]) == 4  # one run and one stage each
    assert not [*output.rglob("*.ckpt")]
    runs, skipped = collect([str(output / "runs" / "*")])
    assert (len(runs), len(skipped)) == (2, 2)
    assert all("no such key" in one.reason and "continue" not in one.reason for one in skipped)
    shutil.rmtree(skipped[0].path)
    assert run(overrides) == 1  # it is tried again
    assert len((output / "trials.jsonl").read_text(encoding="utf-8").splitlines()) == 5


def test_checkpoints_of_trials_stay_on_request(tmp_path, fake_train):
    overrides = [str(sweep_file(tmp_path)), f"output={tmp_path / 'out'}"]
    assert run([*overrides, "keep_checkpoints=true"]) == 0
    assert len([*tmp_path.rglob("checkpoints/last.ckpt")]) == 6  # three trials
    assert run(overrides) == 0
    assert [*tmp_path.rglob("checkpoints")] == [], "a kill may have left those of a finished trial"
    with pytest.raises(InputError) as refused:
        run([*overrides, "keep_checkpoints=some"])
    assert (refused.value.key, refused.value.value) == ("keep_checkpoints", "some")


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["nofile.yaml"], "FILE", "nofile.yaml"),
        (["sweep=nofile.yaml"], "FILE", None),
        ([str(SWEEPS[0]), "model=a", "model=b"], "model", "b"),
    ],
)
def test_invalid_arguments_of_a_sweep_are_refused(tmp_path, arguments, key, value):
    with pytest.raises(InputError) as refused:
        run([*arguments, f"output={tmp_path / 'out'}"])
    assert (refused.value.key, refused.value.value) == (key, value)
    if key == "FILE":
        assert str(SWEEPS[0].name) in refused.value.hint


def test_an_override_replaces_the_choice_in_the_sweep_file(tmp_path, fake_train):
    assert run([str(sweep_file(tmp_path)), f"output={tmp_path / 'out'}", "model=other", "trials=1"]) == 0
    [results] = (tmp_path / "out" / "runs").glob("*/results.json")
    assert json.loads(results.read_text(encoding="utf-8"))["objective"] == "other"


def test_values_that_were_refused_are_not_drawn_twice(tmp_path, fake_train, caplog):
    caplog.set_level("INFO")
    path = sweep_file(tmp_path, method="random", parameters={"wrong": {"values": ["1"]}})
    overrides = [str(path), f"output={tmp_path / 'out'}", "trials=3"]
    for tries in (1, 2):  # no trial has finished, so the error may be in what all trials share
        with pytest.raises(InputError) as refused:
            run(overrides)
        assert "no such key" in str(refused.value)
        assert "contrastive-encoders compare" not in caplog.text
        assert len((tmp_path / "out" / "trials.jsonl").read_text(encoding="utf-8").splitlines()) == tries


@pytest.mark.parametrize(("left", "continues"), [(".hydra", False), ("metrics.csv", True)])
def test_only_a_run_that_has_trained_is_to_be_continued(tmp_path, left, continues):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / left).touch()
    with pytest.raises(InputError) as refused:
        collect([str(tmp_path / "run")])
    assert str(tmp_path / "run") in str(refused.value)
    assert ("resume" in refused.value.hint) is continues


def test_a_run_without_results_is_not_complete(tmp_path, fake_train, caplog):
    overrides = [str(sweep_file(tmp_path)), f"output={tmp_path / 'out'}", "silent=1"]
    assert run(overrides) == 0
    assert len([record for record in caplog.records if record.levelname == "WARNING" and "scores" in record.msg]) == 3
    assert "contrastive-encoders compare" not in caplog.text
    assert "COMPLETE" not in states(overrides)


def test_a_sweep_without_a_metric_finishes_its_trials(tmp_path, fake_train, caplog):
    caplog.set_level("INFO")
    overrides = [str(sweep_file(tmp_path, metric={})), f"output={tmp_path / 'out'}"]
    assert [run(overrides), run(overrides)] == [0, 0]
    assert (3, 3) in [record.args[:2] for record in caplog.records if isinstance(record.args, tuple)]
    assert {attempts(folder) for folder in (tmp_path / "out" / "runs").iterdir()} == {1}


@pytest.mark.parametrize("method", ["grid", "bayes"])
def test_a_metric_that_no_trial_has_is_refused_after_the_first_trial(method, tmp_path, fake_train):
    """With the right name, the same command continues with that trial."""
    output = f"output={tmp_path / 'out'}"
    for _ in range(2):
        with pytest.raises(InputError) as refused:
            run([str(sweep_file(tmp_path, metric={"name": "stsb/cosine/spearmn"}, method=method)), output, "trials=3"])
        assert (refused.value.key, refused.value.value) == ("metric.name", "stsb/cosine/spearmn")
        assert "stsb/cosine/spearman." in refused.value.hint
        assert len([*(tmp_path / "out" / "runs").iterdir()]) == 1
    assert run([str(sweep_file(tmp_path, method=method)), output, "trials=3"]) == 0
    assert {attempts(folder) for folder in (tmp_path / "out" / "runs").iterdir()} == {1}


def test_values_with_words_of_their_own_are_trials_of_their_own(tmp_path):
    """Python and Optuna treat 1, True and 1.0 as equal; train.py does not."""
    path = sweep_file(tmp_path, parameters={"x": {"values": [1, True, 1.0]}})
    for _ in range(2):
        assert [overrides_of(job)[-1] for job in trials_of(path, tmp_path / "out").jobs()] == ["x=1", "x=True", "x=1.0"]


def test_a_damaged_record_is_refused(tmp_path):
    path = sweep_file(tmp_path)
    list(trials_of(path, tmp_path).jobs())
    record = tmp_path / "sweep.json"
    record.write_bytes(record.read_bytes()[:20])
    with pytest.raises(InputError) as refused:
        run([str(path), f"output={tmp_path}"])
    assert refused.value.location == str(record)


def test_a_failure_is_retried_once_and_recorded(tmp_path, fake_train):
    once, twice = (Job(name, [f"fails={fails}"], tmp_path / name) for name, fails in (("once", "0"), ("twice", "0,1")))
    wrong = Job("wrong", ["wrong=1"], tmp_path / "wrong")
    done = {one.name: one for one in run_all([once, twice, wrong], tmp_path)}
    assert (done["once"].status, done["once"].attempts) == (0, 2)
    assert (done["twice"].status, done["twice"].attempts) == (1, 2)
    assert (done["wrong"].status, done["wrong"].attempts) == (2, 1)
    assert "no such key" in done["wrong"].output_tail
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["status"] for line in lines] == [0, 1, 2]


def test_an_interruption_ends_it_and_the_same_command_goes_on(tmp_path, fake_train):
    jobs = [Job(str(place), ["stops=0"] if place == 1 else [], tmp_path / str(place)) for place in range(3)]
    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, tmp_path)
    assert not (tmp_path / "2").exists()
    assert all(one.finished for one in run_all(jobs, tmp_path))
    assert [attempts(tmp_path / str(place)) for place in range(3)] == [1, 2, 1]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"steps": 70}, {"a": 70, "b": 70}),
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
            results = results_of(tmp_path / "out", f"{label}-seed{seed}")
            assert results["cost"]["steps"] == wanted
            assert ("max_time" in results["recipe"]) == ("seconds" in budget)
    labels = json.loads((tmp_path / "out" / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert labels["b-seed2"] == "b"
    more = plan({"arms": {"a": ["each=8"], "b": ["each=16"]}, "seeds": [3]}, budget, None, tmp_path / "out")
    train_all(more, tmp_path / "out")
    labels = json.loads((tmp_path / "out" / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert (labels["b-seed2"], labels["b-seed3"]) == ("b", "b")
    train_all(plan({"arms": {"c": ["each=8"]}, "seeds": [1]}, budget, None, tmp_path / "out"), tmp_path / "out")
    labels = json.loads((tmp_path / "out" / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert (labels["b-seed3"], labels["c-seed1"]) == ("b", "c")
    with pytest.raises(InputError) as refused:
        plan({"arms": {"a": []}, "seeds": [1]}, budget, None, tmp_path / "out")
    assert is_another_race(refused.value, tmp_path / "out", "arms.a", "each=8")


@pytest.mark.parametrize("budget", [{"tokens": 8000}, {"examples": 800}, {"seconds": 60}], ids=str)
def test_an_arm_of_two_stages_has_the_budget_of_one(tmp_path, fake_train, budget):
    """``max_steps`` applies to each stage; the account in results.json covers both."""
    race = plan({"arms": {"a": ["each=8"], "b": ["each=8", "stages=open,nli"]}, "seeds": [1]}, budget, None, tmp_path)
    assert train_all(race, tmp_path) == []
    spent = {label: results_of(tmp_path, f"{label}-seed1")["cost"] for label in ("a", "b")}
    kind, amount = next(iter(budget.items()))
    name = {"tokens": "real_tokens", "seconds": "wall_seconds"}.get(kind, kind)
    assert spent["b"][name] == amount
    assert kind == "seconds" or spent["a"][name] == amount  # the clock of the fake differs from its account


def chosen(race: Race, output: Path, values: dict, score: str = "stsb/cosine/spearman") -> tuple[Race, list[JobResult]]:
    with open_workers(output) as pool:
        return choose(HyperparameterChoice("model.lr", values, score, ["of=choice"]), race, output, pool)


def test_each_arm_keeps_the_value_that_scores_best(tmp_path, fake_train):
    """The score is 50 plus the learning rate; each rate is trained once, for the race's number of steps."""
    arms = {"a": ["each=8"], "b": ["each=16"], "c": ["each=8", "wrong=1"]}
    race = plan({"arms": arms, "seeds": [4, 5]}, {"steps": 6}, None, tmp_path)
    race, failed = chosen(race, tmp_path, {"a": [1, 3, 2], "b": [0.5, 0.25], "c": [1]})
    assert race.arms == {"a": ["each=8", "model.lr=3"], "b": ["each=16", "model.lr=0.5"]}
    assert [done.name for done in failed] == ["c model.lr=1"]
    record = json.loads((tmp_path / "selected_hyperparameters.json").read_text(encoding="utf-8"))
    assert record["values"]["a"] == {"1": 51.0, "3": 53.0, "2": 52.0}
    results = json.loads((tmp_path / "selection" / "a-2" / "results.json").read_text(encoding="utf-8"))
    assert {key: results["recipe"][key] for key in ("max_steps", "seed", "of")} == {
        "max_steps": "6",
        "seed": "4",
        "of": "choice",
    }
    chosen(
        plan({"arms": arms, "seeds": [4]}, {"steps": 6}, None, tmp_path),
        tmp_path,
        {"a": [1, 3, 2], "b": [0.5], "c": [1]},
    )
    assert attempts(tmp_path / "selection" / "a-3") == 1
    with pytest.raises(InputError) as refused:  # only the runs for choosing exist
        plan({"arms": arms, "seeds": [4]}, {"steps": 7}, None, tmp_path)
    assert is_another_race(refused.value, tmp_path, "budget", "7")


def test_an_arm_that_was_trained_with_a_value_keeps_it(tmp_path, fake_train):
    """A run that failed when the value was chosen may be better later."""
    race = plan({"arms": {"a": ["each=8"]}, "seeds": [4]}, {"steps": 6}, None, tmp_path)
    first, _ = chosen(race, tmp_path, {"a": [1, 2]})
    (tmp_path / "runs" / "a-seed4").mkdir(parents=True)
    again, _ = chosen(race, tmp_path, {"a": [1, 2, 3]})
    assert first.arms == again.arms == {"a": ["each=8", "model.lr=2"]}


def test_data_that_is_prepared_otherwise_is_of_another_race(tmp_path, fake_train):
    race = {"arms": {"a": ["each=8"]}, "seeds": [4], "prepare": {"made": ["recipe=queries", "held_out_fraction=0.2"]}}
    plan(race, {"steps": 6}, None, tmp_path)
    other = race | {"prepare": {"made": ["recipe=queries", "held_out_fraction=0.4"]}}
    plan(other, {"steps": 6}, None, tmp_path)  # nothing is trained yet
    with open_workers(tmp_path) as pool:
        train_race(plan(other, {"steps": 6}, None, tmp_path), tmp_path, pool, quiet=True)
    with pytest.raises(InputError) as refused:
        plan(race, {"steps": 6}, None, tmp_path)
    assert is_another_race(refused.value, tmp_path, "prepare.made", "held_out_fraction")


def test_an_invalid_selection_is_refused(tmp_path, fake_train):
    race = plan({"arms": {"a": []}, "seeds": [1]}, {"steps": 6}, None, tmp_path)
    with pytest.raises(InputError) as refused:
        chosen(race, tmp_path, {"a": [1]}, "of/none")
    assert (refused.value.key, refused.value.value) == ("choose.score", "of/none")
    assert f"{tmp_path / 'selection' / 'a-1'} (stsb/" in refused.value.expected
    wrong = plan({"arms": {"a": ["wrong=1"]}, "seeds": [1]}, {"steps": 6}, None, tmp_path / "wrong")
    with pytest.raises(InputError) as refused:
        chosen(wrong, tmp_path / "wrong", {"a": [1]})
    assert (refused.value.location, refused.value.hint) == ("race", "a model.lr=1: no such key")
    with pytest.raises(InputError) as refused:
        selection_of({"arms": {"a": []}, "choose": {"key": "model.lr", "values": {}, "score": "x"}}, "race=r")
    assert (refused.value.location, refused.value.key) == ("race=r", "choose.values")
    with pytest.raises(InputError) as refused:
        selection_of({"arms": {"a": []}, "choose": {"key": "model.lr"}}, "race=r")
    assert (refused.value.key, refused.value.value) == ("choose", {"key": "model.lr"})


def test_the_clock_of_a_race_is_shared_out_among_stages(tmp_path, fake_train):
    """One ``max_time`` for all would let each stage run for the entire budget."""
    race = plan({"arms": {"b": ["stages=open,nli"]}, "seeds": [1]}, {"seconds": 90}, None, tmp_path)
    assert train_all(race, tmp_path) == []
    recipe = results_of(tmp_path, "b-seed1")["recipe"]
    clocks = {key: value for key, value in recipe.items() if key.endswith("max_time")}
    assert clocks == {"stages.open.max_time": "'00:00:00:30'", "stages.nli.max_time": "'00:00:01:00'"}  # as 1 to 2


@pytest.mark.parametrize(
    ("race", "budget", "key", "value"),
    [
        ({"arms": {}}, {"seconds": 1}, "race.arms", {}),
        ({"arms": {"a": []}, "seeds": [1]}, {"hours": 1}, "budget", {"hours": 1}),
        ({"arms": {"a": []}, "seeds": [1]}, {"seconds": 1, "tokens": 2}, "budget", {"seconds": 1, "tokens": 2}),
        ({"arms": {"a": []}, "seeds": [1]}, 100, "budget", 100),
        ({"arms": {"a": []}, "seeds": []}, {"seconds": 1}, "seeds", []),
        ({"arms": {"a": []}, "seeds": 5}, {"seconds": 1}, "seeds", 5),
        ({"arms": {"a": []}, "seeds": ["a"]}, {"seconds": 1}, "seeds", ["a"]),
        ({"arms": {"a": []}, "seeds": "???"}, {"seconds": 1}, "seeds", "???"),
    ],
)
def test_an_invalid_race_is_refused(tmp_path, race, budget, key, value):
    with pytest.raises(InputError) as refused:
        plan(race, budget, None, tmp_path)
    assert (refused.value.key, refused.value.value) == (key, value)


def test_a_failed_run_says_its_last_lines_without_what_a_bar_was_before():
    say, bar = "contrastive-encoders train: ", "".join(f"\rreading: {share} %" for share in range(100))
    written = f"1\n2\r\n{bar}\n{say}data: no such file.\nTwo lines explain it."
    assert processes.last_lines(written, True) == "data: no such file.\nTwo lines explain it."
    assert processes.last_lines(written, False).splitlines()[:3] == ["1", "2", "reading: 99 %"]
    assert processes.last_lines(f"{bar}{say}done", True) == "done"
    for path in (f"first\n{say}bad (see {say}other)", f"{say}bad (see {say}other)"):
        assert processes.last_lines(path, True) == f"bad (see {say}other)"
    assert processes.last_lines(f"{bar}\nKilled\n", True) == "reading: 99 %\nKilled"


@pytest.mark.parametrize("overrides", [["parallel=0"], ["parallel=-1"], ["cluster=ray", "parallel=0"]])
def test_a_race_without_workers_is_refused(tmp_path, overrides):
    with pytest.raises(InputError) as refused:
        run_here("compare", compare_command, ("race=head_to_head", f"output={tmp_path / 'out'}", *overrides))
    assert "parallel" in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [True, False])
def test_checkpoints_of_finished_runs_can_go(tmp_path, fake_train, keep):
    race = plan({"arms": {"a": [], "b": ["fails=0,1"]}, "seeds": [1]}, {"tokens": 800}, None, tmp_path)
    with pytest.raises(PilotFailedError, match=r"race\.arms\.b(.|\n)*it broke"):
        train_all(race, tmp_path, keep_checkpoints=keep)
    assert [*(tmp_path / "pilots").rglob("results.json")]
    assert not [*(tmp_path / "pilots").rglob("*.ckpt"), *(tmp_path / "pilots").rglob("encoder")]
    race = plan({"arms": {"a": []}, "seeds": [1]}, {"tokens": 800}, None, tmp_path)
    assert train_all(race, tmp_path, keep_checkpoints=keep) == []
    left = sorted(str(path.relative_to(tmp_path / "runs" / "a-seed1")) for path in tmp_path.rglob("*.ckpt"))
    assert left == (["checkpoints/last.ckpt", "stage-open/checkpoints/last.ckpt"] if keep else [])
    assert (tmp_path / "runs" / "a-seed1" / "results.json").exists()
    assert train_all(race, tmp_path, keep_checkpoints=False) == []  # it was finished earlier
    assert not [*tmp_path.rglob("*.ckpt")]
    assert len([*(tmp_path / "runs" / "a-seed1").rglob("encoder/model.safetensors")]) == 2


def test_the_untrained_encoder_of_words_that_were_corrected_is_scored_again(tmp_path):
    def planned(size):
        plan({"arms": {"a": [f"backbone.size={size}"]}, "seeds": [1]}, {"tokens": 800}, None, tmp_path)

    scored = tmp_path / "runs" / "untrained-seed1"
    planned(32)
    scored.mkdir(parents=True)
    planned(32)
    assert scored.exists()
    planned(64)
    assert not scored.exists()
    scored.mkdir()
    (tmp_path / "pilots" / "a" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError) as refused:
        planned(32)
    assert is_another_race(refused.value, tmp_path, "arms.a", "64")
    assert scored.exists()


@pytest.mark.parametrize(("backbone", "seeds"), [("tiny", {1, 2}), ("encoder", {1})])
def test_random_weights_are_scored_for_each_seed(tmp_path, fake_train, backbone, seeds):
    race = plan({"arms": {"a": [f"backbone={backbone}"]}, "seeds": [1, 2]}, {"steps": 8}, None, tmp_path)
    assert train_all(race, tmp_path, untrained=True) == []
    labels = json.loads((tmp_path / "runs" / "labels.json").read_text(encoding="utf-8"))
    assert {labels[path.parent.name] for path in (tmp_path / "runs").glob("untrained-*/results.json")} == {"untrained"}
    runs, _ = collect([str(tmp_path / "runs" / "*")])
    assert {run.seed for run in runs if run.path.name.startswith("untrained")} == seeds
    assert {run.seed for run in runs if run.path.name.startswith("a-")} == {1, 2}


def test_an_unscorable_encoder_is_refused_before_any_pilot(tmp_path, fake_train):
    race = plan({"arms": {"a": ["wrong=1"], "b": []}, "seeds": [1]}, {"tokens": 800}, None, tmp_path)
    with pytest.raises(InputError) as refused:
        train_all(race, tmp_path, untrained=True)
    assert (refused.value.key, refused.value.value, refused.value.hint) == ("race.arms.a", None, "no such key")
    assert not (tmp_path / "pilots").exists()


def test_a_race_without_a_task_is_refused_before_any_pilot(tmp_path, fake_train):
    race = plan({"arms": {"a": ["unscored=1"], "b": []}, "seeds": [1]}, {"tokens": 800}, None, tmp_path)
    with pytest.raises(InputError) as refused:
        train_all(race, tmp_path, untrained=True)
    assert (refused.value.key, refused.value.value) == ("race.data_root", None)
    assert not (tmp_path / "pilots").exists()


def test_a_race_that_was_refused_can_be_mended_where_nothing_of_it_was_trained(tmp_path, fake_train):
    first = plan({"arms": {"a": ["each=8"], "b": ["wrong=1"]}, "seeds": [1]}, {"steps": 5}, None, tmp_path)
    assert [done.name for done in train_all(first, tmp_path)] == ["b-seed1"]
    refused = plan({"arms": {"c": ["wrong=1"]}, "seeds": [1]}, {"tokens": 500}, None, tmp_path / "other")
    with pytest.raises(InputError) as raised:
        train_all(refused, tmp_path / "other")
    assert (raised.value.key, raised.value.hint) == ("race.arms.c", "no such key")
    with pytest.raises(InputError) as raised:
        plan({"arms": {"b": ["each=8"]}, "seeds": [1]}, {"steps": 6}, None, tmp_path)
    assert is_another_race(raised.value, tmp_path, "budget", "6")
    with pytest.raises(InputError) as raised:
        plan({"arms": {"a": ["each=9"]}, "seeds": [1]}, {"steps": 5}, None, tmp_path)
    assert is_another_race(raised.value, tmp_path, "arms.a", "each=9")
    staged = tmp_path / "third"  # a run of stages that ended in its second stage
    plan({"arms": {"d": []}, "seeds": [1]}, {"steps": 5}, None, staged)
    (staged / "runs" / "d-seed1" / "stage-open" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError) as raised:
        plan({"arms": {"d": []}, "seeds": [1]}, {"steps": 6}, None, staged)
    assert is_another_race(raised.value, staged, "budget", "6")
    for output, label in ((tmp_path, "b"), (tmp_path / "other", "c")):
        mended = plan({"arms": {label: ["each=8"]}, "seeds": [1]}, {"steps": 5}, None, output)
        assert train_all(mended, output) == []


def test_an_empty_list_of_seeds_does_not_mean_those_of_the_config(tmp_path):
    with pytest.raises(InputError) as refused:
        plan({"arms": {"a": []}, "seeds": [1, 2]}, {"steps": 5}, [], tmp_path)
    assert (refused.value.key, refused.value.value) == ("seeds", [])


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"method": "annealing"}, "method"),
        ({"command": ["${program}"]}, "command"),
        ({"parameters": {"lr": {"min": 0.1, "max": 1.0}}}, "parameters.lr"),
        ({"method": "random", "parameters": {"high": {"min": 1.0, "max": 0.1}}}, "parameters.high"),
        ({"metric": "stsb"}, "metric"),
        ({"metric": None, "method": "bayes"}, "metric.name"),
        ({"run_cap": "3"}, "run_cap"),
        ({"run_cap": -2}, "run_cap"),
        ({"early_terminate": {"type": "median"}}, "early_terminate"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 0}}, "early_terminate"),
    ],
)
def test_an_invalid_sweep_file_is_refused(tmp_path, change, key):
    path = sweep_file(tmp_path, **change)
    with pytest.raises(InputError) as refused:
        read_sweep(path).distributions()
    values = {"metric.name": None, "parameters.lr": {"min": 0.1, "max": 1.0}}
    values["parameters.high"] = {"min": 1.0, "max": 0.1}
    assert (refused.value.location, refused.value.key) == (str(path), key)
    assert refused.value.value == values.get(key, change.get(key))


@pytest.mark.slow
def test_races_compose():
    for path in (ROOT / "configs" / "race").glob("*.yaml"):
        cfg = compose_config("compare", [f"race={path.stem}", "race.texts=texts"])
        if OmegaConf.is_missing(cfg.race, "data_root"):
            with pytest.raises(InputError) as refused:
                plain(cfg.race)
            assert (refused.value.key, refused.value.value) == ("race.data_root", None)
            cfg.race.data_root = None
        race = plain(cfg.race)
        for overrides in race["arms"].values():
            for training in resolve(compose_run([*map(str, race["common"]), *map(str, overrides)])).trainings:
                check_model_and_data(training)
                check_values(training)
                check_lengths(training)
                assert training.evaluation.data_root is None


def test_a_race_logs_each_start_with_its_number(tmp_path, fake_train, caplog):
    caplog.set_level("INFO")
    budget = {"steps": 3}
    train_all(plan({"arms": {"a": ["each=8"]}, "seeds": [1]}, budget, None, tmp_path), tmp_path)
    caplog.clear()
    arms = {"a": ["each=8"], "b": ["each=8"]}
    train_all(plan({"arms": arms, "seeds": [1, 2]}, budget, None, tmp_path), tmp_path)
    starts = [record.getMessage() for record in caplog.records if record.getMessage().startswith("run ")]
    # a-seed1 exists already; the remaining time is known after the first run
    assert [line.partition(",")[0] for line in starts] == [
        "run 1 of 3: b-seed1",
        "run 2 of 3: a-seed2",
        "run 3 of 3: b-seed2",
    ]
    assert ["left" in line for line in starts] == [False, True, True]
