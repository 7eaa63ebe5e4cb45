"""Read and write ``item_scores.npz``, which contains the scores of single test items, from which comparisons are
computed. It is stored next to ``results.json``.
"""

import io
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from contrastive_encoders.core import ITEMS_FILE, InputError, ItemScores
from contrastive_encoders.io.atomic import atomic_write


def items_path(results: str | Path) -> Path:
    """Return the path of the item scores that belong to a ``results.json``, or to the result file FILE.json of an
    evaluation.
    """
    results = Path(results)
    return results.with_name(ITEMS_FILE if results.stem == "results" else f"{results.stem}.{ITEMS_FILE}")


def write_items(path: str | Path, items: ItemScores) -> None:
    """Write item scores to a file atomically."""
    arrays = {
        f"{kind}/{name}": np.asarray(array)
        for kind, entries in items._asdict().items()
        for name, array in entries.items()
    }
    content = io.BytesIO()
    with ThreadPoolExecutor(1) as thread:  # a signal while a member of the zip file is written would print an error
        thread.submit(lambda: np.savez_compressed(content, **arrays)).result()  # type: ignore[arg-type]  # names with a slash
    atomic_write(Path(path), content.getvalue())


def read_items(path: str | Path) -> ItemScores:
    """Read item scores from a file, without executing any code in it.

    Raises:
        InputError: it is damaged, or is not a file of item scores.
    """
    found: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in ItemScores._fields}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for key in arrays.files:
                kind, _, name = key.partition("/")
                found[kind][name] = arrays[key]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            location=str(path),
            value=error,
            expected="an undamaged file of item scores",
            hint="Score the run again.",
        ) from error
    digests = {name: str(array) for name, array in found.pop("digests").items()}
    return ItemScores(digests=digests, **found)
