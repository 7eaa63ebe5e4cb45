"""Runs from the command line to the files that they write."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.output_directory import LOCK, MARKER
from contrastive_encoders.io.results import read_results
from contrastive_encoders.reports import figure
from contrastive_encoders.training.compose import compose as compose_run
from contrastive_encoders.training.identity import identity_in
from contrastive_encoders.training.resolve import resolve
from tests.wandb_records import read_records, values_of

ROOT = Path(__file__).resolve().parents[2]
LEFT_BY_A_RUN = {
    "checkpoints",
    ".hydra",
    LOCK,
    MARKER,
    "metrics.csv",
    "results.json",
    "encoder",
    "backbone",
    "curve.png",
}
TEXTS = ["The ferry leaves the harbour.", "Bread rises slowly in a cold kitchen, they say.", "comet"]


def weights(folder, name="best"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def same_weights(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# ------------------------------------------------------------------------------------ what a run leaves


@pytest.fixture(scope="module")
def finished(tiny_run, run_train, tmp_path_factory):
    """Return the output folder of a run by the real command line."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    done = run_train([*tiny_run, f"output_dir={folder}", "data_license=cc0-1.0"])
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_leaves_these_files_and_no_others(finished):
    assert {path.name for path in finished.iterdir()} == LEFT_BY_A_RUN
    assert {path.name for path in (finished / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_that_cannot_be_drawn_is_a_warning(tiny_run, command, tmp_path, monkeypatch):
    figure.library()  # a fork starts with it
    monkeypatch.setattr(figure, "SECONDS", 0.01)  # the run is a fork of this process
    monkeypatch.setattr(figure, "SECONDS_EACH", 0)
    outcome = command(*tiny_run, f"output_dir={tmp_path / 'run'}", drawn=True)
    assert outcome.status == 0
    assert len(re.findall(r"/curve\.png: .*\b0\.01 ", outcome.err)) == 1
    assert {path.name for path in (tmp_path / "run").iterdir()} == LEFT_BY_A_RUN - {"curve.png"}


def test_results_record_the_config_and_the_cost(finished):
    results = read_results(finished / "results.json")
    assert (results["objective"], results["backbone"], results["best_step"]) == ("declutr", "tiny", 3)
    assert (results["cost"]["steps"], results["cost"]["examples"], results["processes"]) == (3, 18, 1)
    assert results["cost"]["real_tokens"] > 18 * 6 * 6  # six spans of four tokens and two special ones
    assert results["recipe"]["data"]["max_span"] == 16
    assert re.fullmatch("[0-9a-f]{64}", results["data"][0]["source"]["sha256"])
    assert results["scores"] == {}


def test_the_card_names_the_license_that_was_given(finished):
    assert "License: cc0-1.0." in (finished / "encoder" / "README.md").read_text(encoding="utf-8")


def test_the_resolved_config_is_kept(finished):
    config = OmegaConf.load(finished / ".hydra" / "config.yaml")
    assert (config.backbone, config.max_steps) == ("tiny", 3)
    assert "data.max_span=16" in OmegaConf.load(finished / ".hydra" / "overrides.yaml")


def test_the_encoder_loads_in_sentence_transformers_and_gives_our_vectors(finished):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
    from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

    ours = SentenceEncoder(load_masked_lm(str(finished), lm_head=True), load_tokenizer(str(finished)))
    theirs = sentence_transformers.SentenceTransformer(str(finished / "encoder"), device="cpu")
    expected = theirs.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(ours.embed(TEXTS), expected.float(), atol=1e-5, rtol=0)
    assert len(expected) == len(TEXTS)
    assert not torch.allclose(expected[0], expected[1], atol=1e-2)


# -------------------------------------------------------------------------------- whose folder this is


def test_a_rerun_of_a_finished_command_reports_that_it_is_finished(finished, tiny_run, command):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    outcome = command(*tiny_run, f"output_dir={finished}")
    assert outcome.status == 0
    assert re.search(rf"{finished} .* overwrite=true", outcome.err)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.advice("contrastive_encoders.training.run_directory:_options_hint")
def test_another_config_is_refused_until_overwrite(finished, tiny_run, command, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    before = (folder / "results.json").read_bytes()
    refused = command(*tiny_run, f"output_dir={folder}", "seed=2")
    assert refused.status == 2
    assert "seed=1, not 2" in refused.err
    assert "overwrite=true" in refused.err
    assert "resume=" not in refused.err  # a checkpoint with other batches cannot be resumed
    assert (folder / "results.json").read_bytes() == before
    (folder / "notes.txt").write_text("mine")
    assert command(*tiny_run, f"output_dir={folder}", "seed=2", "overwrite=true").status == 0
    assert read_results(folder / "results.json")["seeds"] == [2]
    assert not same_weights(weights(folder), weights(finished))
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.advice("contrastive_encoders.training.run_directory:_options_hint")
def test_a_finished_run_continues_with_another_rate_and_the_settings_of_the_message(
    finished, tiny_run, command, tmp_path
):
    folder = shutil.copytree(finished, tmp_path / "run")
    again = [*tiny_run, f"output_dir={folder}", "model.lr=1e-4"]
    refused = command(*again)
    assert refused.status == 2
    advised = shlex.split(re.search(r" set (resume=.*?)\. To train", refused.err)[1])
    assert command(*again, *advised).status == 0
    [output] = [override.partition("=")[2] for override in advised if override.startswith("output_dir=")]
    steps = read_results(Path(output) / "results.json")["cost"]["steps"]
    assert steps == 2 * read_results(folder / "results.json")["cost"]["steps"]


def test_a_folder_that_is_not_ours_is_refused(tiny_run, command, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    outcome = command(*tiny_run, f"output_dir={tmp_path}")
    assert outcome.status == 2
    assert f"output_dir={tmp_path}:" in outcome.err
    assert "thesis.tex" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_wrong_key_does_not_block_the_folder(tiny_run, command, tmp_path):
    assert command(*tiny_run, f"output_dir={tmp_path / 'run'}", "batch_size=600").status == 2
    assert command(*tiny_run, f"output_dir={tmp_path / 'run'}").status == 0


def test_a_mistyped_command_leaves_no_folder(command, tmp_path):
    assert command("model=declutr", f"output_dir={tmp_path / 'run'}").status == 2
    assert list(tmp_path.iterdir()) == []


def default_folder(overrides):
    return resolve(compose_run(overrides)).output_dir


def test_the_default_directory_is_named_by_the_identity(tiny_run, finished):
    name = default_folder(tiny_run)
    assert re.fullmatch(r"outputs/declutr-text-[0-9a-f]{8}", name)
    for same in (
        ["devices=2"],
        ["logger=wandb"],
        ["trainer=ddp"],
        ["quiet=true"],
        ["data.cache_dir=/x"],
        ["resume=null"],
    ):
        assert default_folder(tiny_run + same) == name, same
    for other in (
        ["seed=2"],
        ["model.temperature=0.1"],
        ["trainer.gradient_clip_val=2"],
        ["data.anchor_placement=uniform"],
    ):
        assert default_folder(tiny_run + other) != name, other
    assert name.endswith(str(identity_in(finished)))  # output_dir does not count either


# ------------------------------------------------------------------------------------------- backbones


def test_a_run_serves_as_the_backbone_of_the_next_with_its_head(finished, tiny_run, command, tmp_path):
    overrides = [override for override in tiny_run if not override.startswith("backbone=")]
    outcome = command(*overrides, f"backbone={finished}", f"output_dir={tmp_path / 'next'}", "model.lr=0.0")
    assert outcome.status == 0, outcome.err
    assert same_weights(weights(tmp_path / "next"), weights(finished))  # including the head: nothing was learned
    assert any("lm_head" in name for name in weights(finished))


def test_a_masked_lm_of_transformers_alone_serves(tiny_bert, tiny_run, command, tmp_path):
    overrides = [override for override in tiny_run if not override.startswith(("backbone=", "tiny."))]
    outcome = command(*overrides, f"backbone={tiny_bert}", f"output_dir={tmp_path / 'bert'}")
    assert outcome.status == 0, outcome.err
    assert json.loads((tmp_path / "bert" / "encoder" / "config.json").read_text())["model_type"] == "bert"
    assert not (tmp_path / "bert" / "backbone").exists()


# -------------------------------------------------------------------------------------------- variants


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("overrides", "spans"),
    [
        (["data.max_span=auto", "data.anchor_placement=uniform"], None),
        (["data.anchors_per_document=1", "data.match_span_count_of=2", "batch_size=3"], None),
        (["precision=bf16", "data.align_to_words=true"], None),
        (["model.metric_loss=SupConLoss", "data.positive_sampling=subsuming"], None),
        (["model.mlm_weight=0", "model.ddp_gradient=per_rank", "token_budget=40"], None),
        (["model.contrastive_weight=0", "data.fraction=0.5", "data.num_workers=1"], None),
    ],
    ids=lambda overrides: " ".join(overrides) if overrides else "",
)
def test_a_variant_runs_to_its_end(overrides, spans, tiny_run, command, tmp_path):
    outcome = command(*tiny_run, *overrides, f"output_dir={tmp_path / 'run'}", "log_every_n_steps=1")
    assert outcome.status == 0, outcome.err
    losses = [float(row["train/loss"]) for row in read_rows(tmp_path / "run" / "metrics.csv")]
    assert len(losses) == 3
    assert all(loss > 0 for loss in losses)
    assert (tmp_path / "run" / "encoder" / "model.safetensors").is_file()
    data = read_results(tmp_path / "run" / "results.json")["data"][0]
    if "data.match_span_count_of=2" in overrides:
        assert (data["documents_per_batch"], data["passes_per_epoch"]) == (6, 2)
    if "data.max_span=auto" in overrides:
        assert 16 < data["spans"]["max_span"] < 512
    if "data.fraction=0.5" in overrides:
        assert data["used"] == 20
    if not torch.cuda.is_available() and Path("/proc/cpuinfo").is_file():
        is_emulated = not re.search("avx512_bf16|amx_bf16", Path("/proc/cpuinfo").read_text())
        assert ("precision=fp32" in outcome.err) == (is_emulated and "precision=bf16" in overrides)


# ---------------------------------------------------------------------------------------------- scores


SCORING = ["evaluation.suite=[stsb-dev,stsb]", "evaluation.every_n_steps=1", "monitor=stsb-dev/cosine/spearman"]


@pytest.fixture(scope="module")
def scored(tiny_run, command, small_eval, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored") / "run"
    overrides = [*SCORING, f"evaluation.data_root={small_eval}", "evaluation.at_start=true", "model.lr=0.01"]
    outcome = command(*tiny_run, *overrides, "max_steps=5", f"output_dir={folder}", "log_every_n_steps=1")
    assert outcome.status == 0, outcome.err
    return folder, outcome


def test_scores_are_of_products_in_the_precision_that_was_asked_for(tiny_run, command, small_eval, tmp_path):
    """Truth: the exported encoder, in either precision."""
    overrides = [
        "evaluation.suite=stsb",
        f"evaluation.data_root={small_eval}",
        "evaluation.precision=bf16",
        "max_steps=1",
    ]
    outcome = command(*tiny_run, *overrides, f"output_dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    suite, encoder = Suite(load_tasks(small_eval, ["stsb"], EvaluateConfig()).tasks), load_encoder(tmp_path)
    exact = suite.run(encoder, intervals=False).values["stsb/cosine/pearson"]
    found = read_results(tmp_path / "results.json")["scores"]["stsb/cosine/pearson"]
    in_16_bits = suite.run(encoder, intervals=False, autocast=torch.bfloat16).values["stsb/cosine/pearson"]
    assert found == pytest.approx(in_16_bits, abs=1e-6)
    assert found != pytest.approx(exact, abs=1e-4)


def test_monitor_picks_the_best_checkpoint(scored):
    folder, _ = scored
    rows = read_rows(folder / "metrics.csv")
    curve = {int(row["step"]): float(row[SCORING[2].partition("=")[2]]) for row in rows}
    assert sorted(curve) == [0, 1, 2, 3, 4, 5]
    best = max(step for step in curve if curve[step] == max(value for at, value in curve.items() if at > 0))
    results = read_results(folder / "results.json")
    assert results["scores"]["stsb-dev/cosine/spearman"] == pytest.approx(curve[results["best_step"]], abs=1e-4)
    assert curve[results["best_step"]] == curve[best]
    assert torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["global_step"] == results["best_step"]


def test_results_hold_scores_before_and_after_with_intervals_and_overlap(scored):
    results = read_results(scored[0] / "results.json")
    tasks = [f"{task}/{protocol}" for task in ("stsb-dev", "stsb") for protocol in ("cosine", "max")]
    names = {f"{task}/{metric}" for task in tasks for metric in ("spearman", "pearson")}
    assert set(results["scores"]) == set(results["scores_before"]) == set(results["intervals"]) == names
    assert all(low <= results["scores"][name] <= high for name, (low, high) in results["intervals"].items())
    assert set(results["overlap"]) == {"stsb-dev", "stsb"}
    assert {name: re.findall(r"\d+", counts) for name, counts in results["row_count_mismatches"].items()} == {
        "STSBenchmark/dev.tsv": ["12", "1500"],
        "STSBenchmark/test.tsv": ["12", "1379"],
    }


def test_what_picks_the_best_is_scored_before_and_after_where_the_suite_lacks_it(
    tiny_run, command, small_eval, tmp_path
):
    overrides = [
        "evaluation.suite=stsb",
        *SCORING[1:],
        f"evaluation.data_root={small_eval}",
        "max_steps=2",
        "model.lr=1e-12",
    ]
    overrides += ["evaluation.at_start=true", f"output_dir={tmp_path / 'run'}", "log_every_n_steps=1"]
    outcome = command(*tiny_run, *overrides)
    assert outcome.status == 0, outcome.err
    name, results = "stsb-dev/cosine/spearman", read_results(tmp_path / "run" / "results.json")
    assert all(row[name] for row in read_rows(tmp_path / "run" / "metrics.csv"))
    assert results["scores"].keys() == results["scores_before"].keys() >= {name, "stsb/cosine/spearman"}
    assert results["scores"][name] == pytest.approx(results["scores_before"][name])
    assert set(results["row_count_mismatches"]) == {"STSBenchmark/dev.tsv", "STSBenchmark/test.tsv"}
    assert re.search("Inconclusive: Spearman .*stsb ", outcome.out)
    assert results["verdict"]["scores"] == ["stsb/cosine/spearman"]  # the best step was chosen by stsb-dev


def test_the_closing_table_is_shown(scored):
    assert "stsb/cosine/spearman" in scored[1].out
    assert str(scored[0]) in scored[1].out


# -------------------------------------------------------------------------------------------- processes


def close_enough(folder, reference):
    ours, theirs = weights(folder), weights(reference)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=2e-5)


@pytest.fixture(scope="module")
def no_dropout(tiny_run, command, small_eval, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    overrides = [*tiny_run, "tiny.dropout=0", "evaluation.suite=stsb", f"evaluation.data_root={small_eval}"]
    overrides += ["evaluation.during_training=[stsb]", "evaluation.every_n_steps=2", "evaluation.at_start=true"]
    assert command(*overrides, f"output_dir={folder}").status == 0
    return overrides, folder


@pytest.mark.slow
def test_lightning_starts_two_processes_that_share_one_folder(no_dropout, run_train, tmp_path):
    overrides, alone = no_dropout
    folder = tmp_path / "run"
    done = run_train([*overrides, "trainer=ddp", "trainer.accelerator=cpu", "devices=2", f"output_dir={folder}"])
    assert done.returncode == 0, done.stderr
    check_two_processes(folder, alone)


@pytest.mark.slow
def test_torchrun_starts_two_processes_that_share_one_folder(no_dropout, tmp_path):
    overrides, alone = no_dropout
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(ROOT / "train.py")]
    done = subprocess.run(
        [sys.executable, *launch, *overrides, "trainer=cpu", f"output_dir={tmp_path / 'run'}"],
        cwd=tmp_path,
        env=os.environ,
        timeout=180,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_two_processes(tmp_path / "run", alone)


@pytest.mark.rotates
def test_srun_starts_two_processes_that_share_one_folder(no_dropout, start, tmp_path):
    overrides, alone = no_dropout
    slurm = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_NODEID": "0"}
    slurm |= {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NAME": "job", "SLURM_NODELIST": "127.0.0.1"}
    ranks = [
        start(
            *overrides,
            "trainer=cpu",
            f"output_dir={tmp_path / 'run'}",
            drawn=True,
            **slurm,
            SLURM_PROCID=rank,
            SLURM_LOCALID=rank,
        )
        for rank in "01"
    ]
    outcomes = [rank.finish() for rank in ranks]
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    check_two_processes(tmp_path / "run", alone)


def check_two_processes(folder, alone):
    left = {path.name for path in folder.iterdir() if not path.name.startswith(f"{LOCK}-")}  # which a fork exits with
    assert left == LEFT_BY_A_RUN | {"item_scores.npz"}  # scored, unlike `finished`
    ours, theirs = read_results(folder / "results.json"), read_results(alone / "results.json")
    assert ours["processes"] == 2
    assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-2)
    assert ours["cost"]["real_tokens"] == theirs["cost"]["real_tokens"]
    assert ours["cost"]["examples"] == theirs["cost"]["examples"]
    close_enough(folder, alone)


# --------------------------------------------------------------------------------------------- loggers


@pytest.mark.rotates
def test_wandb_offline_records_curves_config_and_summary(tiny_run, command, tmp_path):
    folder = tmp_path / "run"
    overrides = [*tiny_run, "logger=wandb", "log_every_n_steps=1", f"output_dir={folder}"]
    outcome = command(*overrides, WANDB_MODE="offline", WANDB_SILENT="true", HOME=str(tmp_path))
    assert outcome.status == 0, outcome.err
    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    config, history, summary = {}, [], {}
    for record in read_records(path):
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            config |= values_of((record.run.config if kind == "run" else record.config).update)
        elif kind == "history":
            history.append(values_of(record.history.item))
        elif kind == "summary":
            summary |= values_of(record.summary.update)
    curve = {row["trainer/global_step"]: row["train/loss"] for row in history if "train/loss" in row}
    rows = read_rows(folder / "metrics.csv")
    assert curve == {int(row["step"]): float(row["train/loss"]) for row in rows}
    assert len(curve) == 3
    assert (config["model"]["temperature"], config["data"]["max_span"], config["batch_size"]) == (0.05, 16, 6)
    assert config["backbone"] == "tiny"
    assert summary["train/loss"] == curve[3]


def test_wandb_without_a_login_ends_before_any_work(tiny_run, command, tmp_path):
    overrides = [*tiny_run, "logger=wandb", f"output_dir={tmp_path / 'run'}"]
    outcome = command(*overrides, WANDB_MODE="online", WANDB_API_KEY="", HOME=str(tmp_path), WANDB_DIR=str(tmp_path))
    assert outcome.status == 2
    assert "WANDB_MODE=offline" in outcome.err
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_the_curves(tiny_run, command, tmp_path):
    pytest.importorskip("tensorboard")
    outcome = command(*tiny_run, "logger=tensorboard", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.*"))
