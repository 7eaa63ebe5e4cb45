"""Nested keys as dotted keys: ``{"model": {"lr": 1}}`` -> ``{"model.lr": 1}``."""

from collections.abc import Mapping
from typing import Any


def flatten(keys: Mapping[str, Any], prefix: str = "", *, leaf: str | None = None) -> dict[str, Any]:
    """Convert nested keys to dotted ones. An empty mapping is a value.

    Args:
        keys: Nested keys.
        prefix: Text before each key.
        leaf: Key of mappings that are not flattened; None: all mappings are flattened.
    """
    found = dict[str, Any]()
    for key, value in keys.items():
        if isinstance(value, Mapping) and value and leaf not in value:
            found |= flatten(value, f"{prefix}{key}.", leaf=leaf)
        else:
            found[f"{prefix}{key}"] = value
    return found
