"""L2 normalization of embeddings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command that only prints its help should not import NumPy
    import numpy as np


def unit_rows(rows_ND: "np.ndarray") -> "np.ndarray":
    """Return (N, D) embeddings with L2-normalized rows, in the same dtype. Rows of zeros are not changed.

    `evaluation.embedding_pool.unit_rows` does the same for tensors, and replaces rows with NaN or infinity by zeros.
    """
    import numpy as np

    units_ND: np.ndarray = rows_ND / np.maximum(np.linalg.norm(rows_ND, axis=1, keepdims=True), 1e-12)
    return units_ND
