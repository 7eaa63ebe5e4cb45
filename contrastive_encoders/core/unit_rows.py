"""Scale embeddings to length 1."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command line that only prints its help must not wait for NumPy
    import numpy as np


def unit_rows(rows_ND: "np.ndarray") -> "np.ndarray":
    """Return the (N, D) rows scaled to length 1, with their dtype; rows of zeros stay as they are."""
    import numpy as np

    units_ND: np.ndarray = rows_ND / np.maximum(np.linalg.norm(rows_ND, axis=1, keepdims=True), 1e-12)
    return units_ND
