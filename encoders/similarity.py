"""Similarity functions of embeddings, named as in sentence-transformers.

Shape letters: N, M embeddings, D width.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from contrastive_encoders.core import InputError

SIMILARITIES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda a_ND, b_MD: normalize(a_ND, dim=-1) @ normalize(b_MD, dim=-1).T,
    "dot": lambda a_ND, b_MD: a_ND @ b_MD.T,
    "euclidean": lambda a_ND, b_MD: -torch.cdist(a_ND, b_MD),
    "manhattan": lambda a_ND, b_MD: -torch.cdist(a_ND, b_MD, p=1.0),
}


def similarity_matrix(name: str, embeddings1: Any, embeddings2: Any) -> Tensor:
    """Return the pairwise similarities of two sets of N and M embeddings, (N, M).

    Each set is a tensor, an array, or a list of either. A single embedding is treated as one row.

    Raises:
        InputError: If a set is not an array of numbers, or the two sets have different widths.
    """
    a_ND, b_MD = _as_rows("embeddings1", embeddings1), _as_rows("embeddings2", embeddings2)
    if a_ND.shape[-1] != b_MD.shape[-1]:
        raise InputError(
            key="embeddings2",
            value=tuple(b_MD.shape),
            expected=f"embeddings of dimension {a_ND.shape[-1]}, like embeddings1",
        )
    return SIMILARITIES[name](a_ND, b_MD)


def _as_rows(key: str, embeddings: Any) -> Tensor:
    try:
        several = (
            isinstance(embeddings, list | tuple) and len(embeddings) and not isinstance(embeddings[0], int | float)
        )
        rows_ND = torch.stack([torch.as_tensor(one) for one in embeddings]) if several else torch.as_tensor(embeddings)
    except (TypeError, ValueError, RuntimeError):  # of torch
        rows_ND = None
    if rows_ND is None or rows_ND.ndim not in (1, 2):
        shown = type(embeddings).__name__ if rows_ND is None else f"an array of shape {tuple(rows_ND.shape)}"
        raise InputError(
            key=key,
            value=shown,
            expected="embeddings as an array (rows, width)",
            hint="If these are texts, embed them first, with encode.",
        )
    return rows_ND.unsqueeze(0) if rows_ND.ndim == 1 else rows_ND
