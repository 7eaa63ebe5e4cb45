"""Claim the output folder of a synthesis, and write a data set in the current process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli.child_processes import works_for_another
from cli.process_group import Ranks
from contracts import InputError
from storage.atomic import remove
from storage.ownership import LOCK, MARKER, let_go, lock_folder
from synthesis.shards.heartbeat import Heartbeat

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from synthesis.recipe import Recipe


def write_alone(recipe: "Recipe") -> None:
    """Write a data set in this process; what is there already is kept.

    Raises:
        InputError: a key, the input or the generator is wrong, or the folder is another data set's.
        SynthesisFailed: the model failed.
    """
    if recipe.processes > 1:
        raise InputError(f"devices={recipe.processes}: one process writes here. Leave it out.")
    recipe.plan()
    try:
        with nothing_left_of_a_claim(recipe.folder):
            if claim(recipe, writer=True):
                return
            with Heartbeat(recipe.home, *(alone := Ranks(0, 1))) as heart:
                recipe.write(alone, heart.watch)
                recipe.finish()
    finally:
        let_go(recipe.folder / LOCK)


def claim(recipe: "Recipe", writer: bool) -> bool:
    """Whether all is there already; if not, nobody else writes there from now on."""
    if recipe.claim(writer=False):
        return True
    if writer and not works_for_another():
        lock_folder("output", recipe.folder)
    return recipe.claim(writer)


@contextlib.contextmanager
def nothing_left_of_a_claim(folder: Path) -> Iterator[None]:
    """Wrong input may show when the folder is held already, and nothing is written there yet."""
    try:
        yield
    except InputError:
        let_go(folder / LOCK)
        if folder.is_dir() and {path.name for path in folder.iterdir()} <= {MARKER}:
            remove(folder)
        raise
