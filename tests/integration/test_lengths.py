"""Training texts are cut at data.max_length, and the encoder reads model.max_length: the two are independent."""

import json
import re

import pytest
import torch
from transformers import AutoTokenizer

from contrastive_encoders import compose
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.training.resolve import resolve
from tests.data import write_rows
from tests.encoders.test_behind_pooling import made
from tests.integration.conftest import TINY

TEXT = "The harbour was quiet when the ferry left for the islands on the other side of the bay. " * 6
NO_LONGER = "model.max_length=24 "


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
    path = tmp_path_factory.mktemp("qa") / "qa.jsonl"
    write_rows(path, ({"question": f"{n}?", "answer": f"{n} {TEXT}"} for n in range(12)))
    run = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=6", "max_steps=2"]
    return [*run, f"data.path={path}", *TINY]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("given", "cut", "read", "said"),
    [
        (["data.max_length=12"], 12, 64, ""),
        (["model.max_length=24", "train_max_length=20"], 20, 24, NO_LONGER),
        (["data.max_length=12", "model.max_length=24"], 12, 24, ""),
        (["train_max_length=512"], 64, 64, r"data\.max_length .* 512 .* 64\b"),
        ([], 64, 64, r"truncated .* 64 "),  # every answer is longer
    ],
)
def test_the_two_lengths_of_a_run(given, cut, read, said, overrides, command, tmp_path):
    done = command(*overrides, *given, f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    assert re.search(said, done.err)
    assert (NO_LONGER in done.err) == (said == NO_LONGER)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "encoder")
    rows = [(f"{n}?", f"{n} {TEXT}") for n in range(12)]  # two batches of six: each once
    tokens = sum(len(ids) for row in rows for ids in tokenizer(list(row), truncation=True, max_length=cut)["input_ids"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["cost"]["real_tokens"], results["data"][0]["max_length"]) == (tokens, cut)
    library = pytest.importorskip("sentence_transformers")
    stock = library.SentenceTransformer(str(tmp_path / "run" / "encoder"), device="cpu")
    assert stock.max_seq_length == read
    for name in ("run", "run/checkpoints/last.ckpt"):
        assert load_encoder(tmp_path / name).max_length == read
        stock.max_seq_length = 40
        expected = stock.encode([TEXT], convert_to_tensor=True)
        found = load_encoder(tmp_path / name, max_length=40).embed([TEXT])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_an_encoder_keeps_the_length_that_it_reads(tiny_t5, command, tmp_path):
    """Training texts are shorter by default, because texts of a thousand tokens take much memory."""
    library = pytest.importorskip("sentence_transformers")
    directory = made(tmp_path / "made", tiny_t5)
    model = library.SentenceTransformer(str(directory), device="cpu")
    model.max_seq_length = 1000
    model.save(str(directory), create_model_card=False)
    rows = [{"question": f"{n}?", "answer": f"{n} {TEXT * 6}"} for n in range(4)]
    overrides = [
        "model=pairs",
        "data=qa",
        f"data.path={write_rows(tmp_path / 'qa.jsonl', rows)}",
        f"backbone={directory}",
    ]
    done = command(*overrides, "batch_size=4", "max_steps=1", "model.lr=0", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    assert json.loads((tmp_path / "run" / "results.json").read_text())["data"][0]["max_length"] == 512
    stock = library.SentenceTransformer(str(tmp_path / "run" / "encoder"), device="cpu")
    assert stock.max_seq_length == 1000
    long = [TEXT * 8]
    torch.testing.assert_close(stock.encode(long), model.encode(long), atol=1e-5, rtol=0)


LENGTHS = {  # the length of each stage, for published values and others
    "experiment=simcse_sup": [32],
    "experiment=simcse_unsup": [32],
    "experiment=simcse_in_nli": [32, 32],
    "experiment=tsdae_in_nli": [512, 32],
    "experiment=gense_nli": [64],
    "experiment=gense_plus": [64, 64, 64],
    "experiment=gense_domain": [64, 64, 64],
    "experiment=dino_x2": [128],
    "experiment=sbert_nli": [128],
    "experiment=declutr_small": [512],
    "experiment=simcse_sup train_max_length=48": [48],
    "model=simcse data=sentences": [32],
    "model=simcse data=qa": [None],
    "model=gense data=triplets": [None],
    "model=gense data=triplets train_max_length=64": [64],
    "model=simcse data=qa data.max_length=16": [16],
}


@pytest.mark.rotates
@pytest.mark.parametrize("overrides", LENGTHS)
def test_recipes_keep_their_lengths(overrides):
    trainings = resolve(compose(overrides.split())).trainings
    assert [one.data.max_length for one in trainings] == LENGTHS[overrides]
