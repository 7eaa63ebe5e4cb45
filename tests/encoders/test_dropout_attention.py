"""Truth: softmax attention in float64, multiplied by the factors of dropout that identity values reveal, and torch's
gradients of it; the binomial distribution.
"""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, MistralConfig, MistralModel

from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.kernels.chunks import Chunk
from contrastive_encoders.encoders.kernels.cpu_dropout import LEVELS
from contrastive_encoders.encoders.kernels.dropout_attention import dropout_attention, supports_dropout_attention
from contrastive_encoders.encoders.kernels.unpadded import (
    AttentionPlan,
    pack_sequences,
    packed_attention,
    use_packed_attention,
)
from tests.objectives import built
from tests.operators import Operators

P = 0.25
SHAPES = {
    "one block": (3, 2, 8),
    "two blocks of sequences": (30, 2, 80),
    "blocks of one and two heads": (2, 3, 350),
    "a head larger than a block": (1, 2, 530),
}
LARGE = 1, 3, 850  # with several threads, blocks of two heads and of one head


def random_states(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def causal(tokens):
    return torch.ones(tokens, tokens, dtype=torch.bool).tril()[None, None]


def padding(sequences, tokens):
    lengths = torch.arange(sequences) % tokens + 1
    return (torch.arange(tokens) < lengths[:, None])[:, None, None]


MASKS = {
    "none": lambda sequences, tokens: None,
    "padding": padding,
    "causal": lambda sequences, tokens: causal(tokens),
    "both": lambda sequences, tokens: causal(tokens) & padding(sequences, tokens),
}


def attend(states, mask, seed=0, **options):
    torch.manual_seed(seed)
    return dropout_attention(*states, mask, P, **options)


def weights_of(q, k, mask, scale):
    scores = q @ k.mT * scale
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)


def factors_of(q, k, mask, **options):
    """Return the factors of dropout, and attention weights after dropout: with identity values, these are the output.
    The width of a head must be the number of tokens.
    """
    values = torch.eye(q.shape[2], dtype=q.dtype).expand(q.shape)
    weights = attend((q, k, values), mask, **options)
    return (weights != 0).double() / (1 - P), weights


def gradients_of(attention, states, d_out):
    states = [one.clone().requires_grad_() for one in states]
    attention(states).backward(d_out)
    return [one.grad for one in states]


@pytest.fixture(params=[*SHAPES, "several threads"])
def shape(request, threads):
    if request.param in SHAPES:
        return SHAPES[request.param]
    threads(2)
    return LARGE


@pytest.mark.parametrize("mask", MASKS)
def test_values_and_gradients(shape, mask):
    sequences, heads, tokens = shape
    mask, scale = MASKS[mask](sequences, tokens), tokens**-0.5
    states = random_states(4, sequences, heads, tokens, tokens)
    q, k, v, d_out = states
    factors, weights = factors_of(q, k, mask)
    torch.testing.assert_close(weights, weights_of(q, k, mask, scale) * factors)
    torch.testing.assert_close(attend((q, k, v), mask), weights @ v)
    found = gradients_of(lambda states: attend(states, mask), (q, k, v), d_out)
    expected = gradients_of(lambda qkv: weights_of(*qkv[:2], mask, scale) * factors @ qkv[2], (q, k, v), d_out)
    torch.testing.assert_close(found, expected)


CASES = {"standard normal": (1, 0), "scores times 8": (8**0.5, 0), "values with a mean": (1, 4)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 0.003)])
def test_precision(dtype, tolerance, case):
    """With bfloat16, errors are those of converting the weights and the result: scores are not rounded."""
    factor, mean = CASES[case]
    scales, means = torch.tensor([factor, factor, 1, 1]), torch.tensor([0, 0, mean, 0])
    states = random_states(4, 2, 2, 64, 64) * scales.view(4, 1, 1, 1, 1) + means.view(4, 1, 1, 1, 1)
    *states, d_out = states.to(dtype)
    exact = [one.double() for one in states]
    factors, _ = factors_of(*exact[:2], None)
    found = attend(states, None), *gradients_of(lambda states: attend(states, None), states, d_out)

    def slowly(states):
        return weights_of(*states[:2], None, 1 / 8) * factors @ states[2]

    expected = slowly(exact), *gradients_of(slowly, exact, d_out.double())
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


def test_values_of_another_width():
    q, k, v, d_out = (random_states(2, 3, 16, width) for width in (16, 16, 5, 5))
    factors, _ = factors_of(q, k, None)
    found = gradients_of(lambda states: attend(states, None), (q, k, v), d_out)
    expected = gradients_of(lambda qkv: weights_of(*qkv[:2], None, 1 / 4) * factors @ qkv[2], (q, k, v), d_out)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(2, 12, 301), (40, 3, 47)])
def test_random_numbers_do_not_depend_on_the_number_of_threads(shape, threads):
    states, found = torch.ones(3, *shape, 2), []
    for number in (1, 2):
        threads(number)
        found.append(attend(states, None))
    torch.testing.assert_close(*found)


def test_autocast_converts_states_of_different_types():
    q, k, v, d_out = random_states(4, 2, 2, 16, 16).bfloat16()
    mixed = [q.float().requires_grad_(), k.float().requires_grad_(), v.clone().requires_grad_()]
    with torch.autocast("cpu"):
        out = attend(mixed, None)
    out.backward(d_out)
    assert torch.equal(out, attend((q, k, v), None))
    expected = gradients_of(lambda states: attend(states, None), (q, k, v), d_out)
    for state, grad in zip(mixed, expected, strict=True):
        assert torch.equal(state.grad.bfloat16(), grad)


def test_transposed_states_and_a_scale():
    states = random_states(3, 2, 16, 4, 16).transpose(2, 3)
    found = attend(states, None, scale=0.7)
    torch.testing.assert_close(found, attend(states.contiguous(), None, scale=0.7))
    factors, _ = factors_of(*states[:2], None, scale=0.7)
    torch.testing.assert_close(found, weights_of(*states[:2], None, 0.7) * factors @ states[2])


def test_dropped_weights_have_the_probability_p_and_differ_between_blocks():
    shape = SHAPES["blocks of one and two heads"]
    dropped = (factors_of(*torch.zeros(2, *shape, shape[-1]), None, seed=1)[0] == 0).flatten(0, 1).flatten(1)
    counts, number = dropped.sum(1).numpy(), dropped.shape[1]
    deviations = (counts - P * number) ** 2 / (P * (1 - P) * number)
    assert stats.chi2.sf(deviations.sum(), len(counts)) > 1e-3
    correlations = torch.corrcoef(dropped.double()).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / number**0.5


def test_numbers_follow_from_the_seed_and_differ_between_calls():
    states = random_states(3, 2, 2, 16, 16)
    assert torch.equal(attend(states, None, seed=1), attend(states, None, seed=1))
    assert not torch.equal(attend(states, None, seed=1), attend(states, None, seed=2))
    assert not torch.equal(attend(states, None), dropout_attention(*states, None, P))


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 2, 0, 4)])
def test_without_sequences_or_tokens(shape):
    states = torch.zeros(3, *shape).requires_grad_()
    out = attend(states, None)
    out.sum().backward()
    assert out.shape == shape


def test_a_query_without_visible_tokens_has_finite_gradients():
    states = random_states(3, 2, 2, 16, 16).requires_grad_()
    mask = causal(16).clone()
    mask[..., 5, :] = False
    attend(states, mask).sum().backward()
    assert states.grad.isfinite().all()


@pytest.mark.parametrize("p", [0.0, 1e-6, 1 - 1e-6, 1.0])
def test_extreme_probabilities_are_left_to_torch(p):
    query = torch.zeros(1, 2, 4, 4)
    assert not supports_dropout_attention(query, query, p)
    assert supports_dropout_attention(query, query, 0.1)
    assert not supports_dropout_attention(query, query[:, :1], 0.1)


LENGTHS = np.array([9, 4, 3, 3])
SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MODELS = {
    "bert": lambda p: BertModel(BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=p)),
    "gpt2 with another scale in each layer": lambda p: GPT2Model(
        GPT2Config(
            vocab_size=60,
            n_embd=16,
            n_layer=2,
            n_head=2,
            scale_attn_by_inverse_layer_idx=True,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=p,
        )
    ),
    "mistral with a sliding window": lambda p: MistralModel(
        MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=3, attention_dropout=p)
    ),
}


@pytest.fixture(params=MODELS)
def model_of(request):
    def build(p):
        torch.manual_seed(1)
        return MODELS[request.param](p).train()

    return build


def states_of(model):
    row = pack_sequences(LENGTHS, Chunk(np.arange(4), 9), torch.device("cpu"))
    ids = 5 + torch.arange(LENGTHS.sum()) % 50
    with use_packed_attention(model):
        return model(**AttentionPlan(True, 0, "").inputs(ids, row), use_cache=False).last_hidden_state


def test_a_packed_row_without_dropped_weights(model_of):
    """The probability is so small that no weight is dropped: states and gradients are those of inference."""
    found = []
    for p, names in ((0.0, set()), (1 / LEVELS, {"aten::random_", "aten::random_.from"})):
        torch.manual_seed(0)
        model = model_of(p)
        with Operators() as operators:
            states = states_of(model)
        assert {name for name in operators.names if "random_" in name} == names
        states.square().sum().backward()
        found.append([states, *(one.grad for one in model.parameters() if one.grad is not None)])
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


def test_dropped_weights_of_a_packed_row():
    """With identity values, the output of a sequence is its attention weights after dropout."""
    lengths, tokens = np.full(300, 16), 16
    row = pack_sequences(lengths, Chunk(np.arange(300), tokens), torch.device("cpu"))
    q, k = random_states(2, 1, 2, 300 * tokens, tokens)
    v = torch.eye(tokens, dtype=torch.float64).repeat(300, 1).expand(1, 2, -1, -1)
    module = torch.nn.Module()
    out, _ = packed_attention(module, q, k, v, None, row=row, is_causal=False, dropout=0.3, scaling=0.7)
    dropped = out == 0
    assert stats.binomtest(int(dropped.sum()), dropped.numel(), 0.3).pvalue > 1e-3
    sequences = (states.view(2, 300, tokens, tokens).transpose(0, 1) for states in (q[0], k[0]))
    weights = weights_of(*sequences, None, 0.7) / 0.7
    found = out.view(300, tokens, 2, tokens).transpose(1, 2)
    torch.testing.assert_close(found, torch.where(found == 0, 0, weights), atol=1e-4, rtol=0)


def test_recomputed_activations_have_the_same_gradients(model_of):
    found = []
    for run in (states_of, lambda model: checkpoint(states_of, model, use_reentrant=False)):
        model = model_of(0.3)
        torch.manual_seed(0)
        run(model).square().sum().backward()
        found.append([one.grad for one in model.parameters() if one.grad is not None])
    for kept, recomputed in zip(*found, strict=True):
        assert torch.equal(kept, recomputed)


def test_recomputed_layers_and_chunks_have_the_same_gradients(tiny_mlm_with_dropout):
    found = []
    for how in ("off", "on", "layers"):
        encoder = built("pairs", tiny_mlm_with_dropout, activation_checkpointing=how).encoder.train()
        torch.manual_seed(0)
        ids = torch.randint(5, 50, (60,), generator=torch.Generator().manual_seed(1))
        with Operators() as operators:
            encoder.encode_sequences(Ragged(ids, np.full(4, 15))).vectors.sum().backward()
        assert not operators.names & {"aten::bernoulli_.float", "aten::native_dropout"}
        found.append([one.grad for one in encoder.parameters() if one.grad is not None])
    for other in found[1:]:
        for kept, recomputed in zip(found[0], other, strict=True):
            assert torch.equal(kept, recomputed)
