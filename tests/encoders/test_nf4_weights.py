"""Frozen weights in 4 bits. Truth: a float32 model whose matrices passed through bitsandbytes' own functions."""

import bitsandbytes
import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.kernels.bf16_weights import BF16Linear
from contrastive_encoders.encoders.kernels.nf4_weights import Nf4Linear, is_quantized, quantize
from contrastive_encoders.encoders.lora import (
    dequantize_frozen_layers,
    is_adapter,
    merged,
    quantize_frozen_layers,
    record_of,
)
from tests.decoders import save_decoder
from tests.distributed.steps import Step, stepped
from tests.distributed.test_objective_processes import damaged, pairs
from tests.encoders.test_lora import DECODER, LORA, TEXTS, adapted, unzeroed
from tests.objectives import built


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert, tiny_t5):
    made = {family: save_decoder(family, tmp_path_factory.mktemp(family)) for family in ("llama", "gpt2")}
    return {"bert": tiny_bert, "t5": tiny_t5, **made}


def dequantized(weight):
    packed, state = bitsandbytes.functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    return bitsandbytes.functional.dequantize_4bit(packed, state)


def narrowed(model):
    quantize_frozen_layers(model)
    return model


def rounded_like(model, plain):
    """Return ``plain`` with each matrix that ``model`` stores in 4 bits rounded as bitsandbytes returns it."""
    for name, layer in model.named_modules():
        if isinstance(layer, Nf4Linear):
            layer = plain.get_submodule(name)
            layer.weight.data = dequantized(layer.weight.data)
    return plain


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_vectors_and_gradients_are_those_of_rounded_weights(folders, family):
    model = narrowed(adapted(folders[family], family, frozen_dtype="nf4"))
    plain = adapted(folders[family], family)
    in_bits = {name for name, layer in model.encoder.trunk.named_modules() if isinstance(layer, Nf4Linear)}
    linear = {name for name, layer in plain.encoder.trunk.named_modules() if isinstance(layer, nn.Linear)}
    assert in_bits == {name for name in linear if not is_adapter(f".{name}.")} != set()
    before = plain.encoder.embed(TEXTS)
    rounded_like(model, plain)
    assert (before - plain.encoder.embed(TEXTS)).abs().max() > 1e-3, "there is something to round"
    np.testing.assert_allclose(model.encoder.embed(TEXTS), plain.encoder.embed(TEXTS), atol=1e-5)
    sequences = model.encoder.tokenize(TEXTS)
    for one in (model, plain):
        given = one.encoder.appended(sequences) if one.encoder.appended else sequences
        one.encoder.encode_sequences(given).vectors.square().sum().backward()
    wanted = gradients(plain)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, wanted[name], atol=1e-4, rtol=1e-3)


def test_under_autocast_too(folders):
    model = narrowed(adapted(folders["llama"], frozen_dtype="nf4"))
    plain = rounded_like(model, adapted(folders["llama"]))
    vectors = [one.encoder.embed(TEXTS, autocast=torch.bfloat16) for one in (model, plain)]
    torch.testing.assert_close(*vectors, atol=3e-2, rtol=3e-2)


def test_a_decoder_that_shares_layers_reads_the_same(tiny_bert):
    """TSDAE's decoder has the encoder's matrices in its own layers."""
    model, plain = (
        unzeroed(built("tsdae", tiny_bert, pooling="mean", lora=LORA, frozen_dtype=kind)) for kind in ("nf4", "fp32")
    )
    rounded_like(narrowed(model), plain)
    (loss, _, gradient), (wanted, _, right) = (stepped(Step(one), damaged(one, 0, 1)) for one in (model, plain))
    torch.testing.assert_close(loss, wanted)
    assert (gradient - right).norm() <= 1e-4 * right.norm()


@pytest.mark.parametrize("backend", [pytest.param(one, marks=pytest.mark.slow) for one in ("aot_eager", True)])
def test_compiled_layers_give_the_same_step(folders, backend):
    keys = DECODER | {"lora": LORA, "frozen_dtype": "nf4", "mlp": False}
    ours, theirs = (
        narrowed(unzeroed(built("simcse", folders["llama"], **keys, compile=how))) for how in (backend, False)
    )
    (loss, _, gradient), (wanted, _, right) = (stepped(Step(one), pairs(one, 0, 1)) for one in (ours, theirs))
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    assert (gradient - right).norm() <= 1e-4 * right.norm()


def test_a_weight_takes_four_bits_and_an_eighth():
    """4 bits, plus 8 of a scale per 64 weights, and 32 of a scale of scales per 256 of these (QLoRA, section 3)."""
    layer = nn.Linear(256, 512, bias=False).requires_grad_(False)
    quantize(layer, {layer.weight})
    kept = layer._parameters["weight"].nbytes + layer.state.absmax.nbytes + layer.state.state2.absmax.nbytes
    assert kept * 8 == 256 * 512 * (4 + 8 / 64 + 32 / (64 * 256))


def test_dequantization_restores_the_original_weights(folders, tmp_path):
    model = adapted(folders["llama"], frozen_dtype="nf4")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    quantize_frozen_layers(model)
    assert record_of(model)["digest"] == record_of(adapted(folders["llama"]))["digest"], "that of the backbone"
    with pytest.raises(RuntimeError, match="dequantize_frozen_layers"):
        merged(model.encoder.trunk)
    assert dequantize_frozen_layers(model, lambda: adapted(folders["llama"], frozen_dtype="nf4"), "here")
    assert not is_quantized(model)
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
    assert not dequantize_frozen_layers(model, lambda: pytest.fail("there is nothing to load"), "here")


def test_a_changed_backbone_is_refused(folders):
    model = narrowed(adapted(folders["llama"], frozen_dtype="nf4"))

    def changed():
        other = adapted(folders["llama"], frozen_dtype="nf4")
        other.encoder.trunk.layers[0].mlp.up_proj.base_layer.weight.data[0, 0] += 1e-3
        return other

    with pytest.raises(InputError) as error:
        dequantize_frozen_layers(model, changed, "here")
    assert error.value.location == "here"


def test_weights_published_in_16_bits_stay_in_16_bits(tmp_path):
    """The weights stay in 16 bits until training begins, and again for the final scores: no precision is lost."""
    folder = save_decoder("llama", tmp_path)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).bfloat16().float().save_pretrained(folder)
    model, plain = (adapted(folder, frozen_dtype=kind) for kind in ("nf4", "fp32"))
    held = [layer for layer in model.encoder.trunk.modules() if isinstance(layer, BF16Linear)]
    assert {layer._parameters["weight"].dtype for layer in held} == {torch.bfloat16}
    np.testing.assert_allclose(model.encoder.embed(TEXTS), plain.encoder.embed(TEXTS), atol=1e-6)
    rounded_like(narrowed(model), plain)
    np.testing.assert_allclose(model.encoder.embed(TEXTS), plain.encoder.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("family", "keys", "part"),
    [
        ("llama", {"lora": LORA | {"rank": None, "alpha": None}}, "model.lora.rank"),
        ("gpt2", {}, "gpt2"),
    ],
)
def test_nf4_without_an_adapter_or_linear_layers_is_refused(folders, family, keys, part):
    with pytest.raises(InputError) as error:
        built("sroberta", folders[family], **DECODER, **{"lora": LORA, "frozen_dtype": "nf4"} | keys)
    assert (error.value.key, error.value.value) == ("model.frozen_dtype", "nf4")
    assert part in error.value.expected


def test_a_missing_package_is_named(folders, monkeypatch):
    monkeypatch.setattr(
        "contrastive_encoders.encoders.lora.find_spec", lambda name: None if name == "bitsandbytes" else True
    )
    with pytest.raises(InputError) as error:
        built("sroberta", folders["llama"], **DECODER, lora=LORA, frozen_dtype="nf4")
    assert (error.value.key, error.value.value) == ("model.frozen_dtype", "nf4")
    assert "contrastive-encoders[quantization]" in error.value.hint
