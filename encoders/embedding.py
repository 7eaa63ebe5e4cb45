"""What `load_encoder` returns: it says what it is, and ``embed`` takes one text or many and gives torch or NumPy."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, overload

import numpy as np
from torch import Tensor


class LoadedEncoder(ABC):
    """An `Embedder` that can say what it is. How it embeds, says ``embed_list``."""

    description: dict[str, str]  # kind, backbone, pooling, prompt, max_length, precision

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 over weights, tokenizer and all settings that change a vector."""

    @overload
    def embed(self, texts: str | Sequence[str], *, convert_to_numpy: Literal[False] = False) -> Tensor: ...

    @overload
    def embed(self, texts: str | Sequence[str], *, convert_to_numpy: Literal[True]) -> np.ndarray: ...

    def embed(self, texts: str | Sequence[str], *, convert_to_numpy: bool = False) -> Tensor | np.ndarray:
        """N texts -> (N, width) float32 rows on the CPU, in input order; one text, not in a list -> (width,).

        Where it takes longer than a moment a bar is drawn, if somebody watches.
        """
        vectors = self.embed_list([texts])[0] if isinstance(texts, str) else self.embed_list(texts)
        return vectors.numpy() if convert_to_numpy else vectors

    @abstractmethod
    def embed_list(self, texts: Sequence[str]) -> Tensor:
        """N texts -> (N, width) float32 on the CPU, without a gradient."""
