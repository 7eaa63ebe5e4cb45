"""Encoders and cross-encoders that the sentence-transformers library runs, because this project does not support them.

This module is imported only when such a model is requested. Custom code of a model is never run.
"""

import sys
from collections.abc import Sequence
from pickle import UnpicklingError
from typing import Any, TypeVar, Unpack

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.cross_encoder import CLASSIFIER_SUFFIX, check_one_score, not_trained
from contrastive_encoders.encoders.loading.loaded_encoder import (
    LoadedEncoder,
    Options,
    config_description,
    fingerprint,
    tokenizer_description,
)
from contrastive_encoders.encoders.sentence_encoder import precision_of
from contrastive_encoders.io.hub import only_local
from contrastive_encoders.io.model_names import run_folder

LOADING_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError, TypeError, UnpicklingError)
BATCH_SIZE = 32  # the library's default
Model = TypeVar("Model", SentenceTransformer, CrossEncoder)


class LibraryEncoder(LoadedEncoder):
    """Encoder that sentence-transformers runs. ``why`` is the reason why `SentenceEncoder` does not support it."""

    def __init__(
        self,
        name: str,
        why: str,
        *,
        prompt: str | None,
        max_length: int | None,
        truncate: int | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.model = _load(SentenceTransformer, "encoder", name, device)
        self.model.to(dtype)
        if max_length is not None:
            self.model.max_seq_length = max_length
        if truncate is not None:
            self.model.truncate_dim = truncate
        self.similarity_fn_name = self.model.similarity_fn_name
        named = {name: text or "" for name, text in self.model.prompts.items()}
        own = EncoderPrompts(named, self.model.default_prompt_name)
        self.prompts = own if prompt is None else EncoderPrompts.same(prompt)
        # Only for a requested truncation; a truncation in the model's own settings is left to the library
        self.cuts_unit_vectors = truncate is not None and type(self.model[-1]).__name__ == "Normalize"
        self.description: dict[str, str] = {
            "kind": "sentence-transformers library",
            "backbone": name,
            "pooling": why,
            "prompt": self.prompt,
            **self.role_prompts,
            "max_length": str(self.model.max_seq_length),
            "precision": precision_of(dtype),
            **({"truncate": str(self.model.truncate_dim)} if self.model.truncate_dim else {}),
            **({"normalize": "true"} if self.cuts_unit_vectors else {}),
        }

    @property
    def fingerprint(self) -> str:
        described = _described(self.model)
        settings = {key: value for key, value in self.description.items() if key != "backbone"}
        # a pooler that is missing in the file is initialized randomly, and not used
        pooler = "pooler_output" in described["modules"]
        weights = {name: value for name, value in self.model.state_dict().items() if pooler or ".pooler." not in name}
        return fingerprint(weights, **described, **settings)

    def embed_list(self, texts: Sequence[str], **options: Unpack[Options]) -> Tensor:
        """Return the embeddings of N texts, (N, width) float32, on the CPU."""
        prompt = options.get("prompt")
        distinct = list(dict.fromkeys(texts))
        place_of = {text: place for place, text in enumerate(distinct)}
        rows = self.model.encode(
            distinct,
            prompt=self.prompt if prompt is None else prompt,
            convert_to_tensor=True,
            show_progress_bar=sys.stderr.isatty() and options.get("progress") is not False,
            normalize_embeddings=self.cuts_unit_vectors,
            batch_size=options.get("batch_size") or BATCH_SIZE,
        )
        return rows.float().cpu()[torch.tensor([place_of[text] for text in texts], dtype=torch.long)]


def load_library_cross_encoder(name: str, device: torch.device) -> tuple[CrossEncoder, str]:
    """Load a cross-encoder that returns one score per pair of texts. Return the model and its fingerprint.

    Raises:
        InputError: If the model cannot be loaded, returns several scores, or has no classification head, which the
            library would initialize randomly.
    """
    model = _load(CrossEncoder, "reranker", run_folder(name, "reranker") or name, device)
    kind, trained = type(model.transformers_model).__name__, model.config.architectures or []
    if kind.endswith(CLASSIFIER_SUFFIX) and kind not in trained:
        raise not_trained(f"reranker={name}", trained)
    check_one_score(f"reranker={name}", model.num_labels)
    settings = {"max_length": model.max_seq_length, "prompt": model.prompts.get(model.default_prompt_name or "", "")}
    return model, fingerprint(model.state_dict(), **_described(model), **settings, activation=repr(model.activation_fn))


def _described(model: SentenceTransformer | CrossEncoder) -> dict[str, Any]:
    """Describe everything that affects embeddings or scores, except the weights, for the fingerprint."""
    described: dict[str, Any] = {"modules": repr(model)}
    transformer = getattr(model[0], "auto_model", None)
    if transformer is not None:
        described["config"] = config_description(transformer.config)
        described["tokenizer"] = tokenizer_description(model.tokenizer)
    return described


def _load(kind: type[Model], key: str, name: str, device: torch.device) -> Model:
    try:
        return kind(name, device=str(device), trust_remote_code=False, local_files_only=only_local(name))
    except LOADING_ERRORS as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            key=key, value=name, expected=f"a model that sentence-transformers can load ({reason})"
        ) from error
