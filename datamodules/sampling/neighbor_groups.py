"""Find groups of rows whose first texts are similar according to an encoder, so that the rows of a group are
placed next to each other in the order of an epoch.

Shape letters: N rows, D embedding dimension.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.datamodules.sampling.example_order import Permutation

CANDIDATES_PER_POSITION = (
    8  # candidates for each position of a group; candidates that share a text with the group are skipped
)
BLOCK = 32_768  # rows within which a group is searched: the time is quadratic in their number
_STREAM = 0x4E42  # separates the draw of the groups from the order of every epoch


def rows_to_group(examples: int, num_rows: int, seed: int) -> np.ndarray:
    """Return ``num_rows`` random indices out of 0..examples-1, or all if there are fewer, in random order, as int64."""
    return Permutation(examples, seed, 0, stream=_STREAM)[np.arange(min(num_rows, examples))]


def find_neighbor_groups(vectors_ND: np.ndarray, texts: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Partition the rows 0..N-1 into groups of at most ``size`` similar rows.

    The first remaining row is grouped with its nearest remaining rows by cosine similarity. With many rows, only the
    rows of its block are considered.

    Args:
        vectors_ND: Embeddings of the rows.
        texts: (N,) numbers for each column, equal for equal texts. Rows of a group share no text, which would be a
            false negative.
    """
    vectors_ND = unit_rows(vectors_ND)
    blocks = (np.arange(first, min(first + BLOCK, len(vectors_ND))) for first in range(0, len(vectors_ND), BLOCK))
    return [group for block_M in blocks for group in _groups_of(block_M, vectors_ND, texts, size)]


def _groups_of(
    remaining_M: np.ndarray, vectors_ND: np.ndarray, texts: Sequence[np.ndarray], size: int
) -> Iterator[np.ndarray]:
    while len(remaining_M):
        near = -(vectors_ND[remaining_M] @ vectors_ND[remaining_M[0]])
        near[0] = -np.inf
        most = min(CANDIDATES_PER_POSITION * size, len(remaining_M))
        best = np.argpartition(near, most - 1)[:most]
        rows = remaining_M[best[np.argsort(near[best], kind="stable")]]
        for numbers_N in texts:
            rows = rows[np.sort(np.unique(numbers_N[rows], return_index=True)[1])]
        yield rows[:size]
        remaining_M = remaining_M[~np.isin(remaining_M, rows[:size])]
