"""`ExportFormat`, the type of the formats that ``format=NAME`` selects. This module does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from contrastive_encoders.export.export_config import ExportConfig
    from contrastive_encoders.export.source import Source


class ExportFormat(NamedTuple):
    """A format in which an encoder can be exported.

    Args:
        name: value of the key ``format``.
        description: what the format writes, for ``--help``.
        write: writes the directory atomically.
        check: raises InputError if something is missing, such as a package, before the encoder is loaded.
        has_similarity: whether the format records how embeddings are compared, which the key ``similarity`` may change.
    """

    name: str
    description: str
    write: Callable[[Path, Source, ExportConfig], None]
    check: Callable[[], None] = lambda: None
    has_similarity: bool = False
