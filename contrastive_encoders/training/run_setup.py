"""Preparation of a run: process group, output folder, ``backbone=tiny``."""

import contextlib
import itertools
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import pytorch_lightning  # noqa: F401  its import sets the level of its logger
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from transformers.utils import logging as transformers_logging

from contrastive_encoders.composition.config_keys import word_of
from contrastive_encoders.core import InputError, without_secrets
from contrastive_encoders.core.config_schema import as_mapping
from contrastive_encoders.encoders.loading.own_encoder import own_encoder
from contrastive_encoders.encoders.loading.tiny import TINY_BACKBONES
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.io.atomic import write_whole
from contrastive_encoders.runtime.process_group import from_rank_zero
from contrastive_encoders.training.build import data_of, is_missing, make_data, recipe_of
from contrastive_encoders.training.changed_settings import changes_in, described
from contrastive_encoders.training.identity import identity_in
from contrastive_encoders.training.run_config import RunConfig
from contrastive_encoders.training.run_directory import claim_folder, new_folder
from contrastive_encoders.training.stages import Stage

log = logging.getLogger(__name__)

HINTS = (
    "Found .* module.s. in eval mode at the start of training",
    "The number of training batches .* is smaller than the logging interval",
    ".*LeafSpec.*is deprecated",
    "You have overridden `on_before_batch_transfer` in `LightningModule`",  # which is called, as it says
)


class Start(NamedTuple):
    """What rank 0 has decided for all ranks."""

    finished: bool
    checkpoint: str | None  # to continue from
    backbone: str | None


@contextlib.contextmanager
def hushed_libraries() -> Iterator[None]:
    """Their bars and hints would bury our own; what goes wrong still comes through. Afterwards all is as before."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    loggers = {name: logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in HINTS:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])
        if bars:
            transformers_logging.enable_progress_bar()


@contextlib.contextmanager
def said_once(*names: str) -> Iterator[None]:
    """What these loggers say of each stage, and when it is rehearsed, is told once where the words are the same."""
    lines = set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        before = len(lines)
        lines.add(record.getMessage())
        return len(lines) > before

    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(is_new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_new)


def prepare_folder(stage: Stage, writer: bool) -> Start:
    """Make the folder this run's; ``backbone=tiny`` is written into it."""
    run, folder = stage.run, stage.folder
    claim = claim_folder(
        folder,
        stage.identity,
        resume=run.resume,
        overwrite=run.overwrite,
        writer=writer,
        recipe=recipe_of(run),
    )
    if claim.finished:
        return Start(True, None, run.backbone)
    if writer:
        record_config(run, folder / ".hydra")
    backbone = write_tiny([stage], folder / "backbone") if run.backbone == "tiny" else run.backbone
    return Start(False, claim.checkpoint, backbone)


def prepare_whole(run: RunConfig, stages: Sequence[Stage], chosen: Sequence[Stage], writer: bool) -> Start:
    """The same for the folder in which those of the stages lie; all of them share one tiny backbone."""
    folder = Path(str(run.output_dir))
    if run.resume not in (None, "auto"):
        raise InputError(
            f"resume={run.resume}: a run of stages goes on by itself where it stopped. Say resume=auto, or continue "
            "from a checkpoint in a run without stages."
        )
    poolings = _poolings(stages)
    for before, after in _followers(stages, chosen):
        _refuse_lost_pooling(before, poolings[before.name], after)
        _refuse_lost_head(before, after)
        _refuse_lost_layers(before, after)
    alone = len(chosen) < len(stages)
    if alone and run.overwrite:
        _refuse_what_others_stand_on(stages, chosen[-1], folder)
    overwrite = run.overwrite and not alone
    claim = claim_folder(
        folder,
        stages[-1].identity,
        resume=run.resume,
        overwrite=overwrite,
        writer=writer,
        recipe=recipe_of(run),
    )
    if claim.finished:
        return Start(True, None, None)
    if writer:
        record_config(run, folder / ".hydra")
    backbone = chosen[0].run.backbone
    return Start(False, None, write_tiny(stages, folder / "backbone") if backbone == "tiny" else backbone)


def begin(stages: Sequence[Stage], stage: Stage, backbone: str | None) -> tuple[Stage, Path | None]:
    """The stage with what it begins from as its backbone, and the folder of that where it is the stage before."""
    place = stages.index(stage)
    folder, identity = from_rank_zero(lambda writer: _finished_before(stages, place))
    begun = stage.begun_from(identity)._replace(run=replace(stage.run, backbone=folder or backbone))
    if folder or not place:
        log.info("stage %s begins from %s", stage.name, begun.run.backbone)
    else:
        log.info("stage %s begins from backbone=%s: there is no finished stage before it", stage.name, backbone)
    return begun, Path(folder) if folder else None


def _finished_before(stages: Sequence[Stage], place: int) -> tuple[str | None, str]:
    """Return folder and identity of the stage before ``place``; None and an empty text if it is not finished."""
    before = stages[place - 1] if place else None
    if before is None or not before.is_finished:
        return None, ""
    identity = identity_in(before.folder)
    if identity in (before.identity, before.begun_from("").identity):
        return str(before.folder), identity
    recipe = recipe_of(before.run)
    found = [one for one in changes_in(before.folder, recipe) if one.key != "backbone"]  # here that of the first stage
    there = described(found) if found else "it begins from other weights"
    raise InputError(
        location=str(before.folder),
        expected=f"the settings of stage {before.name} that was trained there: {there}",
        hint=f"Set them as there, or set {word_of('output_dir', str(new_folder(before.folder.parent)))} to train all "
        "stages anew.",
    )


def _followers(stages: Sequence[Stage], chosen: Sequence[Stage]) -> Iterator[tuple[Stage, Stage]]:
    """Each stage that is to be trained now on the weights of the one before it, behind that one."""
    for before, after in itertools.pairwise(stages):
        if after in chosen and not after.is_finished and (before in chosen or before.is_finished):
            yield before, after


def _refuse_lost_pooling(before: Stage, pooling: str | None, after: Stage) -> None:
    """Refuse a stage that reads a decoder, or the backbone's own tanh layer, after one with another ``pooling``, which
    leaves none.
    """
    wanted = getattr(after.run.model, "pooling", None)
    if wanted not in POOLERS or pooling not in POOLERS:
        return
    for part, what in (("decodes", "a decoder"), ("is_shipped", "the backbone's tanh layer")):
        if getattr(POOLERS[wanted], part) and not getattr(POOLERS[pooling], part):
            raise InputError(
                key=f"stages.{after.name}.model.pooling",
                value=wanted,
                expected=f"a pooling that does not read {what}, but {pooling} of stage {before.name} leaves none",
                hint=f"Set stages.{before.name}.model.pooling={wanted}.",
            )


def _poolings(stages: Sequence[Stage]) -> dict[str, str | None]:
    """Return the pooling of each stage; None of a model without one. A stage keeps that of the stage before it."""
    found = dict[str, str | None]()
    pooling: str | None = None
    for stage in stages:
        model: Any = hydra.utils.get_class(stage.run.model.target)
        if issubclass(model, Objective):
            if stage.run.model.pooling is not None:
                pooling = stage.run.model.pooling
            elif pooling is None and stage.run.backbone == "tiny":
                pooling = model.default_pooling
            elif pooling is None:
                pooling = own_encoder(str(stage.run.backbone)).pooling(model.default_pooling)
        found[stage.name] = pooling if issubclass(model, Objective) else None
    return found


def _refuse_lost_head(before: Stage, after: Stage) -> None:
    """A stage without MLM leaves no masked-LM head to one that trains with it."""
    weight = _mlm_weight(after)
    if weight > 0 and getattr(before.run.model, "mlm_weight", 0.0) == 0:
        raise InputError(
            f"stages.{after.name}.model.mlm_weight={weight:g} trains a masked-LM head, and stage {before.name} is "
            f"trained without one and leaves none. Set stages.{after.name}.model.mlm_weight=0, or let {after.name} "
            "be the first stage."
        )


def _refuse_lost_layers(before: Stage, after: Stage) -> None:
    """Refuse a stage that keeps layers by the same numbers as the stage before, which leaves fewer layers."""
    layers = getattr(after.run.model, "layers", None)
    if isinstance(layers, Sequence) and [*layers] == [*(getattr(before.run.model, "layers", None) or ())]:
        raise InputError(
            f"stages.{after.name}.model.layers={[*layers]}: stage {before.name} takes the other layers out, and "
            f"{after.name} begins from what is left. Say model.layers of the first stage alone."
        )


def _mlm_weight(stage: Stage) -> float:
    """0 of a model that knows no MLM, and where the backbone decides; unless there is no other loss."""
    weight = getattr(stage.run.model, "mlm_weight", 0.0)
    return float(stage.run.model.contrastive_weight == 0) if weight is None else float(weight)


def _refuse_what_others_stand_on(stages: Sequence[Stage], stage: Stage, folder: Path) -> None:
    later = stages[[one.name for one in stages].index(stage.name) + 1 :]
    there = [one.folder for one in later if one.folder.exists()]
    if (folder / "results.json").exists():
        there.append(folder / "results.json")
    if there:
        raise InputError(
            key="overwrite",
            value=True,
            expected=f"false with only_stage, since {there[0]} was made from stage {stage.name}",
            hint="Choose another output_dir, or train all stages again.",
        )


def record_config(run: RunConfig, folder: Path) -> None:
    """``.hydra``: the keys of the run, and of a command line its words and Hydra's own config."""
    records: dict[str, Any] = {"config": recipe_of(run)}
    if HydraConfig.initialized():
        hydra_config = HydraConfig.get()
        records |= {"hydra": hydra_config, "overrides": hydra_config.overrides.task}
    for name, record in records.items():
        text = OmegaConf.to_yaml(record if OmegaConf.is_config(record) else OmegaConf.create(record))
        write_whole(folder / f"{name}.yaml", without_secrets(text))


def write_tiny(stages: Sequence[Stage], folder: Path) -> str:
    """``backbone=tiny``: train the tokenizer on the texts of all stages, draw the weights, and write both as an
    ordinary folder; once.
    """
    models: dict[str, Any] = {stage.name: hydra.utils.get_class(stage.run.model.target) for stage in stages}
    families = {name: model.tiny_backbone for name, model in models.items()}
    if len(set(families.values())) > 1:
        described = ", ".join(f"{family} in {name}" for name, family in families.items())
        raise InputError(f"backbone=tiny: the stages want different architectures ({described}). Give a backbone.")
    if not (folder / "config.json").is_file():
        run = stages[0].run
        texts = list[Iterator[str]]()
        for stage in stages:
            if any(map(is_missing, data_of(stage.run).values())):  # of a stage that is not to run now
                continue
            with stage.named_in_errors():
                texts.append(make_data(stage.run).texts())
        TINY_BACKBONES[families[stages[0].name]](folder, _in_turn(texts), seed=run.seed, **as_mapping(run.tiny))
    return str(folder)


def _in_turn(several: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """One of each: a vocabulary is made of the first texts, and should be of all stages."""
    nothing = object()
    for row in itertools.zip_longest(*several, fillvalue=nothing):
        yield from (one for one in row if one is not nothing)
