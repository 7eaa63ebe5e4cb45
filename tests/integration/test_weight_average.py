"""``initial_weights_fraction``: the mean of the weights before and after training is scored and exported."""

import csv
import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

SHARE = 0.25
PREFIX = "encoder.transformer."
SIDES = ("sentence1", "sentence2")


@pytest.fixture(scope="module")
def overrides(corpus_file, tiny_mlm, small_eval):
    return [
        *("model=declutr", "data=text", f"data.path={corpus_file}", f"backbone={tiny_mlm}", "data.min_span=4"),
        *("data.max_span=16", "batch_size=6", "max_steps=3", "model.lr=0.003", f"initial_weights_fraction={SHARE}"),
        *(f"evaluation.data_root={small_eval}", "evaluation.suite=[stsb]", "evaluation.at_start=false"),
    ]


def pearson_of(encoder, small_eval):
    rows = list(csv.DictReader((small_eval / "STSBenchmark/test.tsv").open(), delimiter="\t"))
    model = SentenceTransformer(str(encoder), device="cpu")
    left, right = (model.encode([row[name] for row in rows], convert_to_tensor=True) for name in SIDES)
    cosines = torch.cosine_similarity(left, right)
    gold = torch.tensor([float(row["score"]) for row in rows])
    return 100 * torch.corrcoef(torch.stack([cosines.cpu(), gold]))[0, 1].item()


def test_the_average_is_exported_and_evaluated_and_checkpoints_keep_trained_weights(reference, tiny_mlm, small_eval):
    start = AutoModel.from_pretrained(tiny_mlm, add_pooling_layer=False).state_dict()
    saved = torch.load(reference / "checkpoints/best.ckpt", weights_only=True)["state_dict"]
    trained = {name.removeprefix(PREFIX): weight for name, weight in saved.items() if name.startswith(PREFIX)}
    exported = load_file(reference / "encoder/model.safetensors")
    compared = exported.keys() & start.keys()
    assert len(compared) > 10
    moved = 0.0
    for name in compared:
        [there] = [weight for key, weight in trained.items() if key.endswith(name)]
        torch.testing.assert_close(exported[name], SHARE * start[name] + (1 - SHARE) * there, rtol=0, atol=1e-7)
        moved = max(moved, (there - start[name]).abs().max().item())
    assert moved > 1e-3, "it was trained"
    scores = json.loads((reference / "results.json").read_text())["scores"]
    assert scores["stsb/cosine/pearson"] == pytest.approx(pearson_of(reference / "encoder", small_eval), abs=0.01)


def test_a_run_that_was_killed_before_its_export_leaves_the_same(reference, overrides, command, tmp_path):
    shutil.copytree(reference, tmp_path / "run")
    (tmp_path / "run/results.json").unlink()
    shutil.rmtree(tmp_path / "run/encoder")
    outcome = command(*overrides, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    ours, theirs = ((folder / "encoder/model.safetensors").read_bytes() for folder in (tmp_path / "run", reference))
    assert ours == theirs


@pytest.mark.slow
def test_two_processes_leave_the_weights_of_one(reference, overrides, run_train, tmp_path):
    done = run_train(
        [*overrides, "devices=2", "trainer=ddp", "trainer.accelerator=cpu", f"output_dir={tmp_path / 'run'}"]
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = (load_file(folder / "encoder/model.safetensors") for folder in (tmp_path / "run", reference))
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5)


def test_a_reranker_is_refused(rows, command, tmp_path):
    overrides = ["model=reranker", "data=triplets", f"data.path={rows}", "initial_weights_fraction=0.5"]
    outcome = command(*overrides, f"output_dir={tmp_path / 'run'}")
    message = r"initial_weights_fraction=0\.5: .*null.*model=reranker"
    assert (outcome.status, bool(re.search(message, outcome.err))) == (2, True), outcome.err


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["+stages.one.max_steps=2", "+stages.two.max_steps=2"], "initial_weights_fraction=.*null.*stages"),
        (["model.lora.rank=4"], "initial_weights_fraction=.*null.*model.lora.rank=4"),
        (["trainer=fsdp"], "trainer=fsdp: "),
        (["initial_weights_fraction=1"], "initial_weights_fraction=1: "),
    ],
)
def test_weights_that_cannot_be_averaged_are_refused(overrides, command, tmp_path, more, said):
    outcome = command(*overrides, f"output_dir={tmp_path / 'run'}", *more)
    assert (outcome.status, bool(re.search(said, outcome.err))) == (2, True), outcome.err
    assert not (tmp_path / "run").exists()
