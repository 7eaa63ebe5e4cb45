"""``format=transformers``: only the weights and the tokenizer. The model card shows code for the pooling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.export.export_format import ExportFormat

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


def write(output: Path, source: Source, config: ExportConfig) -> None:
    from contrastive_encoders.export.transformers_folder import export_transformers, transformers_example

    card = source.card("transformers", transformers_example(source.encoder))
    export_transformers(output, source.encoder, card=card)


FORMAT = ExportFormat("transformers", "weights and tokenizer, with code for the pooling in the model card", write)
