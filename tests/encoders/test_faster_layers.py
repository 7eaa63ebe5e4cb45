"""Truth: the layers and the step without any of the faster implementations."""

import contextlib
from contextlib import nullcontext as nothing

import pytest
import torch
from torch import nn
from transformers import AutoModel

import contrastive_encoders.encoders.sentence_encoder as under_test
from contrastive_encoders.encoders.kernels import onednn_layers
from contrastive_encoders.encoders.kernels.bf16_weights import cast_frozen_to_bf16
from contrastive_encoders.encoders.kernels.gpu_kernels import aligned_linear
from contrastive_encoders.encoders.kernels.onednn_layers import available, fast_linears, shared_between_chunks
from contrastive_encoders.encoders.loading.backbones import load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

TEXTS = ["a ferry", "the harbour market opens before the ferry leaves", "no", "the ferry leaves the market again"]


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 8, bias=False))


@pytest.mark.skipif(not available(torch.float32), reason="this build or processor has no oneDNN worth using")
@pytest.mark.parametrize("shape", [(7, 16), (2, 5, 16), (1, 1, 16), (0, 16)])
def test_values_and_gradients_of_linear_layers(shape, monkeypatch):
    monkeypatch.setattr(onednn_layers, "is_mkl_fast", lambda: False)
    plain, fast, x = layers(), layers(), torch.randn(*shape[:-1], 32)[..., ::2]
    found = []
    for module, context in ((plain, contextlib.nullcontext()), (fast, fast_linears(fast))):
        given = x.clone().requires_grad_()
        with context:
            assert ("forward" in vars(module[0])) == (module is fast)
            y = module(given)
        y.square().sum().backward()  # outside, as a training step does it
        found.append([y, given.grad, *(weight.grad for weight in module.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not available(torch.float32), reason="this build or processor has no oneDNN worth using")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("autocast", [False, True])
def test_values_and_gradients_of_layers_with_an_adapter(autocast, dropout, held):
    """Truth: peft's own forward."""
    peft = pytest.importorskip("peft")
    found = []
    for fast in (False, True):
        module = layers().requires_grad_(False)
        config = peft.LoraConfig(r=4, lora_alpha=12, lora_dropout=dropout, target_modules=["0", "2"])
        peft.inject_adapter_in_model(config, module)
        for layer in (module[0], module[2]):
            nn.init.normal_(layer.lora_B["default"].weight, generator=torch.Generator().manual_seed(3))
            nn.init.normal_(layer.lora_A["default"].weight, generator=torch.Generator().manual_seed(4))
        cast_frozen_to_bf16(*([module] if held else []))
        x = torch.linspace(-1, 1, 2 * 5 * 16).view(2, 5, 16).requires_grad_()
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), fast_linears(module) if fast else nothing():
            assert ("forward" in vars(module[0])) == fast
            y = module(x)
        y.float().square().sum().backward()
        found.append([y.float(), x.grad, *(weight.grad for weight in module.parameters() if weight.requires_grad)])
    assert len(found[0]) == 6
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() <= (2e-2 if autocast else 1e-5) * theirs.norm()


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_an_embedding_gets_the_same_gradient_from_two_chunks(padding_idx):
    plain, shared = (nn.Embedding(9, 4, padding_idx=padding_idx) for _ in range(2))
    shared.load_state_dict(plain.state_dict())
    ids = torch.tensor([7, 3, 3, 5, 8])
    chunks = torch.tensor([[7, 3], [5, 1]]), torch.tensor([[3, 8, 1]])
    for embedding, context in (
        (plain, contextlib.nullcontext()),
        (shared, shared_between_chunks(shared, ids, pad=1)),
    ):
        with context:
            out = [embedding(chunk) for chunk in chunks]
        sum(one.square().sum() for one in out).backward()
    assert torch.equal(shared.weight.grad, plain.weight.grad)
    assert "forward" not in vars(shared)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("activation_checkpointing", ["off", "on", "layers"])
def test_a_step_of_several_chunks_has_the_gradient_of_plain_layers(
    tiny_mlm, monkeypatch, activation_checkpointing, bf16
):
    gradients = []
    for plain in (True, False):
        if plain:
            monkeypatch.setattr(under_test, "fast_layers", lambda module: contextlib.nullcontext())
            monkeypatch.setattr(under_test, "shared_between_chunks", lambda *_: contextlib.nullcontext())
        else:
            monkeypatch.undo()
            monkeypatch.setattr(onednn_layers, "is_mkl_fast", lambda: False)
        transformer = AutoModel.from_pretrained(tiny_mlm, add_pooling_layer=False).eval()
        encoder = SentenceEncoder(
            transformer,
            load_tokenizer(str(tiny_mlm)),
            token_budget=12,
            activation_checkpointing=activation_checkpointing,
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
            vectors = encoder.encode_sequences(encoder.tokenize(TEXTS)).vectors
        vectors.square().sum().backward()
        gradients.append({name: weight.grad for name, weight in transformer.named_parameters()})
    for name, gradient in gradients[0].items():
        scale = float(gradient.abs().max())
        tolerance = (2e-2 if bf16 else 1e-5) * scale + 1e-6
        torch.testing.assert_close(gradients[1][name], gradient, atol=tolerance, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_rows_of_zeros_change_neither_products_nor_gradients(bias, autocast):
    torch.manual_seed(0)
    linear, found = nn.Linear(16, 75, bias=bias), []
    given = torch.randn(2, 5, 16)
    for product in (linear, lambda states: aligned_linear(states, linear.weight, linear.bias)):
        linear.zero_grad()
        states = given.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = product(states)
        logits.float().logsumexp(dim=-1).sum().backward()
        found.append([logits, states.grad, *(weight.grad.clone() for weight in linear.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if autocast else 1e-6, atol=1e-2 if autocast else 1e-6)


@pytest.mark.skipif(not available(torch.float32), reason="this build or processor has no oneDNN worth using")
def test_only_frozen_bf16_weights_use_onednn_if_mkl_is_fast(monkeypatch):
    monkeypatch.setattr(onednn_layers, "is_mkl_fast", lambda: True)
    module = layers()
    module[0].requires_grad_(False)
    cast_frozen_to_bf16(module)
    with fast_linears(module):
        assert ["forward" in vars(layer) for layer in module] == [True, False, False]
