"""A generator from the command line: trained, killed and resumed, scored, exported; invalid arguments refused."""

import json
import random

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from contrastive_encoders.core.gense_prompts import read_generator_prompts
from contrastive_encoders.io.metrics import read_rows
from tests.data import write_rows
from tests.integration.conftest import NOUNS, TINY
from tests.integration.curves import assert_same_run

STEPS = 9  # 40 rows, so 160 instances, in batches of 32: into the second epoch
SELECTION = "generator-dev/selection"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng, path = random.Random(4), tmp_path_factory.mktemp("rows") / "rows.jsonl"
    found = []
    for number in range(44):
        noun, other = rng.sample(NOUNS, 2)
        row = {"sent0": f"A {noun} by the {other}, {number}.", "sent1": f"A {noun}.", "hard_neg": f"No {noun} at all."}
        found.append(row | {"split": "valid" if number % 11 == 0 else "train"})
    return write_rows(path, found[::-1])


@pytest.fixture(scope="module")
def overrides(rows):
    run = ["model=gense_generator", "data=nli_generation", f"data.path={rows}", *TINY, "tiny.dropout=0.3"]
    run += ["batch_size=32", f"max_steps={STEPS}", "max_epochs=null", "model.lr=0.003"]
    return [*run, "log_every_n_steps=1", "checkpoint.every_n_steps=2", "evaluation.every_n_steps=3"]


@pytest.mark.slow  # three starts
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(overrides, reference, train_killed, tmp_path):
    train_killed(tmp_path / "run", overrides, [5])
    assert assert_same_run(tmp_path / "run", reference, ["generator"]) == STEPS


@pytest.mark.rotates
def test_it_is_scored_every_n_steps_and_the_best_is_exported(reference):
    scored = {
        int(row["step"]): float(row[SELECTION]) for row in read_rows(reference / "metrics.csv") if SELECTION in row
    }
    assert sorted(scored) == [0, 3, 6, 9]
    del scored[0]  # before training: never the best of a run
    results = json.loads((reference / "results.json").read_text())
    assert results["best_step"] == max(scored, key=lambda step: (scored[step], -step))
    assert results["scores"][SELECTION] == pytest.approx(max(scored.values()), rel=1e-5)
    accuracy, perplexity = (results["scores"][f"generator-dev/{name}"] for name in ("accuracy", "perplexity"))
    assert results["scores"][SELECTION] == pytest.approx(accuracy - 10 * perplexity)
    assert set(results["intervals"]) == set(results["scores"])
    assert results["verdict"]["scores"] == [SELECTION]
    low, high = results["verdict"]["interval"]
    assert low <= results["verdict"]["after"] - results["verdict"]["before"] <= high
    assert results["data"][0]["held_out"]["used"] == 4
    assert results["data"][0]["prompt_assembly"] == "pieces"


def test_what_it_leaves_is_a_folder_of_transformers_with_its_prompts(reference, gense_prompts):
    folder = reference / "generator"
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    written = model.generate(**tokenizer(["A ferry."], return_tensors="pt"), max_new_tokens=3)
    assert written.shape[0] == 1
    best = torch.load(reference / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(model.shared.weight, best["seq2seq.transformer.shared.weight"])
    prompts = read_generator_prompts(folder)
    assert prompts.assembly == "pieces"
    assert prompts.discrimination._asdict() == gense_prompts["discrimination"]
    assert not (reference / "encoder").exists()


def test_another_run_starts_from_it(overrides, reference, command, tmp_path):
    others = [override for override in overrides if not override.startswith(("backbone", "tiny.", "max_steps"))]
    folder = tmp_path / "run"
    outcome = command(
        *others,
        f"backbone={reference}",
        "max_steps=1",
        "prompt_assembly=string",
        "model.optimizer=adamw",
        f"output_dir={folder}",
    )
    assert outcome.status == 0, outcome.err
    assert json.loads((folder / "generator" / "generator.json").read_text())["prompt_assembly"] == "string"


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("monitor=stsb-dev/cosine/spearman", "generator-dev/selection"),
        ("evaluation.during_training=[stsb-dev]", "generator-dev"),
        ("prompt_assembly=glued", "prompt_assembly"),
        ("data=triplets", "data=triplets: "),
        ("data.dev_path=nowhere.jsonl", "nowhere.jsonl"),
    ],
)
def test_a_wrong_word_is_refused_with_one_message(override, message, overrides, command, tmp_path):
    folder, key = tmp_path / "run", override.partition("=")[0]
    outcome = command(*(one for one in overrides if one.partition("=")[0] != key), override, f"output_dir={folder}")
    assert outcome.status == 2, outcome.err
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not (folder / "results.json").exists()
