"""The data of a run in its config: one kind, or the parts of a mixture, each with keys of its own."""

from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig

from contracts import InputError

PARTS = "parts"


def data_of(cfg: DictConfig) -> dict[str, Any]:
    """Where the keys stand (``data``, or ``data.parts.NAME`` of each part) -> these keys.

    Raises:
        InputError: a part is nothing that can be built.
    """
    parts = cfg.data.get(PARTS)
    if not isinstance(parts, DictConfig) or not parts:
        return {"data": cfg.data}
    found = {f"data.parts.{name!s}": part for name, part in parts.items()}
    for place, part in found.items():
        if isinstance(part, DictConfig) and PARTS in part:
            raise InputError(f"{place}: a mixture is no part of another. Name its parts beside the others.")
        if not isinstance(part, DictConfig) or "_target_" not in part:
            raise InputError(
                f"{place}: nobody says what it is. Say {place}.data=triplets, or any other; in a YAML file, under "
                f"defaults: /data@{place}: triplets."
            )
    return found


def with_parts(keys: Iterable[str], cfg: DictConfig) -> Iterator[tuple[str, str]]:
    """Each key, and those of the data as they stand in each part, with the key itself."""
    for key in keys:
        yield key, key
        if key.startswith("data."):
            yield from ((f"{place}.{key[5:]}", key) for place in data_of(cfg) if place != "data")


def built(data: Any) -> dict[str, Any]:
    """The same of a data module: it, or those of its parts."""
    return {f"data.parts.{name}": part for name, part in getattr(data, PARTS, {}).items()} or {"data": data}
