"""What a classifier sees of one or two sentences' vectors. Shape letters: N rows, D width of a vector, E of a row."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from evaluation.embed import Pool
from evaluation.linear_probe import Dense, Features

# sentence: u. pair: |a - b|, a * b. inference: a, b, a * b, |a - b|, made for each batch: SNLI has 569,000 rows
Combination = Literal["sentence", "pair", "inference"]


class Inference:
    """The four parts of InferSent (Conneau et al. 2017), of a batch's rows at a time."""

    def __init__(self, left_ND: Tensor, right_ND: Tensor, device: torch.device | str = "cpu") -> None:
        self.left_ND, self.right_ND = left_ND, right_ND
        self.width, self.dtype = 4 * left_ND.shape[1] + 1, left_ND.dtype
        self.device, self.index_device = torch.device(device), torch.device("cpu")

    def take(self, rows: Tensor) -> Tensor:
        a, b = (side.index_select(0, rows.flatten()).to(self.device) for side in (self.left_ND, self.right_ND))
        flat = torch.cat([a, b, a * b, (a - b).abs(), a.new_ones(len(a), 1)], dim=1)
        return flat.view(*rows.shape, self.width)


def features_of(combination: Combination, pool: Pool, sides: Sequence[Sequence[str]], device: torch.device) -> Features:
    if combination == "sentence":
        return Dense(pool.of(sides[0]), device)
    left_ND, right_ND = (pool.of(side) for side in sides)
    if combination == "inference":
        return Inference(left_ND, right_ND, device)
    return Dense(torch.cat([(left_ND - right_ND).abs(), left_ND * right_ND], dim=1), device)
