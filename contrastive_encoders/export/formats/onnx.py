"""``format=onnx``: one graph from token ids to the embedding."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.core import missing_package
from contrastive_encoders.export.export_format import ExportFormat

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


def check() -> None:
    """Check that the packages of the extra ``onnx`` are installed.

    Raises:
        InputError: the extra is not installed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it writes a file .ses to the temporary directory otherwise
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise missing_package(str(error.name), "onnx", key="format", value="onnx") from error


def write(output: Path, source: Source, config: ExportConfig) -> None:
    from contrastive_encoders.export.onnx_graph import export_onnx, onnx_example

    card = source.card("onnx", onnx_example(source.encoder))
    export_onnx(output, source.encoder, int8=config.int8, card=card)


FORMAT = ExportFormat("onnx", "a graph from token ids to the embedding (needs the extra onnx)", write, check)
