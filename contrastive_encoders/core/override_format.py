"""Format overrides ``KEY=VALUE`` as strings, with the quotes that Hydra's parser requires."""

import re
from collections.abc import Sequence


def format_override(key: str, value: str) -> str:
    """Return the command line argument that sets ``key`` to a string, which is quoted if Hydra would otherwise parse it
    differently.
    """
    if re.fullmatch(r"[\w./ -]+", value, re.ASCII):
        return f"{key}={value}"
    # Backslashes are only special before a quote, and before the end of the text
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + (match[2] and "\\'"), value)
    return f"{key}='{escaped}'"


def without_replaced(overrides: Sequence[str]) -> list[str]:
    """Return the overrides without those that a later override of the same key replaces. A mapping replaces nothing,
    since Hydra merges it.
    """
    values = [override.partition("=")[::2] for override in overrides]
    later = {key: place for place, (key, value) in enumerate(values) if not value.startswith("{")}
    return [override for place, override in enumerate(overrides) if place >= later.get(values[place][0], place)]
