"""Quantize embeddings, with the same stored values as in sentence-transformers 6, and search in quantized embeddings.

8 bits: the range of a dimension, from its minimum to its maximum, is divided into 255 equal steps. 1 bit: whether a
number is above 0, eight numbers in a byte. ``int8`` and ``binary`` are ``uint8`` and ``ubinary`` minus 128.

Shape letters: N embeddings, D width, W numbers of a stored row, Q queries, K results.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrastive_encoders.core import InputError

EIGHT_BITS, ONE_BIT = ("int8", "uint8"), ("binary", "ubinary")
STEPS = 255
QUERIES, ROWS = 1_024, 16_384  # scored in one block


class SearchResult(NamedTuple):
    rows_QK: NDArray[np.int64]  # rows of the corpus, the best first
    scores_QK: NDArray[np.float32]  # dot products; bits count as -1 and 1


def storage_format(dtype: str, width: int) -> tuple[np.dtype, int]:
    """Return the data type of the stored values, and W, the number of values that are stored for an embedding with
    ``width`` dimensions.
    """
    if dtype in ONE_BIT:
        return np.dtype(np.int8 if dtype == "binary" else np.uint8), -(-width // 8)
    return np.dtype(dtype), width


def ranges_of(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the minimum and the maximum of each of the D dimensions over all blocks (N, D), as a (2, D) float32
    array.
    """
    ranges_2D: np.ndarray | None = None
    for block_ND in blocks:
        both = np.stack([block_ND.min(axis=0), block_ND.max(axis=0)]).astype(np.float32)
        if ranges_2D is None:
            ranges_2D = both
        ranges_2D = np.stack([np.minimum(ranges_2D[0], both[0]), np.maximum(ranges_2D[1], both[1])])
    if ranges_2D is None:
        raise InputError("Ranges cannot be computed without embeddings.")
    return ranges_2D


def quantize(vectors_ND: np.ndarray, dtype: str, ranges_2D: np.ndarray | None = None) -> np.ndarray:
    """Quantize N embeddings to int8, uint8, binary, or ubinary, with W stored values each: (N, D) -> (N, W). The types
    int8 and uint8 require ranges, to which values are clipped.

    Raises:
        InputError: a number is NaN or infinite.
    """
    if not np.isfinite(vectors_ND).all():
        raise InputError(key="dtype", value=dtype, expected="float32, because an embedding contains NaN or infinity")
    if dtype in ONE_BIT:
        unsigned_NW = np.packbits(vectors_ND > 0, axis=-1)
    elif ranges_2D is None:
        raise InputError(
            key="ranges_2D", value=None, expected=f"the range of each dimension, which dtype={dtype} requires"
        )
    else:
        min_D, step_D = _steps(ranges_2D)
        unsigned_NW = np.clip(np.floor((vectors_ND - min_D) / step_D), 0, STEPS).astype(np.uint8)
    return unsigned_NW if dtype[0] == "u" else (unsigned_NW ^ 128).view(np.int8)


def convert(vectors_ND: np.ndarray, dtype: str, ranges_2D: np.ndarray | None = None) -> np.ndarray:
    """Convert N embeddings to ``dtype``, with W stored values each: (N, D) -> (N, W). The types int8 and uint8 require
    ranges.

    Raises:
        InputError: a number is beyond the range of ``dtype``, or cannot be quantized.
    """
    if dtype in (*EIGHT_BITS, *ONE_BIT):
        return quantize(vectors_ND, dtype, ranges_2D)
    with np.errstate(over="ignore"):
        rows_ND: np.ndarray = vectors_ND.astype(dtype)
    if not np.isfinite(rows_ND).all() and np.isfinite(vectors_ND).all():
        raise InputError(key="dtype", value=dtype, expected=f"float32, because a value is outside the range of {dtype}")
    return rows_ND


def dequantize(stored_NW: np.ndarray, width: int, ranges_2D: np.ndarray | None = None) -> np.ndarray:
    """Convert quantized embeddings to float32, (N, D): an 8-bit value becomes the lower end of its step, and a bit
    becomes -1 or 1. Floats are unchanged.
    """
    are_floats = stored_NW.dtype.kind == "f"
    if are_floats and stored_NW.shape[1] == width:
        return np.asarray(stored_NW, dtype=np.float32)
    unsigned_NW: np.ndarray = stored_NW if stored_NW.dtype != np.int8 else stored_NW.view(np.uint8) ^ 128
    if not are_floats and stored_NW.shape[1] == -(-width // 8) != width:
        return np.unpackbits(unsigned_NW, axis=1, count=width).astype(np.float32) * 2 - 1
    if stored_NW.shape[1] != width:
        raise InputError(
            key="corpus_NW",
            expected=f"rows of {width} values, like the queries, or rows of {-(-width // 8)} bytes with one bit per "
            f"dimension, but the rows of the corpus have {stored_NW.shape[1]} values",
            hint="The embeddings may be from a different encoder.",
        )
    if ranges_2D is None:
        expected = "the ranges of the 8-bit corpus, which are in FILE.ranges.npy next to the corpus"
        raise InputError(key="ranges", value=None, expected=expected)
    min_D, step_D = _steps(ranges_2D)
    return unsigned_NW * step_D + min_D


def search(
    queries_QD: np.ndarray,
    corpus_NW: np.ndarray,
    *,
    k: int,
    ranges: np.ndarray | None = None,
    rescore_embeddings: np.ndarray | None = None,
    rescore_multiplier: int = 4,
) -> SearchResult:
    """Return, for each query, the ``k`` rows of the corpus with the largest dot product. The search is exact, in
    blocks.

    Args:
        queries_QD: float queries.
        corpus_NW: output of ``contrastive-encoders embed``, in any dtype.
        k: number of results for each query.
        ranges: ranges of an 8-bit corpus.
        rescore_embeddings: the same embeddings as floats, preferably a memory map. Only the best
            ``k * rescore_multiplier`` rows of each query are read and sorted again.
        rescore_multiplier: see ``rescore_embeddings``.

    Raises:
        InputError: the corpus and ``rescore_embeddings`` are of different embeddings, or ranges are missing.
    """
    queries_QD = np.asarray(queries_QD, dtype=np.float32)
    if rescore_embeddings is not None and rescore_embeddings.shape != (len(corpus_NW), queries_QD.shape[1]):
        raise InputError(
            key="rescore_embeddings",
            value=rescore_embeddings.shape,
            expected=f"the shape {(len(corpus_NW), queries_QD.shape[1])}, with a float embedding for each row of the "
            "corpus",
        )
    candidates = min(len(corpus_NW), k if rescore_embeddings is None else k * rescore_multiplier)
    results = [
        _best(queries_QD[start : start + QUERIES], corpus_NW, candidates, ranges)
        for start in range(0, len(queries_QD), QUERIES)
    ]
    rows, scores = (np.concatenate(part) for part in zip(*results, strict=True))
    if rescore_embeddings is not None:
        each = zip(queries_QD, rows, strict=True)
        scores = np.stack(
            [np.asarray(rescore_embeddings[row_numbers], dtype=np.float32) @ query for query, row_numbers in each]
        )
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return SearchResult(*(np.take_along_axis(part, order, axis=1) for part in (rows, scores)))


def _best(queries_QD: np.ndarray, corpus_NW: np.ndarray, k: int, ranges: np.ndarray | None) -> SearchResult:
    """Return the ``k`` best rows for each query, sorted by row number in the corpus."""
    rows_QK = np.empty((len(queries_QD), 0), dtype=np.int64)
    scores_QK = np.empty((len(queries_QD), 0), dtype=np.float32)
    for start, block_NW in _blocks(corpus_NW):
        scores_of_block = queries_QD @ dequantize(block_NW, queries_QD.shape[1], ranges).T
        numbers = np.broadcast_to(np.arange(start, start + len(block_NW)), scores_of_block.shape)
        rows, scores = np.hstack([rows_QK, numbers]), np.hstack([scores_QK, scores_of_block])
        best = np.sort(np.argpartition(-scores, min(k, scores.shape[1]) - 1, axis=1)[:, :k], axis=1)
        rows_QK, scores_QK = (np.take_along_axis(part, best, axis=1) for part in (rows, scores))
    return SearchResult(rows_QK, scores_QK)


def _blocks(corpus_NW: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(corpus_NW), ROWS):
        yield start, np.ascontiguousarray(corpus_NW[start : start + ROWS])


def _steps(ranges_2D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum of each dimension and its quantization step. A constant dimension has a step of 1."""
    min_D, max_D = np.asarray(ranges_2D, dtype=np.float32)
    step_D = (max_D - min_D) / STEPS
    return min_D, np.where(step_D == 0, np.float32(1), step_D)
