"""What `load_encoder` returns: it says what it is, and ``embed`` takes one text or many and gives torch or NumPy.

Its fingerprint is a sha256 over everything that a vector depends on: the key under which vectors may be kept.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer


class Options(TypedDict, total=False):
    """How texts are embedded in one call; None: as the encoder does by itself."""

    prompt: str | None
    autocast: torch.dtype | None
    progress: bool | None


class LoadedEncoder(ABC):
    """An `Embedder` that can say what it is. How it embeds, says ``embed_list``."""

    description: dict[str, str]  # kind, backbone, pooling, prompt, max_length, precision
    normalize: bool = False

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 over weights, tokenizer and all settings that change a vector."""

    @overload
    def embed(
        self, texts: str | Sequence[str], *, convert_to_numpy: Literal[False] = False, **options: Unpack[Options]
    ) -> Tensor: ...

    @overload
    def embed(
        self, texts: str | Sequence[str], *, convert_to_numpy: Literal[True], **options: Unpack[Options]
    ) -> np.ndarray: ...

    def embed(
        self, texts: str | Sequence[str], *, convert_to_numpy: bool = False, **options: Unpack[Options]
    ) -> Tensor | np.ndarray:
        """N texts -> (N, width) float32 rows on the CPU, in input order; one text, not in a list -> (width,).

        ``prompt`` stands before each text, in the place of the encoder's own. Where it takes longer than a moment a bar
        is drawn, if somebody watches; ``progress=False`` draws none. ``autocast`` is a type for products.
        """
        several = [texts] if isinstance(texts, str) else texts
        vectors = self.embed_list(several, **options)
        vectors = vectors[0] if isinstance(texts, str) else vectors
        return vectors.numpy() if convert_to_numpy else vectors

    @abstractmethod
    def embed_list(self, texts: Sequence[str], **options: Unpack[Options]) -> Tensor:
        """N texts -> (N, width) float32 on the CPU, without a gradient."""


VERSION = 1  # raise it when `embed` starts to give other vectors for the same weights
OF_NO_EFFECT = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")  # config entries


def fingerprint(weights: Mapping[str, Tensor], **settings: Any) -> str:
    """``settings`` are JSON values; what orders or formats them must not depend on the process."""
    digest = hashlib.sha256(f"{VERSION}".encode())
    for name, weight in sorted(weights.items()):
        digest.update(f"\n{name} {tuple(weight.shape)} {weight.dtype} ".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()


def described_config(config: Any) -> dict[str, Any]:
    """A transformers config without what changes no vector."""
    return {name: str(value) for name, value in config.to_dict().items() if name not in OF_NO_EFFECT}


def described_tokenizer(tokenizer: Tokenizer) -> str:
    """All that a tokenizer does to a text, except for padding and truncation: those belong to the call before."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps([sorted(tokenizer.get_vocab().items()), repr(tokenizer)])
    described = json.loads(backend.to_str())
    return json.dumps({**described, "padding": None, "truncation": None}, sort_keys=True)
