"""``format=onnx``: one ONNX graph that computes the embedding from token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.core.onnx_packages import require_onnx
from contrastive_encoders.export.export_format import ExportFormat

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


def check() -> None:
    """Check that the packages of the extra ``onnx`` are installed.

    Raises:
        InputError: the extra is not installed.
    """
    require_onnx("format", "onnx")


def write(output: Path, source: Source, config: ExportConfig) -> None:
    from contrastive_encoders.export.onnx_graph import export_onnx, onnx_example

    card = source.card("onnx", onnx_example(source.encoder))
    export_onnx(output, source.encoder, int8=config.int8, card=card)


FORMAT = ExportFormat("onnx", "a graph from token ids to the embedding (needs the extra onnx)", write, check)
