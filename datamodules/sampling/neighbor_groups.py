"""Groups of rows whose first texts an encoder finds near each other, to stand side by side in a batch.

Shape letters: N rows, D width of a vector.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.datamodules.sampling.distributed_sampler import Permutation

MOST = 8  # candidates for each place of a group: those with a text that the group has are passed over
BLOCK = 32_768  # rows among which a group is looked for: the time grows with their square
_STREAM = 0x4E42  # keeps the draw of the groups apart from every epoch's order


def grouped_rows(examples: int, wanted: int, seed: int) -> np.ndarray:
    """``wanted`` of 0..examples-1 or all of them, drawn at random: int64, in the order in which groups begin."""
    return Permutation(examples, seed, 0, stream=_STREAM)[np.arange(min(wanted, examples))]


def neighbour_groups(vectors_ND: np.ndarray, texts: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Groups of ``size`` of the rows 0..N-1 or fewer, each row in one.

    The first row that is left takes along the nearest of the others by cosine, of many rows those of its block.
    ``texts`` has (N,) numbers for each column, equal where texts are: rows of a group share no text, which would make a
    false negative.
    """
    vectors_ND = unit_rows(vectors_ND)
    blocks = (np.arange(first, min(first + BLOCK, len(vectors_ND))) for first in range(0, len(vectors_ND), BLOCK))
    return [group for block_M in blocks for group in _groups_of(block_M, vectors_ND, texts, size)]


def _groups_of(
    left_M: np.ndarray, vectors_ND: np.ndarray, texts: Sequence[np.ndarray], size: int
) -> Iterator[np.ndarray]:
    while len(left_M):
        near = -(vectors_ND[left_M] @ vectors_ND[left_M[0]])
        near[0] = -np.inf
        most = min(MOST * size, len(left_M))
        best = np.argpartition(near, most - 1)[:most]
        rows = left_M[best[np.argsort(near[best], kind="stable")]]
        for numbers_N in texts:
            rows = rows[np.sort(np.unique(numbers_N[rows], return_index=True)[1])]
        yield rows[:size]
        left_M = left_M[~np.isin(left_M, rows[:size])]
