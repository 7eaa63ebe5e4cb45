"""Every objective over its own data: trained, resumed after a kill, exported; and the wrong data for it refused."""

import json
import random

import pytest
import torch

from contrastive_encoders.encoders.loading.load import load_encoder
from tests.data import write_rows
from tests.integration.conftest import NOUNS, TINY
from tests.integration.curves import assert_same_run, without_times

STEPS = 9  # 40 rows in batches of 8: into the second epoch
KEPT = ["tiny.dropout=0.3", "log_every_n_steps=1", "checkpoint.every_n_steps=2", "model.lr=0.003"]
COLUMNS = {
    "dino": ("text_a", "text_b"),
    "nli": ("premise", "hypothesis"),
    "sentences": ("text",),
    "triplets": ("anchor", "positive", "negative"),
}
RUNS = {
    "sroberta": ["model=sroberta", "data=dino", "data.postprocess=off"],
    "sbert_nli": ["model=sbert_nli", "data=nli"],
    "tsdae": ["model=tsdae", "data=sentences"],
    "simcse_unsup": ["model=simcse", "data=sentences"],
    "gense": ["model=gense", "data=triplets", 'model.prompt_suffix=" It is:"', "model.hard_negative_weight=0.5"],
    "st5": [
        "model=gense",
        "data=triplets",
        'model.prompt_suffix=" It is:"',
        "model.pooling=mean",
        "model.optimizer=adamw",
    ],
    "adapter": ["model=simcse", "data=sentences", "model.lora.rank=4", "model.lora.dropout=0.2"],
    "adapter in 16 bits": ["model=gense", "data=triplets", "model.lora.rank=4", "model.frozen_dtype=bf16"],
    "adapter in 4 bits": ["model=gense", "data=triplets", "model.lora.rank=4", "model.frozen_dtype=nf4"],
    "compiled": [
        "model=simcse",
        "data=sentences",
        "model.compile=eager",
        "model.activation_checkpointing=on",
        "token_budget=64",
    ],
    "adapter of tsdae": ["model=tsdae", "data=sentences", "model.lora.rank=4"],
    "simcse_sup": ["model=simcse", "data=triplets", "model.mlp_only_train=false", "model.hard_negative_weight=1.0"],
}


def rows_of(columns, label=None):
    rng = random.Random(4)
    for number in range(44):
        texts = [f"A {rng.choice(NOUNS)} by the {rng.choice(NOUNS)}, {number}." for _ in columns]
        yield dict(zip(columns, texts, strict=True)) | (label(number) if label else {})


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    labels = {"dino": lambda n: {"label": (0.1, 0.5, 0.9)[n % 3]}, "nli": lambda n: {"label": n % 3}}
    for name, columns in COLUMNS.items():
        write_rows(folder / f"{name}.jsonl", rows_of(columns, labels.get(name)))
    return folder


SLOW = (
    "st5",
    "sroberta",
    "sbert_nli",
    "simcse_unsup",
    "simcse_sup",
    "adapter",
    "adapter in 16 bits",
    "adapter of tsdae",
    "compiled",
    "tsdae",
)  # their main parts are covered in another run or test


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RUNS])
def overrides(request, tables):
    run = RUNS[request.param]
    name = run[1].removeprefix("data=")
    return [*run, f"data.path={tables / name}.jsonl", *TINY, "batch_size=8", f"max_steps={STEPS}", *KEPT]


@pytest.mark.rotates
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one_and_is_exported(overrides, train, train_killed, tmp_path):
    (reference, _), folder = train(*overrides), tmp_path / "killed"
    train_killed(folder, overrides, [4])
    assert assert_same_run(folder, reference) == STEPS == sum("train/loss" in row for row in without_times(folder))
    results = json.loads((folder / "results.json").read_text())
    assert f"model={results['objective']}" == overrides[0]
    found = load_encoder(folder).embed(NOUNS)
    torch.testing.assert_close(
        found, load_encoder(folder / "checkpoints" / "last.ckpt").embed(NOUNS), atol=1e-6, rtol=0
    )
    library = pytest.importorskip("sentence_transformers")
    by_library = library.SentenceTransformer(str(folder / "encoder"), device="cpu").encode(
        NOUNS, convert_to_tensor=True
    )
    torch.testing.assert_close(found, by_library, atol=1e-5, rtol=0)


BAD = [
    (
        [
            "model=simcse",
            "data=sentences",
            "trainer=fsdp",
            "devices=2",
            "model.lora.rank=4",
            "model.frozen_dtype=nf4",
        ],
        ["trainer=fsdp: ", "ddp"],
    ),
    (["model=simcse", "data=sentences", "trainer=fsdp", "data.path=nowhere.jsonl"], ["trainer=fsdp: ", "ddp"]),
    (["model=sroberta", "data=nli"], ["data=nli: ", "model=sroberta", " dino, "]),
    (["model=simcse", "data=dino"], ["data=dino: ", "model=simcse", "qa, sentences, triplets, "]),
    (["model=declutr", "data=triplets"], ["data=triplets: ", "model=declutr", "pydocs, text, "]),
    (["model=simcse", "data=sentences", "model.hard_negative_weight=1"], ["model.hard_negative_weight=1: "]),
    (["model=tsdae", "data=sentences", "deletion_ratio=1"], ["data.deletion_ratio=1: "]),
    (["model=simcse", "data=sentences", "tiny.dropout=0"], ["model.dropout"]),
    (["model=gense", "data=triplets", "data.max_length=8"], ["max_length=8"]),
    (
        ["model=simcse", "data=triplets", "train_max_length=32", "model.max_length=16"],
        ["data.max_length=32: ", "16", "model.max_length"],
    ),
    (["model=simcse", "data=triplets", "data.max_length=65"], ["data.max_length=65: ", "64", "backbone="]),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("overrides", "expected"), BAD, ids=[" ".join(overrides) for overrides, _ in BAD])
def test_incompatible_keys_are_refused_in_one_line(overrides, expected, tables, command, tmp_path):
    path = tables / f"{overrides[1].removeprefix('data=')}.jsonl"
    given = {override.partition("=")[0] for override in overrides}
    tiny = [override for override in TINY if override.partition("=")[0] not in given]
    sizes = [f"data.path={path}", "batch_size=8", "max_steps=1", "quiet=true", f"output_dir={tmp_path / 'run'}"]
    outcome = command(*overrides, *tiny, *sizes)
    lines = outcome.err.strip().splitlines()
    assert (outcome.status, len(lines)) == (2, 1), outcome.err[-2000:]
    for part in expected:
        assert part in lines[0]
