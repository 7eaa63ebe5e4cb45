"""Configuration keys of an export. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.loading.encoder_options import NormalizationOptions
from contrastive_encoders.export.formats import FORMATS, ExportFormat


@dataclass(frozen=True, kw_only=True)
class ExportConfig(NormalizationOptions):
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
