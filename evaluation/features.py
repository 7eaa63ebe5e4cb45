"""What a classifier sees of one or two sentences' vectors. Shape letters: N rows, U texts, D width of a vector."""

import logging
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from evaluation.embed import Pool
from evaluation.linear_probe import Dense, Features

log = logging.getLogger(__name__)

# sentence: u. pair: |a - b|, a * b. inference: a, b, a * b, |a - b|, made for each batch: SNLI has 569,000 rows
Combination = Literal["sentence", "pair", "inference"]


class Inference:
    """The four parts of InferSent's features (Conneau et al. 2017), of one batch's rows at a time."""

    def __init__(self, pool: Pool, left: Sequence[str], right: Sequence[str], device: torch.device | str) -> None:
        self.vectors_UD = _finite(pool.vectors_UD)
        self.places = [torch.tensor([pool.row_of[text] for text in side], dtype=torch.long) for side in (left, right)]
        self.width, self.dtype = 4 * self.vectors_UD.shape[1] + 1, self.vectors_UD.dtype
        self.device, self.index_device = torch.device(device), torch.device("cpu")

    def take(self, rows: Tensor) -> Tensor:
        """(..., 4 D + 1) for row numbers (...)."""
        flat = rows.flatten()
        a, b = (self.vectors_UD.index_select(0, place_N[flat]).to(self.device) for place_N in self.places)
        return torch.cat([a, b, a * b, (a - b).abs(), a.new_ones(len(a), 1)], dim=1).view(*rows.shape, self.width)


def features_of(combination: Combination, pool: Pool, sides: Sequence[Sequence[str]], device: torch.device) -> Features:
    """The features of N rows; ``sides`` holds one list of N texts, or two."""
    if combination == "inference":
        left, right = sides
        return Inference(pool, left, right, device)
    first_ND, *others = (_finite(pool.of(side)) for side in sides)
    if combination == "sentence":
        return Dense(first_ND, device)
    (second_ND,) = others
    return Dense(torch.cat([(first_ND - second_ND).abs(), first_ND * second_ND], dim=1), device)


def _finite(vectors_ND: Tensor) -> Tensor:
    """Zeros for a vector that is not finite, with a line in the log: one would spoil every classifier."""
    good_N = vectors_ND.isfinite().all(1)
    if bool(good_N.all()):
        return vectors_ND
    log.warning("%d of %d vectors are not finite; they count as zeros", int((~good_N).sum()), len(good_N))
    return torch.where(good_N[:, None], vectors_ND, 0.0)
