"""``format=sentence_transformers``: a directory for sentence-transformers, as every run writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_encoders.export.export_format import ExportFormat

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


def write(output: Path, source: Source, config: ExportConfig, **changes: Any) -> None:
    """Write a directory for sentence-transformers. ``changes`` replace arguments of `export_encoder`."""
    from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

    parts = {**parts_of(source.encoder), "card": source.card(), **changes}
    if config.similarity is not None:
        parts["similarity"] = config.similarity
    export_encoder(output, **parts)


FORMAT = ExportFormat(
    "sentence_transformers", "a directory for sentence-transformers, with prompts", write, has_similarity=True
)
