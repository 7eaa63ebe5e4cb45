"""Write a data set with a language model: ``python -m synthesis recipe=... generator=... output=...``."""

from cli.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from cli.child_processes import run_ranks, works_for_another
from cli.config_files import choices
from cli.hydra_main import command_line
from cli.keys import settings
from cli.process_group import find_ranks, from_rank_zero
from cli.targets import found_at
from contracts import InputError
from storage.ownership import LOCK, work_for
from synthesis.report.actions import Afterwards
from synthesis.report.annotate import Item
from synthesis.shards.heartbeat import Heartbeat
from synthesis.shards.store import SynthesisFailed
from synthesis.writing import claim, nothing_left_of_a_claim

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from synthesis.recipe import Recipe

log = logging.getLogger("synthesis")


class Keys(TypedDict):
    """Keys about a data set that exists already; the keys of a recipe are the fields of its class."""

    output: str | None
    overwrite: bool
    quiet: bool
    seed: int
    encoder: str | None
    annotate: int | None  # texts on the sheet
    annotations: str | None  # file
    publish: str | None  # folder


def run(cfg: DictConfig) -> int:
    """The exit status."""
    if cfg.output is None:
        raise InputError("output is not set: the folder of the data set. Say output=FOLDER.")
    folder = Path(cfg.output)
    afterwards = Afterwards(cfg.encoder, cfg.annotate, cfg.annotations, cfg.publish)
    afterwards.check(folder, overwrite=cfg.overwrite)
    finished = afterwards.asked() and not any((cfg.generator, cfg.recipe.name, cfg.get("spec")))
    status = 0 if finished else write(cfg, afterwards)
    if status == 0:
        how = {"seed": cfg.get("seed", 0), "device": cfg.get("device", "auto"), "overwrite": cfg.overwrite}
        shown = afterwards.do(folder, **how, as_trained=as_trained)
        print(shown, end="\n" if shown else "")
    return status


def as_trained(folder: Path) -> list[Item]:
    """The pairs of a data set as data=dino makes them, with its published steps, before any are held out."""
    from datamodules.scored_pairs import ScoredPairs
    from datamodules.settings import ScoredPairData

    # Nothing is tokenised or drawn
    unread: Any = {"tokenizer": "", "batch_size": 1, "max_length": 1, "seed": 0, "verify": False}
    pairs = ScoredPairs(ScoredPairData(path=str(folder), dev_share=0, quiet=False, **unread))
    return [Item(record.texts[0], record.texts[1], f"{record.label:.1f}") for record in pairs.source()]


def kind_of(cfg: DictConfig) -> "type[Recipe]":
    """The class of the recipe; it is one of ours, whatever the config says."""
    from synthesis.recipe import Recipe

    target = cfg.recipe.get("_target_") if isinstance(cfg.get("recipe"), DictConfig) else None
    found = found_at(target) if isinstance(target, str) and target.startswith("synthesis.recipes.") else None
    if not (isinstance(found, type) and issubclass(found, Recipe)):
        raise InputError(
            f"recipe={target or cfg.get('recipe')}: wanted one of {', '.join(choices('recipe'))}. Say recipe=NAME; one "
            "of your own begins as configs/recipe/dino_x1.yaml does."
        )
    return found


def check_prompts(cfg: DictConfig) -> None:
    """InputError for a prompt beside a file that holds all of them."""
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    beside = [word for word in words if word.lstrip("+").startswith("prompts.") and "prompts.file=" not in word]
    if "file" in (cfg.get("prompts") or {}) and beside:
        raise InputError(
            f"{beside[0]} stands beside prompts={cfg.prompts.file}, which holds all prompts. Write it into that file."
        )


def write(cfg: DictConfig, afterwards: Afterwards) -> int:
    """Call the recipe's verbs."""
    kind = kind_of(cfg)
    check_prompts(cfg)
    recipe = settings(kind, cfg, besides=Afterwards._fields)
    ranks = find_ranks()
    if (asked := afterwards.for_labels()) and not recipe.has_labels:
        raise InputError(
            f"{asked[0]} does not go with recipe={cfg.recipe.name}. Leave it out; Parquet can be had afterwards: "
            f"python -m synthesis output={recipe.folder} publish=..."
        )
    if (asked := afterwards.asked()) and ranks.world > 1:
        raise InputError(
            f"{asked[0]} is for one process. Say it afterwards: python -m synthesis output={recipe.folder} ..."
        )
    recipe.plan()
    afterwards.check_encoder(recipe.folder, has_pairs=recipe.has_pairs)
    with nothing_left_of_a_claim(recipe.folder):
        if from_rank_zero(lambda writer: [claim(recipe, writer)])[0]:
            log.info("%s is finished. overwrite=true writes it again.", recipe.folder)
            return 0
        if recipe.processes > 1 and ranks.world == 1:
            return run_ranks("synthesis", recipe.processes, once=("overwrite", *Afterwards._fields))
        if works_for_another():
            work_for(recipe.folder / LOCK)
        with Heartbeat(recipe.home, *ranks) as heart:
            recipe.write(ranks, heart.watch)
            recipe.finish()
    return 0


main = command_line("synthesis", run, Keys, failed=(SynthesisFailed,))

if __name__ == "__main__":
    main()
