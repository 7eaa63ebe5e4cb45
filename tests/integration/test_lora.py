"""Runs with ``model.lora``: adapters across stages, and an adapter exported alone.

The expected weights are computed from the run's checkpoints: W + sum of (alpha / r) B A.
"""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from contrastive_encoders.cli.export import run
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.lora import is_adapter
from tests.data import write_rows
from tests.decoders import save_decoder
from tests.in_process import run_here
from tests.integration.conftest import NOUNS

RANKS, ALPHA = {"first": 4, "second": 2}, 6.0


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return save_decoder("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def overrides(decoder, tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("rows") / "rows.jsonl", random.Random(2)
    rows = [{"anchor": f"A {rng.choice(NOUNS)}, {n}.", "positive": f"Some {rng.choice(NOUNS)}."} for n in range(40)]
    write_rows(path, rows)
    every = ["data=triplets", f"data.path={path}", "max_steps=3", "batch_size=8"]
    model = ["model.pooling=last", "model.append_eos=true", "model.mlp=false", "model.lr=0.01", "quiet=true"]
    stages = [f"+stages.{name}.{override}" for name in RANKS for override in [*every, f"model.lora.rank={RANKS[name]}"]]
    return ["model=simcse", f"backbone={decoder}", *model, f"model.lora.alpha={ALPHA}", *stages]


@pytest.fixture(scope="module", params=["merge", "stack"])
def trained(request, overrides, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    overrides = [*overrides, f"stages.second.model.lora.stages={request.param}", "checkpoint.keep_all=true"]
    outcome = command(*overrides, f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    return request.param, folder


def saved(folder):
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)


def with_products(weights, checkpoint, ranks):
    """Return the weights of a trunk plus the products of a checkpoint's adapters, the lowest first."""
    state, found = checkpoint["state_dict"], dict(weights)
    for name in weights:
        for height, rank in enumerate(ranks, 1):
            a, b = (
                state.get(f"encoder.transformer.{name.removesuffix('.weight')}.lora_{side}.{height}.weight")
                for side in "AB"
            )
            if a is not None:
                found[name] = found[name] + ALPHA / rank * b @ a
    return found


@pytest.mark.rotates
def test_a_stage_begins_from_the_adapter_of_the_one_before(trained, decoder):
    how, folder = trained
    first, second = (folder / f"stage-{name}" for name in RANKS)
    backbone = dict(AutoModel.from_pretrained(decoder).named_parameters())
    merged = load_file(first / "encoder" / "model.safetensors")
    torch.testing.assert_close(merged, with_products(backbone, saved(first), [4]), atol=1e-6, rtol=1e-5)
    last = saved(second)
    wanted = with_products(merged, last, [2]) if how == "merge" else with_products(backbone, last, [4, 2])
    torch.testing.assert_close(load_file(folder / "encoder/model.safetensors"), wanted, atol=1e-6, rtol=1e-5)
    kept = [name for name in last["state_dict"] if is_adapter(name) and ".lora_B.1." in name]
    same = [torch.equal(last["state_dict"][name], saved(first)["state_dict"][name]) for name in kept if how == "stack"]
    assert all(same)
    assert bool(same) == (how == "stack")
    moved = [
        b.abs().max() for name, b in last["state_dict"].items() if f".lora_B.{2 if how == 'stack' else 1}." in name
    ]
    assert min(moved) > 0


def test_checkpoints_hold_the_adapter_and_its_optimizer_alone(trained):
    _, folder = trained
    for name in RANKS:
        found = saved(folder / f"stage-{name}")
        assert all(map(is_adapter, found["state_dict"]))
        (optimizer,) = found["optimizer_states"]
        trained_last = [name for name in found["state_dict"] if f".{len(found['lora']['adapters'])}.weight" in name]
        assert len(optimizer["state"]) == len(trained_last)


def test_the_adapter_by_itself_is_read_by_peft_and_sentence_transformers(trained, decoder, tmp_path):
    peft = pytest.importorskip("peft")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    how, folder = trained
    output = tmp_path / "adapter"
    run_here("export", run, (f"run={folder}", f"output={output}", "format=adapter"))
    wanted = load_encoder(folder).embed(NOUNS).numpy()
    stock = sentence_transformers.SentenceTransformer(str(output), device="cpu")
    np.testing.assert_allclose(stock.encode(NOUNS), wanted, atol=1e-5)
    base = decoder if how == "stack" else folder / "stage-first"
    if how == "merge":
        base = base / "encoder"
    model = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(base), output).eval()
    inputs = AutoTokenizer.from_pretrained(output)(NOUNS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    last = inputs["attention_mask"].sum(1) - 1
    np.testing.assert_allclose(states[torch.arange(len(NOUNS)), last], wanted, atol=1e-5)
    assert not (output / "model.safetensors").exists()
