"""Truth: the layers themselves."""

import pytest
import torch
from torch import nn

from contrastive_encoders.encoders.kernels.onednn_layers import WORTH_IT_TOKENS, available, packed_linears


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 8, bias=False)).to(dtype).eval()


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("shape", [(7, 16), (2, 5, 16), (1, 1, 16)])
def test_the_same_values_and_the_layers_come_back(dtype, atol, shape):
    layers, x = model(dtype), torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    strided = torch.randn(*shape[:-1], 32).to(dtype)[..., ::2]
    with torch.no_grad():
        expected = layers(x), layers(strided)
        with packed_linears(layers, WORTH_IT_TOKENS):
            found = layers(x), layers(strided)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)
    assert not any("forward" in vars(layer) for layer in layers)


def test_weights_that_changed_are_used_the_next_time():
    layers, x = model(), torch.ones(3, 16)
    for _ in range(2):
        with torch.no_grad(), packed_linears(layers, WORTH_IT_TOKENS):
            found = layers(x)
        torch.testing.assert_close(found, layers(x))
        nn.init.normal_(layers[0].weight)


@pytest.mark.skipif(not available(torch.bfloat16), reason="oneDNN multiplies nothing in bfloat16 here")
def test_under_autocast_values_are_autocasts():
    layers, x = model(), torch.randn(9, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = layers(x)
        with packed_linears(layers, WORTH_IT_TOKENS):
            assert all("forward" in vars(layer) for layer in layers if isinstance(layer, nn.Linear))
            found = layers(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=0)
    assert {weight.dtype for weight in layers.parameters()} == {torch.float32}


@pytest.mark.parametrize("case", ["gradient", "few tokens", "fp16"])
def test_where_it_cannot_help_nothing_happens(case):
    layers = model(torch.float16 if case == "fp16" else torch.float32)
    tokens = 10 if case == "few tokens" else WORTH_IT_TOKENS
    with torch.set_grad_enabled(case == "gradient"), packed_linears(layers, tokens):
        assert not any("forward" in vars(layer) for layer in layers)
    torch.set_grad_enabled(True)


def test_a_long_list_of_texts_has_the_vectors_of_short_ones(tiny_mlm):
    from contrastive_encoders.encoders.loading.load import load_encoder

    encoder = load_encoder(tiny_mlm)
    texts = [f"The ferry number {number} leaves the harbour before the market opens." for number in range(300)]
    assert encoder.tokenize(texts).lengths.sum() > WORTH_IT_TOKENS
    alone = torch.cat([encoder.embed([text]) for text in texts[::30]])
    torch.testing.assert_close(encoder.embed(texts)[::30], alone, atol=1e-5, rtol=0)


def test_the_probe_draws_nothing():
    """The first step of a process probes; if this drew random numbers, a resumed run would have other dropout."""
    available.cache_clear()
    before = torch.random.get_rng_state()
    available(torch.float32)
    assert torch.equal(torch.random.get_rng_state(), before)
