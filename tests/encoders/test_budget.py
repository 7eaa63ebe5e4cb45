"""Truth: 68 bytes per layer, feature and token; 16 per trained weight, 4 per frozen one; half of the free memory."""

import numpy as np
import pytest
import torch
import transformers

from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.kernels import token_budget as budget
from contrastive_encoders.encoders.kernels.token_budget import affordable_tokens
from tests.objectives import built

CPU = torch.device("cpu")


def test_without_a_budget_8_gib_of_activations_are_affordable_or_half_of_a_gpu():
    with torch.device("meta"):
        base = transformers.RobertaForMaskedLM(transformers.RobertaConfig())
    assert affordable_tokens([base]) == 8 * 2**30 // (68 * 12 * 768)
    on_a_gpu = affordable_tokens([base], memory=80 * 2**30)
    assert 66_000 < on_a_gpu < 68_000  # half of the 78 GiB that 125 million weights with their moments leave free
    assert affordable_tokens([base], memory=2**30) == 512  # a negative amount is left
    assert affordable_tokens([base.requires_grad_(False)], memory=80 * 2**30) > on_a_gpu + 1_000


@pytest.mark.parametrize(
    ("name", "features", "keys"),
    [
        ("simcse", 2 * 32, {"mlp": False}),
        ("simcse", 2 * 32, {"mlp": False, "guide": True}),
        ("tsdae", 2 * 32 + 2 * 32, {}),  # encoder and decoder
        ("gense_generator", 2 * 32 + 2 * 32, {}),
    ],
)
def test_whatever_shares_a_device_fits_into_it(name, features, keys, tiny_bert, tiny_t5, monkeypatch):
    memory = 2**31
    monkeypatch.setattr(budget, "memory_of", lambda device: memory)
    backbone = tiny_t5 if name == "gense_generator" else tiny_bert
    model = built(name, backbone, **keys | ({"guide": str(tiny_bert)} if "guide" in keys else {}))
    taken = 16 * sum(weight.numel() for weight in model.parameters())
    taken += 4 * sum(weight.numel() for weight in model.guide.encoder.parameters()) if "guide" in keys else 0
    chunked = model.seq2seq if name == "gense_generator" else model.encoder
    assert chunked.budget(CPU) == (memory - taken) // 2 // (68 * features)


@pytest.mark.parametrize("attention", ["unpadded", "sdpa"])
def test_recomputed_chunks_have_small_tensors_and_the_gradient_of_the_batch(attention, tiny_bert, monkeypatch):
    """The gradient of one chunk, which keeps its activations, is the truth."""
    monkeypatch.setattr(budget, "RECOMPUTED_BYTES_CPU", 600 * 4 * 4 * 32)  # 600 tokens of width 32
    ids = torch.randint(5, 50, (1_200,), generator=torch.Generator().manual_seed(4))
    batch = Ragged(ids, np.full(40, 30))
    gradients, tokens = list[list[torch.Tensor]](), list[int]()
    for how in ("off", "auto"):
        keys = {"token_budget": 1_100 if how == "auto" else 2_000, "activation_checkpointing": how}
        encoder = built("pairs", tiny_bert, attn_implementation=attention, **keys).encoder.double()
        encoder.attention_plan(CPU)  # it runs the model, too
        tokens.clear()
        encoder.trunk.embeddings.register_forward_hook(lambda *one: tokens.append(one[2].shape[:2].numel()))
        encoder.encode_sequences(batch).vectors.square().sum().backward()
        gradients.append([weight.grad for weight in encoder.parameters() if weight.grad is not None])
    assert sum(tokens) == 2 * 1_200
    assert max(tokens) <= 600
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
