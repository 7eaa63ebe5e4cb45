"""``format=adapter``: the weights that LoRA trained, without the backbone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.export.export_format import ExportFormat
from contrastive_encoders.export.formats import sentence_transformers

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


def write(output: Path, source: Source, config: ExportConfig) -> None:
    from contrastive_encoders.export.adapter import read_adapter

    adapter = read_adapter(str(config.run), source.encoder)
    sentence_transformers.write(output, source, config, adapter=adapter)


FORMAT = ExportFormat(
    "adapter",
    "the adapter that model.lora trained, without the backbone, for peft and sentence-transformers",
    write,
    has_similarity=True,
)
