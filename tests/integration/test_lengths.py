"""Training texts are cut at data.max_length, and the encoder reads model.max_length: neither follows the other."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from encoders import load_encoder

TEXT = "The harbour was quiet when the ferry left for the islands on the other side of the bay. " * 6
NO_LONGER = "model.max_length=24 is what the encoder reads in scores and export; it no longer sets the length"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("qa") / "qa.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n}?", "answer": f"{n} {TEXT}"}) + "\n" for n in range(12)))
    sizes = ["vocab_size=300", "hidden_size=32", "layers=1", "heads=2", "intermediate_size=32", "max_length=64"]
    run = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=6", "max_steps=2"]
    return [*run, f"data.path={path}", "backbone=tiny", *(f"tiny.{size}" for size in sizes)]


@pytest.mark.parametrize(
    ("given", "cut", "read", "said"),
    [
        (["data.max_length=12"], 12, 64, ""),
        (["model.max_length=24", "training_length=20"], 20, 24, NO_LONGER),
        (["data.max_length=12", "model.max_length=24"], 12, 24, ""),
        (["training_length=512"], 64, 64, "data.max_length: 64, all that backbone="),  # as of DeCLUTR
    ],
)
def test_the_two_lengths_of_a_run(given, cut, read, said, words, command, tmp_path):
    done = command(*words, *given, f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    assert said in done.err
    assert ("no longer sets" in done.err) == (said == NO_LONGER)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "encoder")
    rows = [(f"{n}?", f"{n} {TEXT}") for n in range(12)]  # two batches of six: each once
    tokens = sum(len(ids) for row in rows for ids in tokenizer(list(row), truncation=True, max_length=cut)["input_ids"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["spent"]["real_tokens"], results["data"][0]["max_length"]) == (tokens, cut)
    library = pytest.importorskip("sentence_transformers")
    stock = library.SentenceTransformer(str(tmp_path / "run" / "encoder"), device="cpu")
    assert stock.max_seq_length == read
    for name in ("run", "run/checkpoints/last.ckpt"):
        assert load_encoder(tmp_path / name).max_length == read
        stock.max_seq_length = 40
        expected = stock.encode([TEXT], convert_to_tensor=True)
        found = load_encoder(tmp_path / name, max_length=40).embed([TEXT])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
