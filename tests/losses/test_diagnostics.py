"""Geometry of a batch against loops over pairs, torch.pdist and the singular values themselves."""

import math

import pytest
import torch
import torch.nn.functional as F

from contrastive_encoders.core.embedding_diagnostics import alignment, contrast_diagnostics, effective_rank, uniformity


def rows(count: int, width: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_alignment_is_the_mean_squared_distance():
    left, right = rows(7, 5), rows(7, 5, seed=1)
    total = 0.0
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        total += sum((x / math.hypot(*a) - y / math.hypot(*b)) ** 2 for x, y in zip(a, b, strict=True))
    assert alignment(left, right).item() == pytest.approx(total / 7, rel=1e-12)


@pytest.mark.parametrize("block", [1, 4, 1024])
def test_uniformity_is_wang_and_isolas(block, monkeypatch):
    """The truth is their published line: torch.pdist(x, p=2).pow(2).mul(-t).exp().mean().log()"""
    monkeypatch.setattr("contrastive_encoders.core.embedding_diagnostics.BLOCK_ROWS", block)
    sample = rows(9, 5)
    expected = torch.pdist(F.normalize(sample, dim=-1)).pow(2).mul(-2).exp().mean().log()
    assert uniformity(sample).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
def test_effective_rank_is_the_entropy_of_the_singular_values(shape):
    sample = rows(*shape)
    values = torch.linalg.svdvals(sample).tolist()
    entropy = -sum(v / sum(values) * math.log(v / sum(values)) for v in values)
    assert effective_rank(sample).item() == pytest.approx(math.exp(entropy), rel=1e-9)


def test_diagnostics_are_detached_float32_scalars_of_what_they_say():
    left, right = (rows(8, 5, seed, torch.float32).requires_grad_() for seed in (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = contrast_diagnostics(left, right)
    both = torch.cat([left, right]).detach()
    expected = {
        "alignment": alignment(left, right),
        "uniformity": (uniformity(left) + uniformity(right)) / 2,
        "embedding_norm": both.norm(dim=1).mean(),
        "effective_rank": effective_rank(both).float(),
    }
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert (value.dtype, value.shape, value.requires_grad) == (torch.float32, (), False)
        torch.testing.assert_close(value, expected[name].detach())
