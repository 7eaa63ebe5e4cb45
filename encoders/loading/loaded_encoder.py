"""Base class of the encoders that ``load_encoder`` returns.

``embed`` takes one text or many and returns torch or NumPy embeddings; ``encode`` and ``similarity`` are as in
sentence-transformers. The fingerprint is a hash of everything that an embedding depends on; caches use it as a key.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.core.errors import shorten
from contrastive_encoders.encoders.similarity import similarity_matrix

LONE_SURROGATE = re.compile("[\\ud800-\\udfff]")  # occurs in texts that were cut inside an emoji


class Options(TypedDict, total=False):
    """Options of a call that computes embeddings of texts. None selects the default of the encoder."""

    prompt: str | None
    autocast: torch.dtype | None
    progress: bool | None
    batch_size: int | None


class LoadedEncoder(ABC):
    """Encoder that `load_encoder` and `train` return. Its methods ``encode`` and ``similarity`` work as in
    sentence-transformers.

    Attributes:
        prompts: Prompts of the encoder by name and by role (query, document).
        normalize: Whether embeddings are L2-normalized.
        similarity_fn_name: ``"cosine"``, ``"dot"``, ``"euclidean"``, or ``"manhattan"``.
        description: Kind, backbone, pooling, prompt, maximum length, and precision as text.

    Example:
        >>> from contrastive_encoders import load_encoder
        >>> encoder = load_encoder("sentence-transformers/all-MiniLM-L6-v2", device="cpu")
        >>> query, documents = encoder.encode("open a file"), encoder.encode(["read a file", "rain in May"])
        >>> encoder.similarity(query, documents).argmax().item()
        0
    """

    description: dict[str, str]  # kind, backbone, pooling, prompt, max_length, precision
    normalize: bool = False
    prompts: EncoderPrompts = EncoderPrompts()
    similarity_fn_name: str = "cosine"

    @property
    def prompt(self) -> str:
        """Prompt that is prepended to texts without a role (texts that are neither queries nor documents)."""
        return self.prompts.default

    @property
    def role_prompts(self) -> dict[str, str]:
        """Prompts for queries and documents under the keys ``query_prompt`` and ``document_prompt``, without those that
        equal ``prompt``.
        """
        of_roles = {"query_prompt": self.prompts.query, "document_prompt": self.prompts.document}
        return {name: prompt for name, prompt in of_roles.items() if prompt != self.prompt}

    @property
    def device(self) -> torch.device:
        """Device on which the weights are stored."""
        return torch.device("cpu")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the weights, the tokenizer, and all settings that change an embedding, as a hexadecimal string."""

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
        """Return the embeddings of texts as a tensor.

        Args:
            texts: One text or several.
            convert_to_numpy: Return an array instead of a tensor.
            **options: ``prompt`` replaces the encoder's prompt; ``progress=False`` hides the progress bar; ``autocast``
                is the dtype of matmuls; ``batch_size`` is the maximum number of texts per batch.

        Returns:
            (texts, width) float32 on the CPU, in the order of the texts; (width,) for one text that is not in a list.
        """
        several = [texts] if isinstance(texts, str) else texts
        vectors = self.embed_list(several, **options)
        vectors = vectors[0] if isinstance(texts, str) else vectors
        return vectors.numpy() if convert_to_numpy else vectors

    def encode(
        self,
        texts: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
    ) -> Any:
        """Return the embeddings of texts. The arguments are those of ``encode`` in sentence-transformers.

        Args:
            texts: One text or several.
            prompt_name: Name of the prompt that is prepended to each text; None: the encoder's default prompt.
            prompt: Prompt text, which overrides ``prompt_name``.
            batch_size: Maximum number of texts per batch; None: batches are limited by their number of tokens.
            show_progress_bar: Show a progress bar; None: if it takes long and standard error is a terminal.
            normalize_embeddings: L2-normalize each embedding.
            convert_to_tensor: Return a tensor on the CPU instead of an array.

        Returns:
            A float32 array (texts, width); (width,) for one text that is not in a list.

        Raises:
            InputError: If the encoder has no prompt with this name, ``batch_size`` is not an integer of at least 1, or
                ``prompt`` or an item of ``texts`` is not a string.
        """
        most: Any = batch_size
        if most is not None and (isinstance(most, bool) or not isinstance(most, Integral) or int(most) < 1):
            raise InputError(key="batch_size", value=batch_size, expected="an integer of at least 1")
        if prompt is not None and not isinstance(prompt, str):
            raise InputError(key="prompt", value=shorten(prompt), expected="a string")
        if prompt is None and prompt_name is not None:
            prompt = self._prompt_named(prompt_name)
        several = list_of_texts([texts] if isinstance(texts, str) else texts)
        options = Options(prompt=prompt, progress=show_progress_bar, batch_size=batch_size)
        vectors = self.embed_list(several, **options)
        vectors = normalize(vectors, dim=-1) if normalize_embeddings else vectors
        vectors = vectors[0] if isinstance(texts, str) else vectors
        return vectors if convert_to_tensor else vectors.numpy()

    def encode_query(
        self, texts: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None, **options: Any
    ) -> Any:
        """Return the embeddings of queries: `encode` with the encoder's prompt for queries."""
        own = self.prompts.query if prompt is None and prompt_name is None else prompt
        return self.encode(texts, prompt_name, own, **options)

    def encode_document(
        self, texts: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None, **options: Any
    ) -> Any:
        """Return the embeddings of documents: `encode` with the encoder's prompt for documents."""
        own = self.prompts.document if prompt is None and prompt_name is None else prompt
        return self.encode(texts, prompt_name, own, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return all pairwise similarities between two sets of embeddings, computed by the function
        ``similarity_fn_name``.

        Args:
            embeddings1: (N, width) tensor, array, or list; a single embedding is treated as one row.
            embeddings2: (M, width) tensor, array, or list.

        Returns:
            (N, M) similarities.

        Raises:
            InputError: If an argument is not an array of numbers, or the widths differ.
        """
        return similarity_matrix(self.similarity_fn_name, embeddings1, embeddings2)

    def _prompt_named(self, name: str) -> str:
        known = {
            "query": "",
            "document": "",
            **self.prompts.named,
        }  # as in sentence-transformers
        if not isinstance(name, str) or name not in known:
            raise InputError(key="prompt_name", value=shorten(name), expected=f"one of {', '.join(known)}")
        return known[name]

    @abstractmethod
    def embed_list(self, texts: Sequence[str], **options: Unpack[Options]) -> Tensor:
        """Return the embeddings of N texts, (N, width) float32, on the CPU and without gradients."""


VERSION = 1  # to be increased whenever `embed` returns different embeddings for the same weights
IGNORED_CONFIG_ENTRIES = (
    "_name_or_path",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
)  # config entries


def fingerprint(weights: Mapping[str, Tensor], **settings: Any) -> str:
    """Return the SHA-256 of weights and settings, as a hexadecimal string.

    ``settings`` are JSON values, whose order and format must not depend on the process.
    """
    digest = hashlib.sha256(f"{VERSION}".encode())
    for name, weight in sorted(weights.items()):
        digest.update(f"\n{name} {tuple(weight.shape)} {weight.dtype} ".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()


def config_description(config: Any) -> dict[str, Any]:
    """Return the entries of a transformers config that may affect embeddings."""
    return {name: str(value) for name, value in config.to_dict().items() if name not in IGNORED_CONFIG_ENTRIES}


def tokenizer_description(tokenizer: Tokenizer) -> str:
    """Return a JSON description of a tokenizer, without its truncation and padding settings, which depend on earlier
    calls.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps([sorted(tokenizer.get_vocab().items()), repr(tokenizer)])
    described = json.loads(backend.to_str())
    return json.dumps({**described, "padding": None, "truncation": None}, sort_keys=True)


def list_of_texts(texts: Any) -> list[str]:
    """Return the texts as a list, after checking that each is a valid string.

    Raises:
        InputError: If an item is not a string, or contains half of a surrogate pair.
    """
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping) or getattr(texts, "ndim", 1) != 1:
        raise InputError(key="texts", value=shorten(texts), expected="a string or a list of strings")
    several = list(texts)
    for position, text in enumerate(several):
        if not isinstance(text, str):
            raise InputError(key=f"texts[{position}]", value=shorten(text), expected="a string")
        if lone := LONE_SURROGATE.search(text):
            raise InputError(
                key=f"texts[{position}]",
                value=shorten(ascii(text)),
                expected=f"Unicode text, but character {lone.start()} is half of a surrogate pair",
                hint='Replace such characters: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").',
            )
    return several


def encoder_name(encoder: Any) -> str | Path:
    """Return the path or hub id of an encoder, which is given either as such or as a loaded encoder.

    Raises:
        InputError: If ``encoder`` is of another type.
    """
    name = encoder.description["backbone"] if isinstance(encoder, LoadedEncoder) else encoder
    return check_name(name, "encoder", "a path, a hub id, or a loaded encoder")


def check_name(name: Any, key: str, expected: str) -> str | Path:
    """Check that the name of an encoder is a path or a hub id.

    Raises:
        InputError: If it is of another type.
    """
    if isinstance(name, str | Path):
        return name
    hint = "The result of train contains the loaded encoder: result.encoder." if hasattr(name, "encoder") else None
    raise InputError(key=key, value=None if name is None else type(name).__name__, expected=expected, hint=hint)


def check_unset(config: Any, keys: Iterable[str]) -> None:
    """Check that no options of ``load_encoder`` are set for an encoder that is already loaded.

    Args:
        config: Config dataclass.
        keys: Names of the options.

    Raises:
        InputError: If one of the options has another value.
    """
    for key in keys:
        if (value := getattr(config, key)) != getattr(type(config), key):
            raise InputError(
                key=key,
                value=value,
                expected="no value, because the encoder is already loaded",
                hint=f"Pass the path of the encoder, or load it with load_encoder(PATH, {key}={value!r}).",
            )
