"""Truth: the same sequences padded, with transformers' own attention and masks."""

import functools
import importlib.util

import numpy as np
import pytest
import torch
import transformers
from transformers import modeling_utils

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged
from contrastive_encoders.encoders import sentence_encoder
from contrastive_encoders.encoders.kernels import unpadded
from contrastive_encoders.encoders.kernels.bf16_weights import cast_frozen_to_bf16
from contrastive_encoders.encoders.kernels.chunks import Chunk
from contrastive_encoders.encoders.kernels.unpadded import (
    first_position,
    pack_sequences,
    packed_attention,
    set_attn_implementation,
)
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": 60}
ENCODER = {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(**ENCODER),
    "roberta": lambda: transformers.RobertaConfig(**ENCODER, max_position_embeddings=64),
    "electra": lambda: transformers.ElectraConfig(**ENCODER, embedding_size=16),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=24, dropout=0.0, attention_dropout=0.0
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **SMALL, pad_token_id=1, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, local_attention=16
    ),
    "llama": lambda: transformers.LlamaConfig(**DECODER),
    "llama both ways": lambda: transformers.LlamaConfig(**DECODER, is_causal=False),
    "mistral": lambda: transformers.MistralConfig(**DECODER, sliding_window=8),
    "qwen3 both ways": lambda: transformers.Qwen3Config(**DECODER, head_dim=8, is_causal=False),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=60, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=1
    ),
}
UNPACKED = {
    "mpnet": lambda: transformers.MPNetConfig(**ENCODER),
    "t5": lambda: transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, num_layers=2, num_heads=2, dropout_rate=0.0),
    "gemma2": lambda: transformers.Gemma2Config(**DECODER, head_dim=8),
    "phimoe, whose window is in its mask alone": lambda: transformers.PhimoeConfig(
        **DECODER, sliding_window=8, num_local_experts=2, num_experts_per_tok=1
    ),
    "mistral both ways, whose window is one token wider": lambda: transformers.MistralConfig(
        **DECODER, sliding_window=8, is_causal=False
    ),
    "esm": lambda: transformers.EsmConfig(
        **ENCODER, pad_token_id=1, mask_token_id=4, token_dropout=True, position_embedding_type="rotary"
    ),
}
LENGTHS = [3, 31, 7, 7, 20, 12, 4, 31, 22, 9, 1]


def tokenizer():
    return type("Pads", (), {"pad_token_id": 1, "model_max_length": 60})()


def make(config, attn_implementation, *, lm_head=False, **options):
    torch.manual_seed(1)
    factory = transformers.AutoModel
    if config.model_type == "t5":
        factory = transformers.AutoModelForTextEncoding
    elif lm_head:
        fills = type(config) in transformers.AutoModelForMaskedLM._model_mapping
        factory = transformers.AutoModelForMaskedLM if fills else transformers.AutoModelForCausalLM
    model = factory.from_config(config)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return SentenceEncoder(model, tokenizer(), attn_implementation=attn_implementation, **options).train()


def sequences_and_labels(lengths=None):
    lengths = lengths or LENGTHS
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(5, 60, sum(lengths)))
    labels = torch.where(torch.from_numpy(rng.random(sum(lengths)) < 0.2), ids, IGNORED_LABEL)
    return Ragged(ids, np.array(lengths)), labels


def outcome(encoder, labeled, seed=3):
    """Return embeddings, the MLM loss and all gradients."""
    sequences, labels = sequences_and_labels()
    torch.manual_seed(seed)
    encoded = encoder.encode_sequences(sequences, labels if labeled else None)
    weights = torch.linspace(-1, 1, encoded.vectors.numel()).view_as(encoded.vectors)
    ((encoded.vectors * weights).sum() + encoded.mlm_sum).backward()
    gradients = [p.grad.flatten() for p in encoder.parameters() if p.grad is not None]
    return encoded.vectors.detach(), encoded.mlm_sum.detach(), torch.cat(gradients), encoded.padding_tokens


def assert_same(ours, theirs, filler=0):
    for own, other in zip(ours[:3], theirs[:3], strict=True):
        assert (own - other).norm() <= 1e-5 * max(other.norm(), 1)
    assert ours[3] == filler < theirs[3]


@pytest.mark.parametrize("fill", [0, 13], ids=["as it is", "filled"])
@pytest.mark.parametrize("family", CONFIGS)
def test_vectors_loss_and_gradients_are_the_padded_ones(family, fill, monkeypatch):
    for module in (unpadded, sentence_encoder):
        monkeypatch.setattr(module, "num_filler_tokens", lambda tokens, device: fill)
    labeled = family != "gpt2"
    ours, theirs = (
        outcome(make(CONFIGS[family](), how, lm_head=labeled, activation_checkpointing="off"), labeled)
        for how in ("auto", "sdpa")
    )
    assert_same(ours, theirs, fill)


@pytest.mark.parametrize("activation_checkpointing", ["off", "on"])
def test_rows_in_half_precision_have_few_lengths(activation_checkpointing):
    ours, theirs = (
        make(CONFIGS["bert"](), how, activation_checkpointing=activation_checkpointing) for how in ("unpadded", "sdpa")
    )
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = outcome(ours, False), outcome(theirs, False)
    assert torch.cosine_similarity(ours[0], theirs[0]).min() > 0.999
    assert torch.cosine_similarity(ours[2], theirs[2], dim=0) > 0.999
    assert ours[3] == 160 - sum(LENGTHS)
    lengths = np.arange(1, 40_000)
    with torch.autocast("cpu", torch.bfloat16):
        filled = np.array([unpadded.num_filler_tokens(int(one), torch.device("cpu")) for one in lengths])
    assert len(set(lengths + filled)) < 250
    assert (filled[lengths >= 1024] <= lengths[lengths >= 1024] / 31).all()


@pytest.mark.parametrize("pooling", ["cls", "max", "last", "weighted_mean", "avg_first_last"])
@pytest.mark.parametrize("activation_checkpointing", ["off", "on", "layers"])
def test_any_pooling_in_any_number_of_rows(pooling, activation_checkpointing):
    ours = outcome(
        make(
            CONFIGS["bert"](),
            "unpadded",
            pooling=pooling,
            token_budget=40,
            activation_checkpointing=activation_checkpointing,
        ),
        False,
    )
    assert_same(ours, outcome(make(CONFIGS["bert"](), "sdpa", pooling=pooling), False))


@pytest.mark.parametrize("family", UNPACKED)
def test_other_families_are_padded_and_unpadded_is_refused(family):
    ours, theirs = (make(UNPACKED[family](), how) for how in ("auto", "sdpa"))
    assert all(torch.equal(*pair) for pair in zip(outcome(ours, False)[:3], outcome(theirs, False)[:3], strict=True))
    assert "padded" in ours.attention_plan(torch.device("cpu")).why
    with pytest.raises(InputError) as error:
        make(UNPACKED[family](), "unpadded").encode_sequences(sequences_and_labels()[0])
    assert (error.value.key, error.value.value) == ("model.attn_implementation", "unpadded")


@pytest.mark.parametrize("tolerance", ["SAME_CPU", "SAME_ELSEWHERE"])
@pytest.mark.parametrize("cast", [lambda trunk: trunk.float(), lambda trunk: trunk.bfloat16(), cast_frozen_to_bf16])
@pytest.mark.parametrize(
    ("made", "first"),
    [
        (transformers.PhimoeConfig, None),  # the window exists only in its mask
        (functools.partial(transformers.MistralConfig, is_causal=False), None),  # one token wider
        (transformers.MistralConfig, 0),
    ],
)
def test_a_window_of_thousands_is_found_in_every_precision(made, first, cast, tolerance, monkeypatch):
    monkeypatch.setattr(unpadded, "SAME_CPU", getattr(unpadded, tolerance))
    torch.manual_seed(1)
    trunk = transformers.AutoModel.from_config(made(**DECODER, sliding_window=4096)).requires_grad_(False)
    for weight in trunk.parameters():
        weight.mul_(5 if weight.dim() > 1 else 1)  # new weights are so small that attention hardly changes a state
    cast(trunk)
    assert first_position(trunk) == first
    assert trunk.config.sliding_window == 4096
    windows = {module.sliding_window for module in trunk.modules() if hasattr(module, "sliding_window")}
    assert windows <= {4096}
    with torch.autocast("cpu", torch.bfloat16):
        assert first_position(trunk) == first


def test_a_window_of_an_odd_number_of_tokens_stays_as_it_was():
    """ModernBERT's config stores the total window of both sides, and returns the window of each side."""
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.ModernBertConfig(**shape, vocab_size=64, local_attention=129, pad_token_id=0)
    trunk = transformers.AutoModel.from_config(config)
    before = trunk.config.to_dict()
    assert first_position(trunk) == 0
    assert trunk.config.to_dict() == before


def row_of(lengths, device):
    lengths = np.sort(np.array(lengths))[::-1].copy()
    return pack_sequences(lengths, Chunk(np.arange(len(lengths)), int(lengths[0])), torch.device(device))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scaling": 0.3}, {"sliding_window": 5}, {"sliding_window": 5, "is_causal": True}],
)
def test_a_kernel_of_a_gpu_attends_as_runs_do(options, groups, dtype):
    torch.manual_seed(1)
    inputs = [torch.randn(1, heads, sum(LENGTHS), 8) for heads in (4, 4 // groups, 4 // groups)]
    found = []
    for device in ("cpu", "cuda"):
        module = torch.nn.Module()
        module.is_causal, module.num_key_value_groups = False, groups
        states = [one.clone().to(device, dtype if device == "cuda" else torch.float32) for one in inputs]
        states = [one.detach().requires_grad_() for one in states]
        attended = packed_attention(module, *states, None, row=row_of(LENGTHS, device), **options)[0]
        attended.float().square().sum().backward()
        found.append([one.cpu().float() for one in (attended.detach(), *(one.grad for one in states))])
    for slow, fast in zip(*found, strict=True):
        assert (slow - fast).norm() <= (1e-3 if dtype == torch.float32 else 2e-2) * slow.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_of_a_gpu_drops_what_it_is_asked_to(dtype):
    query, key, value = (torch.full((1, 2, 400, 8), one, device="cuda", dtype=dtype) for one in (0, 0, 1))
    found = packed_attention(torch.nn.Module(), query, key, value, None, row=row_of([400], "cuda"), dropout=0.5)[0]
    assert found.float().std() > 0.01  # without it each is 1
    assert found.float().mean().item() == pytest.approx(1, abs=0.02)


def test_dropout_does_not_pad():
    config = transformers.BertConfig(**SMALL, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    assert outcome(make(config, "auto"), False)[3] == 0
    assert outcome(make(config, "sdpa"), False)[3] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("family", [name for name in CONFIGS if name != "gpt2"])
def test_a_step_on_a_gpu_is_the_padded_one(family, autocast):
    found = []
    for how in ("auto", "sdpa"):
        encoder = make(CONFIGS[family](), how, lm_head=True, activation_checkpointing="off").cuda()
        sequences, labels = sequences_and_labels()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            encoded = encoder.encode_sequences(Ragged(sequences.ids.cuda(), sequences.lengths), labels.cuda())
        weights = torch.linspace(-1, 1, encoded.vectors.numel(), device="cuda").view_as(encoded.vectors)
        ((encoded.vectors * weights).sum() + encoded.mlm_sum).backward()
        gradient = torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None])
        found.append((encoded.vectors.detach(), encoded.mlm_sum.detach(), gradient))
        assert encoder.attention_plan(torch.device("cuda")).is_packed == (how == "auto")
    for own, other in zip(*found, strict=True):
        assert (own - other).norm() <= (3e-2 if autocast else 1e-3) * max(other.norm(), 1)


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("kernels-community/flash-attn", "hub"),
        ("fast", "transformers"),
        ("paged|eager", "training"),
    ],
)
def test_unknown_attention_implementations_are_refused(asked, part):
    with pytest.raises(InputError) as error:
        set_attn_implementation(make(CONFIGS["bert"](), "auto").transformer, asked, "b")
    assert (error.value.key, error.value.value) == ("model.attn_implementation", asked)
    assert part in str(error.value)


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="it is installed")
def test_hub_code_does_not_replace_a_missing_package(monkeypatch):
    loaded = []
    monkeypatch.setattr(modeling_utils, "is_kernels_available", lambda: True)  # from the package `kernels`
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", lambda name, **_: loaded.append(name))
    with pytest.raises(InputError) as error:
        set_attn_implementation(make(CONFIGS["bert"](), "auto").transformer, "flash_attention_2", "b")
    assert (error.value.key, error.value.value) == ("model.attn_implementation", "flash_attention_2")
    assert not loaded


def test_an_attention_without_a_backward_pass_is_refused_before_the_first_step():
    with pytest.raises(InputError) as error:
        make(CONFIGS["bert"](), "flex_attention").attention_plan(torch.device("cpu"))
    assert (error.value.key, error.value.value) == ("model.attn_implementation", "flex_attention")
