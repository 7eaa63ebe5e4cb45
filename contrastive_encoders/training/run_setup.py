"""Setup of a run: processes, output folder, ``backbone=tiny``, and the initial weights of stages."""

import contextlib
import itertools
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl  # importing it sets the level of its logger
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from transformers.utils import logging as transformers_logging

from contrastive_encoders.core import InputError, without_secrets
from contrastive_encoders.core.config_schema import as_mapping
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.core.runtime.local_ranks import start_ranks
from contrastive_encoders.core.runtime.process_group import broadcast_from_rank_zero, find_ranks, init_process_group
from contrastive_encoders.datamodules.sampling.example_order import check_divisible
from contrastive_encoders.encoders.loading.own_encoder import own_encoder
from contrastive_encoders.encoders.loading.tiny import TINY_BACKBONES
from contrastive_encoders.encoders.lora import is_adapter
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.checkpoint import load_intact
from contrastive_encoders.training.build import make_data, make_trainer
from contrastive_encoders.training.callbacks.checkpoints import BEST
from contrastive_encoders.training.changed_settings import changes_in, described
from contrastive_encoders.training.identity import identity_in
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.run_directory import Start, claim_folder, new_folder

log = logging.getLogger(__name__)

HINTS = (
    "Found .* module.s. in eval mode at the start of training",
    "The number of training batches .* is smaller than the logging interval",
    ".*LeafSpec.*is deprecated",
    "You have overridden `on_before_batch_transfer` in `LightningModule`",  # as the message says, it is called
)


TRANSFORMER = "encoder.transformer."


@contextlib.contextmanager
def quiet_library_logging() -> Iterator[None]:
    """Context manager that hides progress bars and hints of libraries, so that this project's output remains visible.

    Warnings and errors are still shown. Afterwards the settings are restored.
    """
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
def deduplicate_log_messages(*names: str) -> Iterator[None]:
    """Context manager in which the given loggers show each distinct message only once. Otherwise, messages about a
    stage would be repeated by its check before training.
    """
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


def start_processes(run: ResolvedRun) -> None:
    """Start a process for each additional device, unless torchrun or srun has started the processes, and initialize the
    process group.

    This sets the environment variables of a launcher. `ResolvedRun.trainer_arguments` reads them, so that Lightning
    does not start processes again.

    Raises:
        InputError: the weights are to be sharded over a single process, or the processes do not divide the batch size.
    """
    keys = run.trainer_arguments
    if find_ranks().world == 1 and (str(keys["devices"]), keys["num_nodes"]) != ("1", 1):
        trainer = make_trainer(run, logger=False)
        if (world := trainer.num_devices * trainer.num_nodes) > 1:
            for training in run.trainings:
                if training.batch_size is not None:  # null: data.batch_size
                    check_divisible(training.batch_size, world)
            start_ranks(trainer.num_devices, trainer.num_nodes)
    if run.is_sharded and find_ranks().world == 1:
        raise InputError(key="trainer", value="fsdp", expected="ddp for a single process")
    if find_ranks().world > 1:
        on_gpu = keys["accelerator"] != "cpu" and torch.cuda.is_available()
        init_process_group("nccl" if on_gpu else "gloo")


def prepare_folder(run: ResolvedRun) -> Start:
    """Claim the output directory of a run or a stage. If ``backbone=tiny``, write the new backbone to it."""
    return _with_tiny(_claim(run, overwrite=run.overwrite), [run], run.folder)


def prepare_multi_stage_run(run: ResolvedRun) -> Start:
    """Check the order of the stages of a run, and claim the run's directory. If ``backbone=tiny``, all stages share one
    tiny backbone.

    Raises:
        InputError: a stage cannot start from the previous stage, or the directory cannot be claimed.
    """
    if run.resume not in (None, "auto"):
        raise InputError(
            key="resume",
            value=run.resume,
            expected="auto or null in a run with stages, which resumes automatically",
            hint="Set resume=auto. To resume from a checkpoint, use a run without stages.",
        )
    stages, chosen = run.all_stages, run.trainings
    poolings = _poolings(stages)
    for before, after in _successors(run):
        _refuse_lost_pooling(before, poolings[before.stage_name], after)
        _refuse_lost_head(before, after)
        _refuse_lost_layers(before, after)
    is_single = len(chosen) < len(stages)
    if is_single and run.overwrite:
        _check_no_dependent_stages(stages, chosen[-1], run.folder)
    start = _claim(run, overwrite=run.overwrite and not is_single)
    return _with_tiny(start._replace(checkpoint=None, backbone=chosen[0].backbone), stages, run.folder)


def _claim(run: ResolvedRun, overwrite: bool) -> Start:
    """Claim the directory of a run, and store its config there."""
    recipe = run.recorded_keys()
    start = claim_folder(run.folder, run.identity, resume=run.resume, overwrite=overwrite, recipe=recipe)
    if not start.finished:
        record_config(recipe, run.folder / ".hydra")
    return start._replace(backbone=run.backbone)


def _with_tiny(start: Start, stages: Sequence[ResolvedRun], folder: Path) -> Start:
    """If ``backbone=tiny``, write this backbone to the directory of the run, unless the run is finished."""
    if start.finished or start.backbone != "tiny":
        return start
    return start._replace(backbone=write_tiny(stages, folder / "backbone"))


def resolve_stage_backbone(
    stages: Sequence[ResolvedRun], stage: ResolvedRun, backbone: str | None
) -> tuple[ResolvedRun, Path | None]:
    """Return the stage with the location of its initial weights as its backbone. Return also the directory of the
    previous stage if the weights come from it.
    """
    place = stages.index(stage)
    folder, identity = broadcast_from_rank_zero(lambda: _finished_before(stages, place))
    resolved = stage.starting_from(identity).with_values(backbone=folder or backbone)
    if folder or not place:
        log.info("stage %s starts from %s", stage.stage_name, resolved.backbone)
    else:
        log.info("stage %s starts from backbone=%s, because no earlier stage is finished", stage.stage_name, backbone)
    return resolved, Path(folder) if folder else None


def _finished_before(stages: Sequence[ResolvedRun], place: int) -> tuple[str | None, str]:
    """Return the directory and the identity of the stage before ``stages[place]``; (None, "") if there is none or it is
    not finished.
    """
    before = stages[place - 1] if place else None
    if before is None or not before.is_finished:
        return None, ""
    identity = identity_in(before.folder)
    if identity in (before.identity, before.starting_from("").identity):
        return before.output_dir, identity
    found = [
        one for one in changes_in(before.folder, before.recorded_keys()) if one.key != "backbone"
    ]  # of the first stage
    difference = described(found) if found else f"stage {before.stage_name} starts from other weights"
    raise InputError(
        location=before.output_dir,
        expected=f"the config with which stage {before.stage_name} was trained in this directory: {difference}",
        hint="Use the same config, or set "
        f"{format_override('output_dir', str(new_folder(before.folder.parent)))} to train all stages again.",
    )


def load_stage_weights(model: pl.LightningModule, before: Path) -> set[str]:
    """Load all weights with matching names and shapes from best.ckpt of the run in the folder ``before``, and return
    their names.

    The transformer is already loaded, because the run's folder is the backbone. This function loads the modules after
    the transformer. Adapters of that run are part of its transformer, or are below a new adapter.
    """
    best = before / "checkpoints" / BEST
    expected = "the weights that this stage starts from, but they cannot be read"
    hint = f"Restore the checkpoint, or remove {before} to train the previous stage again."
    saved = load_intact(best, expected, location=str(best), hint=hint)["state_dict"]
    weights = model.state_dict()
    # other ranks receive the weights from rank 0
    own = {name: weight.shape for name, weight in weights.items() if not weight.is_meta}
    known = {name: saved[name] for name in saved if name in own and not is_adapter(name)}
    same = {name: weight for name, weight in known.items() if own[name] == weight.shape}
    model.load_state_dict(same, strict=False)
    fresh = sorted(name for name in weights.keys() - same.keys() if not name.startswith(TRANSFORMER))
    if fresh:
        log.info("newly initialized in this stage: %s", ", ".join(fresh))
    return set(same)


def _successors(run: ResolvedRun) -> Iterator[tuple[ResolvedRun, ResolvedRun]]:
    """Yield (previous stage, stage) for each stage that will be trained now from the weights of the previous stage."""
    chosen = run.trainings
    for before, after in itertools.pairwise(run.all_stages):
        if after in chosen and not after.is_finished and (before in chosen or before.is_finished):
            yield before, after


def _refuse_lost_pooling(before: ResolvedRun, pooling: str | None, after: ResolvedRun) -> None:
    """Check that the encoder of the previous stage contains the layer that the pooling of the next stage requires.

    The pooling may require a decoder or the backbone's tanh layer. A stage with another ``pooling`` removes this layer
    from the encoder.
    """
    own = getattr(after.model, "pooling", None)
    if own not in POOLERS or pooling not in POOLERS:
        return
    for part, layer in (("decodes", "a decoder"), ("is_shipped", "the backbone's tanh layer")):
        if getattr(POOLERS[own], part) and not getattr(POOLERS[pooling], part):
            raise InputError(
                key=f"stages.{after.stage_name}.model.pooling",
                value=own,
                expected=f"a pooling that does not require {layer}, because stage {before.stage_name} has "
                f"pooling={pooling} and therefore removes this layer",
                hint=f"Set stages.{before.stage_name}.model.pooling={own}.",
            )


def _poolings(stages: Sequence[ResolvedRun]) -> dict[str, str | None]:
    """Return the pooling of each stage; None for a model without pooling. If the key is not set, a stage inherits the
    pooling of the previous stage.
    """
    found = dict[str, str | None]()
    pooling: str | None = None
    for stage in stages:
        model: Any = hydra.utils.get_class(stage.model.target)
        if issubclass(model, Objective):
            if stage.model.pooling is not None:
                pooling = stage.model.pooling
            elif pooling is None and stage.backbone == "tiny":
                pooling = model.default_pooling
            elif pooling is None:
                pooling = own_encoder(str(stage.backbone)).pooling(model.default_pooling)
        found[stage.stage_name] = pooling if issubclass(model, Objective) else None
    return found


def _refuse_lost_head(before: ResolvedRun, after: ResolvedRun) -> None:
    """Check that no stage with MLM follows a stage without MLM, whose encoder has no masked-LM head."""
    weight = _mlm_weight(after)
    if weight > 0 and getattr(before.model, "mlm_weight", 0.0) == 0:
        key = f"stages.{after.stage_name}.model.mlm_weight"
        raise InputError(
            key=key,
            value=f"{weight:g}",
            expected=f"0, since stage {before.stage_name} is trained without a masked-LM head",
            hint=f"Set {key}=0, or make {after.stage_name} the first stage.",
        )


def _refuse_lost_layers(before: ResolvedRun, after: ResolvedRun) -> None:
    """Check that a stage does not repeat the ``keep_layers`` of the previous stage, whose encoder contains only the
    selected layers.
    """
    layers = getattr(after.model, "keep_layers", None)
    if isinstance(layers, Sequence) and [*layers] == [*(getattr(before.model, "keep_layers", None) or ())]:
        raise InputError(
            key=f"stages.{after.stage_name}.model.keep_layers",
            value=[*layers],
            expected=f"layers that the encoder of stage {before.stage_name} contains, since this stage removed the "
            "other layers",
            hint=f"Set model.keep_layers only for the first stage, with stages.{before.stage_name}.model.keep_layers.",
        )


def _mlm_weight(stage: ResolvedRun) -> float:
    """Return the weight of the MLM loss in a stage.

    The weight is 0 for a model without MLM. If ``mlm_weight`` is null, the backbone determines the weight; here it
    counts as 1 if there is no contrastive loss, and as 0 otherwise.
    """
    weight = getattr(stage.model, "mlm_weight", 0.0)
    return float(stage.model.contrastive_weight == 0) if weight is None else float(weight)


def _check_no_dependent_stages(stages: Sequence[ResolvedRun], stage: ResolvedRun, folder: Path) -> None:
    later = stages[[one.stage_name for one in stages].index(stage.stage_name) + 1 :]
    existing = [one.folder for one in later if one.folder.exists()]
    if (folder / "results.json").exists():
        existing.append(folder / "results.json")
    if existing:
        raise InputError(
            key="overwrite",
            value=True,
            expected=f"false if only_stage is set, since {existing[0]} depends on stage {stage.stage_name}",
            hint="Choose another output_dir, or train all stages again.",
        )


def record_config(recipe: Mapping[str, Any], folder: Path) -> None:
    """Write the keys of the run to ``folder``, and if Hydra started the run, also the overrides and Hydra's config."""
    records: dict[str, Any] = {"config": recipe}
    if HydraConfig.initialized():
        hydra_config = HydraConfig.get()
        records |= {"hydra": hydra_config, "overrides": hydra_config.overrides.task}
    for name, record in records.items():
        text = OmegaConf.to_yaml(record if OmegaConf.is_config(record) else OmegaConf.create(record))
        atomic_write(folder / f"{name}.yaml", without_secrets(text))


def write_tiny(stages: Sequence[ResolvedRun], folder: Path) -> str:
    """Create the model folder for ``backbone=tiny``, unless it exists, and return its path.

    The tokenizer is trained on the texts of all stages, the weights are initialized randomly, and both are saved as an
    ordinary model folder.
    """
    models: dict[str, Any] = {stage.stage_name: hydra.utils.get_class(stage.model.target) for stage in stages}
    families = {name: model.tiny_backbone for name, model in models.items()}
    if len(set(families.values())) > 1:
        by_stage = ", ".join(f"{family} in {name}" for name, family in families.items())
        raise InputError(
            key="backbone",
            value="tiny",
            expected=f"a backbone for all stages, since tiny has a different architecture in each stage ({by_stage})",
            hint="Set backbone to a model directory or Hub id.",
        )
    if not (folder / "config.json").is_file():
        texts = list[Iterator[str]]()
        for stage in stages:
            if stage.missing:  # of a stage that will not be trained now
                continue
            with stage.named_in_errors():
                texts.append(make_data(stage).texts())
        TINY_BACKBONES[families[stages[0].stage_name]](
            folder, _interleave(texts), seed=stages[0].seed, **as_mapping(stages[0].tiny)
        )
    return str(folder)


def _interleave(several: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """Yield one item from each iterator in turn. A vocabulary is built from the first texts, which should come from all
    stages.
    """
    missing = object()
    for row in itertools.zip_longest(*several, fillvalue=missing):
        yield from (one for one in row if one is not missing)
