"""Training texts are cut at data.max_length, and the encoder reads model.max_length: neither follows the other."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from encoders import load_encoder
from training import compose
from training.modules import filled_in
from training.preview.command import run as preview
from training.stages import stages_of

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
        (["training_length=512"], 64, 64, "data.max_length: 64, all that backbone="),
        ([], 64, 64, "texts are cut at 64 tokens, all that the encoder reads ("),  # every answer is longer
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


SHORT = [(f"{n % 9}?", f"{n % 9} {'bay ' * (n % 12)}") for n in range(150)]


@pytest.fixture(scope="module")
def faq(tmp_path_factory):
    """Rows of which some repeat earlier ones, and three cannot be read; one text of 300 is long."""
    path = tmp_path_factory.mktemp("faq") / "faq.jsonl"
    rows = [*SHORT, ("long?", TEXT)]
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in rows]
    path.write_text("\n".join(["no JSON", *lines, '{"question": 3, "answer": "x"}', '{"question": "x"}']) + "\n")
    return path


def test_every_run_and_the_preview_say_what_is_cut_left_out_and_repeated(faq, tiny_bert, command, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    lengths = sorted(len(ids) for row in [*SHORT, ("long?", TEXT)] for ids in tokenizer(list(row))["input_ids"])
    cut = lengths[-3]  # 299 of 302 are 99 %
    behind = sum(max(0, length - cut) for length in lengths) / sum(length - 2 for length in lengths)
    said = [
        f"texts are cut at {cut} tokens, which holds 99% of them whole; {behind:.1%} of their tokens lie behind that",
        f"3 unreadable; the first unreadable one is {faq}:1: broken JSON",
        f"{len(SHORT) - len(set(SHORT))} of 151 rows have all texts of an earlier one",
    ]
    data = ["data=qa", f"data.path={faq}", "data.on_error=skip", f"backbone={tiny_bert}", "batch_size=10"]
    model = ["model=simcse", "model.mlp=false", "model.pooling=mean", "max_steps=1"]
    for name in ("built", "there"):
        done = command(*model, *data, f"output_dir={tmp_path / name}")
        assert done.status == 0, done.err
        assert ("kept 151 rows" in done.err) == (name == "built")
        for fact in said:
            assert fact in done.err
        (account,) = json.loads((tmp_path / name / "results.json").read_text())["data"]
        assert account["max_length"] == cut
        assert account["cuts"][0]["share_behind"] == pytest.approx(behind)
        assert account["source"]["skipped"] == 3
        assert account["repeated"] == len(SHORT) - len(set(SHORT))
    assert preview([*data, "batches=1", f"output={tmp_path / 'page.html'}"]) == 0
    out, page = capsys.readouterr().out, (tmp_path / "page.html").read_text()
    for fact in said:
        assert fact in out
        assert fact.partition(":")[0] in page


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["data=sentences"], ["cut at 128 tokens", "of a training: 32 with model=simcse, 512 with model=tsdae"]),
        (["data=sentences", "model=simcse", "batch_size=4"], ["cut at 32 tokens"]),
        (["data=sentences", "training_length=20"], ["cut at 20 tokens"]),
    ],
)
def test_the_preview_shows_the_length_of_a_training(words, shown, tiny_bert, tmp_path, capsys):
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"{n} {TEXT}\n" for n in range(20)))
    assert preview([*words, f"data.path={path}", f"backbone={tiny_bert}", "batches=1", "examples=1"]) == 0
    out = capsys.readouterr().out
    for part in shown:
        assert part in out
    assert ("of a training" in out) == (len(shown) == 2)


LENGTHS = {  # what papers published, and what nobody has: of each stage
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
    "experiment=simcse_sup training_length=48": [48],
    "model=simcse data=sentences": [32],
    "model=simcse data=qa": [None],
    "model=gense data=triplets": [None],
    "model=gense data=triplets training_length=64": [64],
    "model=simcse data=qa data.max_length=16": [16],
}


@pytest.mark.parametrize("words", LENGTHS)
def test_recipes_keep_their_lengths(words):
    stages = stages_of(compose(words.split()))
    assert [filled_in(stage.run).data.max_length for stage in stages] == LENGTHS[words]
