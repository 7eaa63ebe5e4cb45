"""Classifier features of one or two sentence embeddings, with a bias column.

Shape letters: N rows, U texts, D width of an embedding, E width of a row.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, finite_rows

# sentence: u. pair: |a - b|, a * b. inference: a, b, a * b, |a - b|, built for each batch because SNLI has 569,000 rows
Combination = Literal["sentence", "pair", "inference"]


class DenseFeatures:
    """Precomputed features of all rows, kept on the device."""

    def __init__(self, rows_ND: Tensor, device: torch.device | str = "cpu") -> None:
        self.rows_NE = torch.cat([rows_ND, rows_ND.new_ones(len(rows_ND), 1)], dim=1).to(device)
        self.width, self.device, self.dtype = self.rows_NE.shape[1], self.rows_NE.device, self.rows_NE.dtype
        self.index_device = self.device  # device of the row numbers for ``take``

    def take(self, rows: Tensor) -> Tensor:
        """Return the features of the given rows, (..., width), on the device."""
        return self.rows_NE.index_select(0, rows.flatten()).view(*rows.shape, self.width)


class Inference:
    """InferSent's features a, b, a * b, and |a - b| (Conneau et al. 2017), built for one batch at a time."""

    def __init__(
        self, pool: EmbeddingPool, left: Sequence[str], right: Sequence[str], device: torch.device | str
    ) -> None:
        self.vectors_UD = _finite(pool.vectors_UD)
        self.places = [torch.tensor(pool.rows(side), dtype=torch.long) for side in (left, right)]
        self.width, self.dtype = 4 * self.vectors_UD.shape[1] + 1, self.vectors_UD.dtype
        self.device, self.index_device = torch.device(device), torch.device("cpu")

    def take(self, rows: Tensor) -> Tensor:
        """Return the features of the given rows, (..., 4 D + 1) for embeddings with D dimensions."""
        flat = rows.flatten()
        a, b = (self.vectors_UD.index_select(0, place_N[flat]).to(self.device) for place_N in self.places)
        return torch.cat([a, b, a * b, (a - b).abs(), a.new_ones(len(a), 1)], dim=1).view(*rows.shape, self.width)


Features = DenseFeatures | Inference


def features_of(
    combination: Combination, pool: EmbeddingPool, sides: Sequence[Sequence[str]], device: torch.device
) -> Features:
    """Return the classifier features of N rows. ``sides`` contains one or two lists of N texts."""
    if combination == "inference":
        left, right = sides
        return Inference(pool, left, right, device)
    vectors = [_finite(pool.lookup(side)) for side in sides]
    if combination == "sentence":
        return DenseFeatures(vectors[0], device)
    a_ND, b_ND = vectors
    return DenseFeatures(torch.cat([(a_ND - b_ND).abs(), a_ND * b_ND], dim=1), device)


def _finite(vectors_ND: Tensor) -> Tensor:
    """Replace embeddings that are not finite by zeros, because one such embedding would break every classifier."""
    return finite_rows(vectors_ND, message="embeddings contain NaN or infinity and count as zeros")
