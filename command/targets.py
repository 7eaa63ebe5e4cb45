"""What the path of a class in a config stands for."""

import importlib
from typing import Any


def found_at(target: str) -> Any:
    """The attribute of that name in that module, nothing else on the way; None where there is none."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError, TypeError):
        return None
