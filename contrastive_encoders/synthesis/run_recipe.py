"""Claim the output folder of a synthesis, and write the data set."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.output_directory import FINISHED, LOCK, MARKER, let_go, lock_folder

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from contrastive_encoders.synthesis.recipe import Recipe

log = logging.getLogger(__name__)


def write(recipe: "Recipe") -> None:
    """Write a data set whose recipe is planned; what is there already is kept.

    Raises:
        InputError: the input or the generator is wrong, or the folder is another data set's.
        SynthesisError: the model, its server or its processes failed.
    """
    with _nothing_left_of_a_claim(recipe.folder):
        try:
            lock_folder("output", recipe.folder)
            if recipe.claim():
                log.info(FINISHED, recipe.folder)
            else:
                recipe.write()
        finally:
            let_go(recipe.folder / LOCK)


@contextlib.contextmanager
def _nothing_left_of_a_claim(folder: Path) -> Iterator[None]:
    """Remove a folder that only a claim was written into: the input was wrong, or ``plan_only`` was set."""
    try:
        yield
    finally:
        if folder.is_dir() and {path.name for path in folder.iterdir()} <= {MARKER}:
            remove(folder)
