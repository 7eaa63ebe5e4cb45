"""The steps around a recipe: its class, its folder, and a data set that one process writes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from cli.child_processes import works_for_another
from cli.config_files import choices
from cli.keys import settings
from cli.process_group import Ranks
from cli.targets import found_at
from contracts import InputError
from storage.atomic import remove
from storage.ownership import LOCK, MARKER, let_go, lock_folder
from synthesis.report.actions import Afterwards
from synthesis.shards.heartbeat import Heartbeat

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from synthesis.recipe import Recipe


def kind_of(cfg: DictConfig) -> "type[Recipe]":
    """The class of the recipe; it is one of ours, whatever the config says."""
    from synthesis.recipe import Recipe

    target = cfg.recipe.get("_target_") if isinstance(cfg.get("recipe"), DictConfig) else None
    if not isinstance(target, str) or not target.startswith("synthesis.recipes."):
        raise InputError(
            f"recipe={target or cfg.get('recipe')}: wanted one of {', '.join(choices('recipe'))}. Say recipe=NAME."
        )
    found = found_at(target)
    if not (isinstance(found, type) and issubclass(found, Recipe)):
        raise InputError(f"recipe._target_={target}: wanted a recipe of this project. Say recipe=NAME.")
    return found


def check_prompts(cfg: DictConfig) -> None:
    """InputError for a prompt beside a file that holds all of them."""
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    beside = [word for word in words if word.lstrip("+").startswith("prompts.") and "prompts.file=" not in word]
    if "file" in (cfg.get("prompts") or {}) and beside:
        raise InputError(
            f"{beside[0]} stands beside prompts={cfg.prompts.file}, which holds all prompts. Write it into that file."
        )


def write_alone(cfg: DictConfig) -> None:
    """Write the data set of a composed config in this process; what is there already is kept.

    Raises:
        InputError: a key, the input or the generator is wrong, or the folder is another data set's.
        SynthesisFailed: the model failed.
    """
    recipe = settings(kind_of(cfg), cfg, besides=Afterwards._fields)
    if recipe.processes > 1:
        raise InputError(f"devices={recipe.processes}: one process writes here. Leave it out.")
    recipe.plan()
    try:
        with nothing_left_of_a_claim(recipe.folder), recipe.claimed(alone=True):
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
