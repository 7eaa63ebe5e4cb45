"""Unit vectors: what a cosine is made of."""

import logging

import torch
from torch import Tensor
from torch.nn.functional import normalize

log = logging.getLogger(__name__)

# Cosines of float64 rows are rounded to this many digits: equal texts must tie, whatever the order of summation.
DIGITS = 12


def finite_rows(vectors_ND: Tensor, name: str) -> Tensor:
    """Rows that hold NaN or infinity become zero; a logged line says how many."""
    finite_N = vectors_ND.isfinite().all(-1)
    if not bool(finite_N.all()):
        log.warning("%s: %d of %d vectors are not finite; they count as 0", name, int((~finite_N).sum()), len(finite_N))
    return torch.where(finite_N.unsqueeze(-1), vectors_ND, 0.0)


def unit_rows(vectors_ND: Tensor, name: str) -> Tensor:
    """Rows of length 1; zero rows and those that are not finite are zero, so that their cosines are 0."""
    return normalize(finite_rows(vectors_ND, name), dim=-1)
