"""Configuration keys of an export. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.export.formats import FORMATS, ExportFormat


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Configuration keys of ``contrastive-encoders export``."""

    run: str | None = config_field(
        None,
        "encoder to export: the directory of a run, of a sentence-transformers model, or of a transformers model; "
        "or a checkpoint or a hub id",
    )
    output: str | None = config_field(None, "directory to which the export is written")
    format: str = config_field(
        "sentence_transformers", "; ".join(f"{name}: {one.description}" for name, one in FORMATS.items())
    )
    overwrite: bool = config_field(False, "whether to replace an earlier export in the output directory")

    pooling: str | None = config_field(
        None, f"pooling of token embeddings: {', '.join(POOLERS)}; null: the encoder's pooling"
    )
    prompt: str | None = config_field(None, "text that is prepended to every input; null: the encoder's prompts")
    max_length: int | None = config_field(
        None, "maximum length of a text in tokens; null: the encoder's maximum length", ge=1
    )
    truncate: int | None = config_field(
        None,
        "number of leading dimensions of each embedding to keep, such as 256, for encoders trained with "
        "model.matryoshka; null: all dimensions",
    )
    normalize: bool | None = config_field(
        None,
        "whether to L2-normalize embeddings, which happens after they are truncated if `truncate` is set; null: the "
        "encoder's setting",
    )
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] | None = config_field(
        None, "similarity function of the exported encoder in sentence-transformers; null: the encoder's setting"
    )
    int8: bool = config_field(
        True,
        "whether format=onnx also writes model_int8.onnx with 8-bit linear layers (MiniLM scores 81.78 instead of "
        "82.03 on STS-B)",
    )

    push: str | None = config_field(
        None, "repository ORG/NAME on the Hugging Face Hub to which the directory is uploaded; null: no upload"
    )
    private: bool = config_field(
        True, "whether the repository is private if `push` creates it; an existing repository keeps its visibility"
    )

    def check_keys(self) -> ExportFormat:
        """Check keys before torch is imported, and return the format.

        Raises:
            InputError: the format is unknown, or a key does not belong to it.
        """
        if self.format not in FORMATS:
            raise InputError(key="format", value=self.format, expected=f"one of {', '.join(FORMATS)}")
        if self.similarity is not None and not FORMATS[self.format].has_similarity:
            raise InputError(
                key="similarity",
                value=self.similarity,
                expected=f"null with format={self.format}, which stores no similarity",
            )
        return FORMATS[self.format]
