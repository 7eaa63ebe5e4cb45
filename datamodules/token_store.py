"""Text is tokenised once, into flat memory-mapped ids and offsets; a document is a slice of them."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from datamodules.sources import DocumentSource


class TokenStore:
    """Tokenised documents on disk. ``store[i]`` is a zero-copy uint16 or uint32 slice."""

    def __init__(self, directory: str | Path) -> None: ...

    ids: np.ndarray  # (tokens,) memory map, all documents one behind the other, no special tokens
    offsets: np.ndarray  # (documents + 1,) int64
    lengths: np.ndarray  # (documents,) int64
    num_tokens: int
    manifest: dict[str, Any]

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> np.ndarray: ...


def build_or_open(
    source: DocumentSource,
    tokenizer: Any,
    cache_dir: str | Path,
    *,
    min_length: int,
    length_unit: Literal["tokens", "words"] = "tokens",
    min_tokens: int = 1,
    lowercase: bool = False,
    quiet: bool = False,
) -> TokenStore:
    """The store of this source under this tokenizer and rule, built if it is not there.

    ``tokens`` keeps n >= min_length tokens. ``words`` keeps n > min_length whitespace words, strictly, as DeCLUTR's
    published script does, and drops what has fewer than ``min_tokens`` tokens besides.
    """
    ...
