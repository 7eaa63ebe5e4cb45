"""Formats of ``contrastive-encoders export``. Each module defines one as ``FORMAT`` and imports torch only to write.

A new format is one module; no other file lists the formats.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from contrastive_encoders.export.export_format import ExportFormat


def find_formats() -> Mapping[str, ExportFormat]:
    """Return a mapping from names to formats, one for each module of this package."""
    found = [import_module(module.name).FORMAT for module in iter_modules(__path__, f"{__name__}.")]
    return {one.name: one for one in found}
