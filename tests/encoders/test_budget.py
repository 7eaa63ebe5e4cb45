"""Truth: 68 bytes per layer, feature and token; 16 per trained weight, 4 per frozen one; half of the free memory."""

import pytest
import torch
import transformers

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
