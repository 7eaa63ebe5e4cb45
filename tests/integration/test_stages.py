"""Runs in stages: outputs, resuming after a kill, and refusals before the first stage trains."""

import gzip
import json
import os
import random
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import torch

from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.collect import read_run
from contrastive_encoders.comparison.training_curves import curves_of
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.results import read_results
from tests.forks import TRAIN, run_command
from tests.guide import GUIDE, commands_of
from tests.integration.curves import reached
from tests.variations import slow_after

ROOT = Path(__file__).resolve().parents[2]
NOUNS = "ferry harbour violin bread comet orchard telescope spoon market clock river glass".split()
SIZES = ["vocab_size=400", "hidden_size=32", "layers=1", "heads=2", "intermediate_size=64", "max_length=64"]
TINY = ["backbone=tiny", *(f"tiny.{size}" for size in SIZES)]
KEPT = ["log_every_n_steps=1", "checkpoint.every_n_steps=2", "model.lr=0.003"]
COLUMNS = {
    "sentences": ("text",),
    "triplets": ("anchor", "positive", "negative"),
    "nli": ("premise", "hypothesis"),
    "qa": ("question", "answer"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, columns in COLUMNS.items():
        rng = random.Random(name)
        rows = [
            {column: f"A {rng.choice(NOUNS)} by the {rng.choice(NOUNS)}, {number}." for column in columns}
            | ({"label": number % 3} if name == "nli" else {})
            for number in range(44)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def overrides(tables):
    """Return the arguments of two stages of one model, with dropout, and stage-specific keys."""
    return [
        "model=simcse",
        *TINY,
        *KEPT,
        "batch_size=8",
        "+stages.first.data=sentences",
        f"stages.first.data.path={tables}/sentences.jsonl",
        "stages.first.max_steps=5",
        "+stages.second.data=triplets",
        f"stages.second.data.path={tables}/triplets.jsonl",
        "stages.second.data.fraction=0.5",
        "stages.second.max_steps=6",
        "stages.second.batch_size=10",
        "stages.second.model.temperature=0.1",
    ]


@pytest.fixture(scope="module")
def reference(overrides, train):
    folder, outcome = train(*overrides)
    assert "stage second " in outcome.err
    assert outcome.err.count("evaluation.data_root") == 1, outcome.err  # of two stages, one rehearsed
    return folder


def saved(folder, name="best"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


@pytest.mark.rotates
def test_each_stage_leaves_a_run_and_the_whole_is_the_last_with_the_cost_of_all(reference):
    first, second = (read_results(reference / f"stage-{name}" / "results.json") for name in ("first", "second"))
    results = read_results(reference / "results.json")
    for name in ("first", "second"):
        there = {path.name for path in (reference / f"stage-{name}").iterdir()}
        assert there >= {".hydra", "metrics.csv", "checkpoints", "results.json", "encoder"}
    assert (first["cost"]["steps"], second["cost"]["steps"]) == (5, 6)
    assert (first["cost"]["examples"], second["cost"]["examples"]) == (5 * 8, 6 * 10)
    assert results["cost"]["steps"] == 11
    assert results["cost"]["examples"] == 5 * 8 + 6 * 10
    assert results["cost"]["wall_seconds"] == first["cost"]["wall_seconds"] + second["cost"]["wall_seconds"]
    accounts = results["stages"]
    assert sorted(accounts, key=lambda name: accounts[name]["place"]) == ["first", "second"]
    assert [accounts[name]["cost"] for name in ("first", "second")] == [first["cost"], second["cost"]]
    assert accounts["second"]["backbone"] == str(reference / "stage-first")
    assert [manifest["used"] for manifest in results["data"]] == [44, 22]  # the second with fraction=0.5
    assert second["recipe"]["model"]["temperature"] == 0.1
    assert (first["recipe"]["model"]["temperature"], first["recipe"]["batch_size"]) == (0.05, 8)


def test_a_comparison_draws_the_stages_one_after_another(reference):
    [shown] = curves_of(arms_of([read_run(reference)]))
    first, second = (reference / f"stage-{name}" for name in ("first", "second"))
    one, two = (
        [(int(row["step"]), float(row["train/loss"])) for row in read_rows(stage / "metrics.csv")]
        for stage in (first, second)
    )
    assert list(zip(*shown.lines["train/loss"], strict=True)) == [*one, *((step + 5, loss) for step, loss in two)]
    spent = [read_results(stage / "results.json")["cost"] for stage in (first, second)]
    tokens = [one["real_tokens"] for one in spent]
    assert shown.others["real tokens"] == ([0, 5, 11], [0, tokens[0], sum(tokens)])
    last = float(read_rows(second / "metrics.csv")[-1]["time/elapsed_s"])
    assert shown.others["seconds of training"][1][-1] == pytest.approx(spent[0]["wall_seconds"] + last)


def test_the_encoder_and_the_checkpoint_of_a_run_are_those_of_its_last_stage(reference):
    last = reference / "stage-second"
    assert (reference / "encoder/model.safetensors").read_bytes() == (last / "encoder/model.safetensors").read_bytes()
    assert torch.equal(load_encoder(reference).embed(NOUNS), load_encoder(last).embed(NOUNS))
    assert (reference / "checkpoints/best.ckpt").read_bytes() == (last / "checkpoints/best.ckpt").read_bytes()


def test_the_tokenizer_is_made_once_of_the_texts_of_all_stages(reference):
    tokenizers = [reference / place / "tokenizer.json" for place in ("backbone", "stage-first/encoder", "encoder")]
    vocabularies = [json.loads(path.read_text())["model"]["vocab"] for path in tokenizers]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    assert not (reference / "stage-first/backbone").exists()


def test_only_the_last_stage_can_be_resumed_when_all_are_finished(reference):
    names = {str(path.relative_to(reference)) for path in reference.glob("**/*.ckpt")}
    of_last = {"stage-second/checkpoints/last.ckpt", "stage-second/checkpoints/best.ckpt"}
    assert names == {*of_last, "stage-first/checkpoints/best.ckpt", "checkpoints/best.ckpt"}
    first = torch.load(reference / "stage-first/checkpoints/best.ckpt", weights_only=True)
    assert "optimizer_states" not in first


def test_stages_equal_consecutive_runs(tables, overrides, command, tmp_path):
    """There is no MLP, which ``backbone=RUN_FOLDER`` would initialize again."""
    common = [*TINY, *KEPT, "model=simcse", "model.mlp=false"]
    staged = command(*overrides, "model.mlp=false", f"output_dir={tmp_path / 'staged'}")
    assert staged.status == 0, staged.err
    one = ["data=sentences", f"data.path={tables}/sentences.jsonl", "batch_size=8", "max_steps=5"]
    tiny = f"backbone={tmp_path / 'staged/backbone'}"
    outcome = command(*common, *one, tiny, f"output_dir={tmp_path / 'one'}")
    assert outcome.status == 0, outcome.err
    two = ["data=triplets", f"data.path={tables}/triplets.jsonl", "batch_size=10", "max_steps=6", "data.fraction=0.5"]
    two += ["model.temperature=0.1", f"backbone={tmp_path / 'one'}"]
    outcome = command(*common, *two, f"output_dir={tmp_path / 'two'}")
    assert outcome.status == 0, outcome.err
    for stage, run in (("first", "one"), ("second", "two")):
        ours, theirs = saved(tmp_path / "staged" / f"stage-{stage}"), saved(tmp_path / run)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.rotates
def test_a_run_killed_in_its_second_stage_resumes_there(overrides, reference, start, command, tmp_path):
    folder = tmp_path / "run"
    run = start(*overrides, f"output_dir={folder}")
    run.wait_for(lambda: reached(folder / "stage-second", 3))
    run.kill(signal.SIGKILL)
    assert run.finish().status == -signal.SIGKILL
    assert (folder / "stage-first/results.json").is_file()
    assert not (folder / "stage-second/results.json").exists()
    first = (folder / "stage-first/results.json").stat().st_mtime_ns
    outcome = command(*overrides, f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    assert (folder / "stage-first/results.json").stat().st_mtime_ns == first
    for stage in ("first", "second"):
        ours, theirs = saved(folder / f"stage-{stage}"), saved(reference / f"stage-{stage}")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        losses = [
            [row["train/loss"] for row in read_rows(one / f"stage-{stage}/metrics.csv")] for one in (folder, reference)
        ]
        assert losses[0] == losses[1]
    assert (folder / "encoder/model.safetensors").read_bytes() == (reference / "encoder/model.safetensors").read_bytes()
    assert read_results(folder / "results.json")["cost"]["steps"] == 11


def test_finished_stages_are_skipped(overrides, reference, command, tmp_path):
    folder = shutil.copytree(reference, tmp_path / "run")
    again = command(*overrides, f"output_dir={folder}")
    assert (again.status, again.err.count("overwrite=true")) == (0, 1)
    (folder / "results.json").unlink()
    shutil.rmtree(folder / "encoder")
    again = command(*overrides, f"output_dir={folder}")
    assert (again.status, again.err.count("overwrite=true")) == (0, 2)
    assert read_results(folder / "results.json")["cost"]["steps"] == 11
    assert (folder / "encoder/modules.json").is_file()


@pytest.mark.rotates
def test_a_single_stage_is_trained(overrides, reference, command, tmp_path):
    """It starts from the last finished stage before it, or from the backbone; either way it is the same stage."""
    alone = tmp_path / "alone"
    outcome = command(*overrides, "only_stage=second", f"output_dir={alone}")
    assert outcome.status == 0, outcome.err
    assert re.search(f"stage second .*backbone={alone / 'backbone'}", outcome.err)
    assert read_results(alone / "stage-second/results.json")["backbone"] == str(alone / "backbone")
    assert not (alone / "stage-first").exists()
    assert not (alone / "results.json").exists()
    refused = command(*overrides, f"output_dir={alone}")
    assert refused.status == 2
    assert f"backbone={alone / 'backbone'}, not {alone / 'stage-first'}" in refused.err

    behind = shutil.copytree(
        reference, tmp_path / "behind", ignore=shutil.ignore_patterns("stage-second", "results.json")
    )
    shutil.copy(reference / "stage-first/results.json", behind / "stage-first")
    assert command(*overrides, "only_stage=first", f"output_dir={behind}").status == 0
    assert not (behind / "results.json").exists()
    outcome = command(*overrides, "only_stage=second", f"output_dir={behind}")
    assert outcome.status == 0, outcome.err
    ours, theirs = saved(behind / "stage-second"), saved(reference / "stage-second")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert read_results(behind / "results.json")["cost"]["steps"] == 11
    refused = command(*overrides, "only_stage=first", "overwrite=true", f"output_dir={behind}")
    assert refused.status == 2
    assert "overwrite=true: " in refused.err


@pytest.mark.rotates
def test_a_stage_may_have_another_model(overrides, tables, command, tmp_path):
    folder = tmp_path / "run"
    third = ["+stages.third.data=nli", f"stages.third.data.path={tables}/nli.jsonl", "stages.third.model=sbert_nli"]
    kept = [override for override in overrides if "temperature" not in override]
    outcome = command(*kept, *third, "stages.third.max_steps=2", f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    assert "initialized" in outcome.err
    results = read_results(folder / "results.json")
    assert [results["stages"][name]["objective"] for name in ("first", "second", "third")] == [
        "simcse",
        "simcse",
        "sbert_nli",
    ]
    assert results["objective"] == "sbert_nli"
    assert results["cost"]["steps"] == 13


BAD = [
    (["stages={second: x}"], ["stages.second=x: "]),
    (["stages.secnd.max_steps=3"], ["stages.secnd.max_steps=3: ", " second."]),
    (["stages.second.max_stepz=3"], ["stages.second.max_stepz", " stages.second.max_steps"]),
    (["stages.second.data.fracton=0.1"], ["stage second", "data.fracton", " data.fraction"]),
    (["stages.second.data=triples"], ["stages.second", "data=triples: ", " triplets."]),
    (["stages.second.data.path=nowhere.jsonl"], ["stage second", "nowhere.jsonl"]),
    (["stages.second.batch_size=1000"], ["stage second", "1000", "22"]),
    (["stages.second.batch_size=many"], ["stage second", "batch_size=many: ", "integer"]),
    (["stages.second.model.pooling=middle"], ["stage second", "middle"]),
    (["stages.second.model.lr_schedule=lineal"], ["stage second", "lr_schedule=lineal", "linear_constant"]),
    (["stages.second.model.lr=-1"], ["stage second", "model.lr=-1: ", "0"]),
    (["stages.second.model.warmup_ratio=2"], ["stage second", "model.warmup_ratio=2", "0 to 1"]),
    (["stages.second.data=nli"], ["stage second", "data=nli", "model=simcse", "sentences"]),
    (["stages.second.monitor=stsb-dev/cosine/spearman"], ["stage second", "evaluation.every_n_steps"]),
    (["stages.second.backbone=tiny"], ["stages.second.backbone: "]),
    (["stages.second.output_dir=x"], ["stages.second.output_dir: "]),
    (["only_stage=third"], ["only_stage=third: ", "first, second"]),
    (["resume=last.ckpt"], ["resume=last.ckpt: ", "auto", "null"]),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("more", "said"), BAD, ids=lambda one: " ".join(one))
def test_a_wrong_key_of_a_later_stage_is_refused_before_training(more, said, overrides, command, tmp_path):
    folder = tmp_path / "run"
    choices = [f"+{one}" for one in more if one.startswith("stages.second.data=")]
    rest = [override for override in overrides if not choices or override != "+stages.second.data=triplets"]
    place = overrides.index("+stages.second.data=triplets")
    outcome = command(*rest[:place], *choices, *rest[place:], *([] if choices else more), f"output_dir={folder}")
    assert outcome.status == 2, outcome.err
    last = outcome.err.strip().splitlines()[-1]
    assert all(part in last for part in said), last
    assert "Traceback" not in outcome.err
    assert not (folder / "stage-first/metrics.csv").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["stages.second.model.hard_negative_weight=1"], ["stage second", "hard_negative_weight=1"]),
        (
            ["stages.first.model.pooling=mean", "stages.second.model.pooling=first_decoder"],
            ["stages.second", "first_decoder", "stages.first.model.pooling=first_decoder"],
        ),
    ],
)
def test_a_later_stage_of_gense_without_its_inputs_is_refused_before_training(more, said, tables, command, tmp_path):
    stages = [
        override
        for name, data in (("first", "triplets"), ("second", "qa"))
        for override in (f"+stages.{name}.data={data}", f"stages.{name}.data.path={tables}/{data}.jsonl")
    ]
    prompt = 'model.prompt_suffix=" It is:"'
    outcome = command("model=gense", *TINY, *KEPT, *stages, prompt, "batch_size=8", *more, f"output_dir={tmp_path}/run")
    assert outcome.status == 2, outcome.err
    assert all(part in outcome.err.strip().splitlines()[-1] for part in said), outcome.err
    assert not (tmp_path / "run/stage-first/metrics.csv").exists()


@pytest.fixture
def two_stages(tables, corpus_file, command, tmp_path):
    """Train a stage of sentences or spans, and then one of spans."""
    of = {
        "sentences": ["model=simcse", "data=sentences", f"data.path={tables}/sentences.jsonl"],
        "spans": ["model=declutr", "data=text", f"data.path={corpus_file}", "data.min_span=4", "data.max_span=16"],
    }

    def train(first, *more):
        stages = [
            *(f"+stages.first.{override}" for override in of[first]),
            *(f"+stages.second.{override}" for override in of["spans"]),
        ]
        return command(*of[first], *TINY, "batch_size=6", "max_steps=1", f"output_dir={tmp_path}/run", *stages, *more)

    return train


@pytest.mark.parametrize("asked", ["model.mlm_weight=1", "model.contrastive_weight=0"])
def test_mlm_after_a_stage_without_a_head_is_refused_before_training(asked, two_stages, tmp_path):
    outcome = two_stages("sentences", f"stages.second.{asked}")
    assert outcome.status == 2, outcome.err
    last = outcome.err.strip().splitlines()[-1]
    for part in ("stages.second.model.mlm_weight=1: ", "stage first is trained without", "mlm_weight=0"):
        assert part in last
    assert not (tmp_path / "run/stage-first").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [["sentences"], ["sentences", "stages.second.model.mlm_weight=0"], ["spans"]], ids=" ".join
)
def test_stages_without_mlm_and_mlm_after_mlm_are_trained(overrides, two_stages):
    assert two_stages(*overrides).status == 0


def test_only_stage_is_refused_without_stages(tables, command, tmp_path):
    plain = ["model=simcse", "data=sentences", f"data.path={tables}/sentences.jsonl", f"output_dir={tmp_path / 'run'}"]
    outcome = command(*plain, "only_stage=nli")
    assert outcome.status == 2
    assert "only_stage=nli: " in outcome.err
    outcome = command(*plain, "stages.nli.max_steps=3")
    assert outcome.status == 2
    assert "stages.nli.max_steps=3: " in outcome.err


def test_the_folder_of_other_stages_is_refused(overrides, reference, command):
    outcome = command(*overrides, "stages.first.max_steps=4", f"output_dir={reference}")
    assert outcome.status == 2
    assert "stages.first.max_steps=" in outcome.err
    assert ", not 4" in outcome.err
    assert (reference / "results.json").is_file()


@pytest.mark.slow  # two processes
@pytest.mark.parametrize("launcher", ["torchrun", "lightning"])
def test_two_processes_train_the_stages_of_one(launcher, overrides, tables, command, tmp_path):
    """There is no dropout, which differs on each process; eps keeps AdamW from amplifying rounding errors."""
    overrides = [override for override in overrides if "sentences" not in override]
    overrides += ["tiny.dropout=0", "model.eps=0.001", "trainer.accelerator=cpu"]
    overrides += ["+stages.first.data=qa", f"stages.first.data.path={tables}/qa.jsonl"]
    one, two = tmp_path / "one", tmp_path / "two"
    outcome = command(*overrides, f"output_dir={one}")
    assert outcome.status == 0, outcome.err
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if launcher == "torchrun" else []
    more = ["trainer=ddp", "devices=2"] if launcher == "lightning" else []
    done = run_command([*torchrun, TRAIN, *overrides, *more, f"output_dir={two}"])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("evaluation.data_root") == 1, done.stderr  # one process says it, once
    results = read_results(two / "results.json")
    assert (results["cost"]["steps"], results["cost"]["examples"], results["processes"]) == (11, 100, 2)
    for stage in ("second", "first"):
        losses = [
            [float(row["train/loss"]) for row in read_rows(run / f"stage-{stage}/metrics.csv")] for run in (two, one)
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        ours, theirs = saved(two / f"stage-{stage}"), saved(one / f"stage-{stage}")
        for name in theirs:
            torch.testing.assert_close(
                ours[name], theirs[name], atol=1e-4, rtol=1e-3, msg=lambda said, name=name: f"{name}: {said}"
            )


@pytest.mark.rotates
def test_a_rank_that_exits_between_two_stages_is_named(overrides, tmp_path, monkeypatch):
    """The remaining process names it, when all processes compare the backbones of the second stage."""

    def leave():
        if os.environ["RANK"] == "1":
            os._exit(0)

    monkeypatch.setattr("contrastive_encoders.training.stage_loop.free_memory", leave)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run_command([*torchrun, TRAIN, *overrides, "trainer.accelerator=cpu", f"output_dir={tmp_path / 'run'}"])
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "Rank 1 of 2 exited" in done.stderr.splitlines()[-1]


IN_STAGES = [
    line
    for line in commands_of(*GUIDE)
    if ("stages." in line or "gense_small_demo" in line) and "llm2vec" not in line  # which needs a decoder
]


@pytest.mark.rotates
@pytest.mark.parametrize(
    "line", slow_after(2, [line.removeprefix("contrastive-encoders train ") for line in IN_STAGES])
)
def test_the_commands_of_the_guide(line, tables, small_eval, command, tmp_path):
    """The commands run as written, except for the texts, a tiny backbone and few steps."""
    (tmp_path / "train").mkdir()
    for source, name in (("triplets", "triplets"), ("qa", "qa_pairs")):
        with gzip.open(tmp_path / "train" / f"{name}.jsonl.gz", "wt") as file:
            file.write((tables / f"{source}.jsonl").read_text())
    (tmp_path / "eval").symlink_to(small_eval)
    files = {"synthetic": "triplets", "nli.jsonl": "triplets", "qa.jsonl": "qa", "sentences.txt": "sentences"}
    arguments = [
        f"{key}={tables / files[value]}.jsonl"
        if value in files
        else f"{key}={small_eval}"
        if value == "eval"
        else override
        for override in shlex.split(line)
        for key, _, value in [override.partition("=")]
    ]
    small = [*TINY, "max_steps=2", "batch_size=4", "log_every_n_steps=1", f"output_dir={tmp_path / 'run'}"]
    scored = ["evaluation.suite=[stsb]", "evaluation.every_n_steps=1"] if "experiment=gense" in line else []
    place = [f"data_root={tmp_path}"] if "demo" in line else []
    outcome = command(*arguments, *small, *scored, *place, "precision=fp32")
    assert outcome.status == 0, outcome.err
    names = sorted(path.name for path in (tmp_path / "run").glob("stage-*"))
    alone = [override.partition("=")[2] for override in arguments if override.startswith("only_stage=")]
    if alone:
        assert names == [f"stage-{alone[0]}"]
        return
    results = read_results(tmp_path / "run" / "results.json")
    assert sorted(f"stage-{name}" for name in results["stages"]) == names
    assert results["cost"]["steps"] == 2 * len(names) >= 4
    assert len(load_encoder(tmp_path / "run").embed(NOUNS)) == len(NOUNS)
    if scored:
        assert all("stsb/cosine/spearman" in stage["scores"] for stage in results["stages"].values())
