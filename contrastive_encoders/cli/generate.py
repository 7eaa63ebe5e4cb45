"""Generate a dataset with a language model: ``contrastive-encoders generate recipe=... generator=... output=...``."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.import_target import found_at
from contrastive_encoders.core.runtime.process_group import refuse_launcher
from contrastive_encoders.synthesis.recipe_configs import GENERATE_CONFIGS
from contrastive_encoders.synthesis.report.actions import DatasetActions
from contrastive_encoders.synthesis.report.annotate import Item
from contrastive_encoders.synthesis.shards.store import SynthesisError
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_store import register

if TYPE_CHECKING:  # torch takes seconds to import, so it is not imported before --help is answered
    from contrastive_encoders.synthesis.recipe import Recipe

log = logging.getLogger(__name__)


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Generate a dataset, and perform the other requested actions, such as an annotation sample."""
    refuse_launcher()
    recipe = config_of(cfg, kind_of(cfg))
    require(recipe, "output", "the directory of the dataset")
    actions = DatasetActions(recipe.encoder, recipe.annotation_sample, recipe.annotation_sheet)
    actions.check()
    finished = actions.asked() and not any((recipe.generator, recipe.recipe["name"], cfg.get("spec")))
    if not finished:
        plan(recipe, actions)
        recipe.run()
        if recipe.takes_encoder:
            actions = actions._replace(encoder=None)
    options = {"seed": cfg.get("seed", 0), "device": cfg.get("device", "auto")}
    shown = actions.do(recipe.folder, **options, as_trained=as_trained)
    print(shown, end="\n" if shown else "")


def as_trained(folder: Path) -> list[Item]:
    """Return all pairs that ``data=dino`` keeps after its published post-processing steps, including the pairs that it
    would hold out from training.
    """
    from contrastive_encoders.datamodules.data_configs import ScoredPairDataConfig
    from contrastive_encoders.datamodules.scored_pairs import ScoredPairs

    # Nothing is tokenized or drawn
    unread: Any = {"tokenizer": "", "batch_size": 1, "max_length": 1, "seed": 0, "verify": False}
    pairs = ScoredPairs(ScoredPairDataConfig(path=str(folder), dev_fraction=0, quiet=False, **unread))
    return [Item(record.texts[0], record.texts[1], f"{record.label:.1f}") for record in pairs.source()]


def kind_of(cfg: DictConfig) -> "type[Recipe]":
    """Return the recipe class that the config names; only classes of this project are accepted."""
    from contrastive_encoders.synthesis.recipe import Recipe

    target = cfg.recipe.get("_target_") if isinstance(cfg.get("recipe"), DictConfig) else None
    found = (
        found_at(target)
        if isinstance(target, str) and target.startswith("contrastive_encoders.synthesis.recipes.")
        else None
    )
    if not (isinstance(found, type) and issubclass(found, Recipe)):
        raise InputError(
            key="recipe",
            value=target or cfg.get("recipe"),
            expected=f"one of {', '.join(choices('recipe'))}, or a custom recipe with the same defaults "
            "list as configs/recipe/dino_x1.yaml",
        )
    return found


def check_prompts(recipe: "Recipe") -> None:
    """Check that no individual prompt (``prompts.KEY``) is set if ``prompts.file`` contains all prompts.

    Raises:
        InputError: they are.
    """
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    others = [word for word in words if word.lstrip("+").startswith("prompts.") and "prompts.file=" not in word]
    file = getattr(recipe, "prompts", {}).get("file")
    if file is not None and others:
        key, _, value = others[0].lstrip("+").partition("=")
        raise InputError(
            key=key,
            value=value,
            expected=f"no value, since prompts={file} contains all prompts",
            hint="Write the prompt into that file.",
        )


def plan(recipe: "Recipe", actions: DatasetActions) -> None:
    """Check all keys of a recipe before anything is generated."""
    check_prompts(recipe)
    if (keys := actions.for_labels()) and not recipe.has_labels:
        raise InputError(
            key=keys[0],
            value=getattr(recipe, keys[0]),
            expected=f"null for recipe={recipe.recipe['name']}, which does not generate texts for labels",
            hint=f"Remove {keys[0]}.",
        )
    recipe.plan()
    if not recipe.takes_encoder:
        actions.check_encoder(recipe.folder, has_pairs=recipe.has_pairs)


register(GENERATE_CONFIGS)
main = command_line("generate", run, failed=(SynthesisError,))
