"""The formats that ``format=NAME`` of ``contrastive-encoders export`` selects.

This module does not import torch: a format imports what it needs when it writes a directory.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core.onnx_packages import require_onnx

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


class ExportFormat(NamedTuple):
    """A format in which an encoder can be exported.

    Args:
        description: what the format writes, for ``--help``.
        write: writes the directory atomically.
        check: raises InputError if something is missing, such as a package, before the encoder is loaded.
        has_similarity: whether the format records how embeddings are compared, which the key ``similarity`` may change.
    """

    description: str
    write: "Callable[[Path, Source, ExportConfig], None]"
    check: Callable[[], None] = lambda: None
    has_similarity: bool = False


def _write_sentence_transformers(output: Path, source: "Source", config: "ExportConfig", **changes: Any) -> None:
    """Write a directory for sentence-transformers. ``changes`` replace arguments of `export_encoder`."""
    from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

    parts = {**parts_of(source.encoder), "card": source.card(), **changes}
    if config.similarity is not None:
        parts["similarity"] = config.similarity
    export_encoder(output, **parts)


def _write_transformers(output: Path, source: "Source", config: "ExportConfig") -> None:
    from contrastive_encoders.export.transformers_folder import export_transformers, transformers_example

    card = source.card("transformers", transformers_example(source.encoder))
    export_transformers(output, source.encoder, card=card)


def _write_onnx(output: Path, source: "Source", config: "ExportConfig") -> None:
    from contrastive_encoders.export.onnx_graph import export_onnx, onnx_example

    card = source.card("onnx", onnx_example(source.encoder))
    export_onnx(output, source.encoder, int8=config.int8, card=card)


def _write_adapter(output: Path, source: "Source", config: "ExportConfig") -> None:
    from contrastive_encoders.export.adapter import read_adapter

    _write_sentence_transformers(output, source, config, adapter=read_adapter(str(config.run), source.encoder))


FORMATS = {
    "adapter": ExportFormat(
        "the adapter that model.lora trained, without the backbone, for peft and sentence-transformers",
        _write_adapter,
        has_similarity=True,
    ),
    "onnx": ExportFormat(
        "a graph from token ids to the embedding (needs the extra onnx)",
        _write_onnx,
        check=partial(require_onnx, "format", "onnx"),
    ),
    "sentence_transformers": ExportFormat(
        "a directory for sentence-transformers, with prompts", _write_sentence_transformers, has_similarity=True
    ),
    "transformers": ExportFormat(
        "weights and tokenizer, with code for the pooling in the model card", _write_transformers
    ),
}
