"""Checks of a run's config, most of them before anything is built, trained, or written."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch

from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.config_schema import build, check, keys_of, type_description
from contrastive_encoders.core.key_suggestions import nearest_hint
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.core.runtime.process_group import launcher_info
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS, choice_of
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.evaluation.catalog import tasks_of_suites
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.scorer import Scorer
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.sharded_tensors import shapes
from contrastive_encoders.training.callbacks.checkpoints import LAST, WITHOUT_OPTIMIZER, unreadable
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.max_length import check_lengths
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.resume import check_settings
from contrastive_encoders.training.run_config import DEFAULT_MODELS, Trainer
from contrastive_encoders.training.target_checks import check_targets
from contrastive_encoders.training.teacher import check_teacher_keys

LOGGED_BY_EVERY_RUN = (
    "train/loss",
    "train/lr",
    "throughput/documents_per_s",
    "throughput/real_tokens_per_s",
    "throughput/padding_share",
    "time/elapsed_s",
)
STEP_PREFIX, PART_PREFIX = (
    "train/",
    "train/loss/",
)  # metrics of any objective; the losses of mixture parts by their names


MAX_TIME = re.compile(r"\d{1,5}:([01]?\d|2[0-3]):[0-5]?\d:[0-5]?\d")


def check_run(run: ResolvedRun) -> None:
    """Check the config of a run, or of each stage that will be trained.

    Raises:
        InputError: model and data do not match, or a value is invalid.
    """
    for training in run.trainings:
        with training.named_in_errors():
            check_targets(training)
            model = check_model_and_data(training)
            check_average(training, model, is_stage=len(run.all_stages) > 1)
            check_values(training)
            check_teacher_keys(training)
            check_lengths(training)
            check_device(training)
            tasks_of_suites(names_of(training.evaluation.suite), "evaluation.")
            resolve_custom_tasks(training.evaluation.custom_tasks, "evaluation.custom_tasks")


def check_model_and_data(run: ResolvedRun) -> Any:
    """Check that a model and data are chosen, and that the model accepts the data's batches; return the class of the
    model.
    """
    for group, settings in (("model", run.model), ("data", run.data)):
        if settings is None:
            suitable = DEFAULT_MODELS.get(choice_of(run.data)) if run.data else None
            raise InputError(
                key=group,
                value=None,
                expected=f"one of {', '.join(choices(group))}",
                hint=f"Set {group}={suitable or 'NAME'} or experiment=NAME. contrastive-encoders train --help lists "
                "all choices.",
            )
    model: Any = hydra.utils.get_class(run.model.target)
    consumes = model.consumes if isinstance(model.consumes, tuple) else (model.consumes,)
    for place, settings in run.datasets.items():
        yields = hydra.utils.get_object(settings.target).yields
        if yields is not None and yields not in consumes:
            raise InputError(
                key=place,
                value=choice_of(settings),
                expected=f"{_suitable_data(consumes)}, which model={model.objective} can be trained on",
                hint="Choose other data or another model.",
            )
        if model.objective == "reranker" and getattr(settings, "prompts", None):
            raise InputError(
                key=f"{place}.prompts",
                value=settings.prompts,
                expected="null for a reranker, since the directory of a cross-encoder cannot store prompts",
                hint=f"Set {place}.prompts=null.",
            )
    return model


def _suitable_data(consumes: Sequence[type]) -> str:
    """Return the names of the data whose batches an objective consumes, or the names of custom batch classes."""
    names = [name for name, kind in DATA_CONFIGS.items() if hydra.utils.get_object(kind.target).yields in consumes]
    if names:
        return f"one of {', '.join(names)}"
    return f"data that yields {' or '.join(one.__name__ for one in consumes)}"


def check_average(run: ResolvedRun, model: Any, *, is_stage: bool) -> None:
    """If ``initial_weights_fraction`` is set, check that the weights of this run can be averaged."""
    if not run.initial_weights_fraction:
        return
    expected = None
    if is_stage:
        expected = "null in a run with stages, since a stage starts from the trained weights, not from an average"
    elif not issubclass(model, Objective):
        expected = f"null for model={model.objective}, which does not train an encoder"
    elif run.model.lora.rank is not None:
        expected = f"null if model.lora.rank={run.model.lora.rank}, since averaging requires all weights"
    if expected:
        raise InputError(
            key="initial_weights_fraction",
            value=f"{run.initial_weights_fraction:g}",
            expected=expected,
            hint="Set initial_weights_fraction=null.",
        )
    if run.is_sharded:
        raise InputError(
            key="trainer",
            value="fsdp",
            expected="ddp if initial_weights_fraction is set, since averaging copies the weights",
        )


def check_values(run: ResolvedRun) -> None:
    """Check that the values of all keys of model, data, and trainer have the declared type and are within their
    bounds.
    """
    known = {one.name for one in keys_of(Trainer)}  # other keys are passed to Lightning unchanged
    build(Trainer, {name: value for name, value in run.trainer.items() if name in known}, "trainer.")
    for name in sorted(run.trainer.keys() & run.own_arguments.keys()):
        own = "output_dir" if name == "default_root_dir" else name
        expected = "no value, because a key of the run has the same meaning"
        raise InputError(key=f"trainer.{name}", value=run.trainer[name], expected=expected, hint=f"Set {own}.")
    for key, kind in run.missing.items():
        raise InputError(key=key, value=None, expected=type_description(kind), hint=f"Set {key}.")
    if run.model is not None:  # a preview has no model
        if run.batch_size is None and getattr(run.data, "batch_size", None) is None:  # the config of a model sets it
            raise InputError(
                key="batch_size", value=None, expected="an integer of at least 1", hint="Set batch_size=64."
            )
        if run.model.backbone is None:  # the config of a model sets it
            expected = "a Hub id, the directory of an encoder, or tiny"
            raise InputError(key="backbone", value=None, expected=expected, hint="Set backbone=tiny.")
        check(run.model, "model.")
        betas = run.model.betas
        if len(betas) != 2:
            raise InputError(
                key="model.betas",
                value=betas,
                expected="two numbers, each at least 0 and less than 1, e.g. [0.9,0.999]",
            )
    for place, settings in {"data": run.data, **run.datasets}.items():
        check(settings, f"{place}.")
    for key in ("num_workers", "tokenizer_workers"):
        check_number(f"data.{key}", getattr(run.data, key, 0))
    if run.max_time is not None and not MAX_TIME.fullmatch(run.max_time):
        raise InputError(
            key="max_time",
            value=run.max_time,
            expected="DD:HH:MM:SS, such as 00:01:00:00 for one hour, where HH is at most 23, and MM and SS are at "
            "most 59",
        )
    if run.max_steps == 0 or run.max_steps < -1:
        raise InputError(
            key="max_steps",
            value=run.max_steps,
            expected="at least 1, or -1 so that max_epochs determines the number of steps",
        )


def check_device(run: ResolvedRun) -> None:
    """Check that the hardware and the strategy support the precision, the number of processes, and the callbacks. On a
    CPU, Lightning would only warn when it replaces fp16 by bf16, and would start any number of processes.
    """
    keys = run.trainer_arguments
    accelerator = keys["accelerator"]
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())
    if run.precision == "fp16" and on_cpu:
        raise InputError(
            key="precision",
            value="fp16",
            expected="bf16 or fp32 on a CPU, since fp16 requires a GPU",
            hint="Set precision=bf16.",
        )
    devices = str(keys["devices"])  # Lightning reads "8" as 8
    if devices.strip().isdigit() and not launcher_info():
        check_number("devices", int(devices), 0 if on_cpu else torch.accelerator.device_count())
    if run.is_sharded and run.precision == "fp16":
        raise InputError(key="precision", value="fp16", expected="bf16 or fp32, since fsdp does not scale losses")
    if run.is_sharded and run.model.frozen_dtype == "nf4":
        raise InputError(
            key="trainer",
            value="fsdp",
            expected="ddp if model.frozen_dtype=nf4, since nf4 weights cannot be sharded",
        )
    averaging = (pl.callbacks.StochasticWeightAveraging, pl.callbacks.WeightAveraging)
    for name, callback in run.callbacks.items() if run.is_sharded else ():
        if issubclass(hydra.utils.get_class(callback["_target_"]), averaging):
            raise InputError(
                key="trainer",
                value="fsdp",
                expected=f"ddp if callbacks.{name} is set, since this callback copies the weights",
            )


def check_scoring(run: ResolvedRun, final: Scorer, during: Scorer) -> None:
    """Check that the tasks in ``evaluation.during_training`` exist, and that one of them computes the monitored
    score.
    """
    names = list(dict.fromkeys(task.name for task in [*final, *during]))
    every = run.evaluation.every_n_steps
    if every:
        for name in names_of(run.evaluation.during_training):
            if name not in names:
                raise InputError(
                    key="evaluation.during_training",
                    value=name,
                    expected=f"one of {', '.join(names)}" if names else "null, since this run has no tasks",
                    hint="Set evaluation.data_root and an evaluation.suite with this task, or set "
                    "evaluation.every_n_steps=null.",
                )
    monitor = run.monitor
    if run.early_stopping is not None and monitor is None:
        raise InputError(
            key="early_stopping",
            value=run.early_stopping,
            expected="null if monitor is null, since the values of monitor determine when to stop",
            hint="Set monitor=train/loss, or set monitor to a score and evaluation.every_n_steps to an interval.",
        )
    if monitor is None or monitor in LOGGED_BY_EVERY_RUN or run.callbacks:
        return
    if monitor.startswith((STEP_PREFIX, *{f"{one.partition('/')[0]}/" for one in LOGGED_BY_EVERY_RUN})):
        _check_logged(run, monitor)
        return
    if not every:
        raise InputError(
            key="monitor",
            value=monitor,
            expected="null or train/loss, since nothing is evaluated during training",
            hint="Set evaluation.every_n_steps=STEPS, or set monitor=null.",
        )
    known = sorted(during.score_names())
    if monitor not in known:
        raise InputError(
            key="monitor",
            value=monitor,
            expected=f"train/loss or one of {', '.join(known)}, the scores of the tasks in evaluation.during_training",
            hint=nearest_hint(monitor, known),
        )


def _check_logged(run: ResolvedRun, monitor: str) -> None:
    """Check that training steps log the monitored metric. Metrics of the objective are known only at the first logged
    step (telemetry.py).
    """
    parts = [f"{PART_PREFIX}{place.rpartition('.')[2]}" for place in run.datasets if place != "data"]
    known = [*LOGGED_BY_EVERY_RUN, *(parts if getattr(run.data, "homogeneous", False) else [])]
    is_of_step = monitor.startswith(STEP_PREFIX) and not (parts and monitor.startswith(PART_PREFIX))
    if monitor in known or is_of_step:
        return
    raise InputError(
        key="monitor",
        value=monitor,
        expected=f"one of {', '.join(known)}, or train/NAME for a metric of the objective",
        hint=nearest_hint(monitor, known),
    )


def names_of(value: str | Sequence[str]) -> list[str]:
    """Return a list of names, given a single name or several names."""
    return [value] if isinstance(value, str) else list(value)


def check_room(folder: Path, model: pl.LightningModule) -> None:
    """Check that the disk has enough free space for a checkpoint, which contains the weights and, for each trained
    weight, two optimizer moments of four bytes each.

    Raises:
        OutputError: there is too little space.
    """
    adam_bytes = 8  # per trained weight
    needed = sum(weight.nbytes + weight.requires_grad * adam_bytes * weight.numel() for weight in model.parameters())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OutputError(
            f"output_dir={folder}: a checkpoint needs about {needed / 2**30:.2f} GiB, but only {free / 2**30:.2f} GiB "
            "are free. Free disk space, or choose another output_dir."
        )


def check_checkpoint(path: str, model: pl.LightningModule, recipe: Mapping[str, Any]) -> None:
    """Check that a checkpoint is readable, contains the weights of ``model``, and has settings with which the run can
    be resumed.

    Raises:
        InputError: the checkpoint fails one of these checks.
    """
    if (why := unreadable(path)) and unreadable(path, WITHOUT_OPTIMIZER) is None:
        folder = Path(path).parent
        words = format_override("resume", str(folder / LAST)), format_override("backbone", str(folder.parent))
        raise InputError(
            key="resume",
            value=path,
            expected="a checkpoint with optimizer state, which best.ckpt of a finished run does not contain",
            hint=f"To continue that run, set {words[0]}. To start a new run from its weights, set {words[1]} without "
            "resume.",
        )
    if why:
        raise InputError(
            key="resume", value=path, expected=f"a readable checkpoint of a run, but the file is unusable ({why})"
        )
    found = load_checkpoint(path)
    objective = found.get("objective")
    if objective != model.objective:
        raise InputError(
            key="resume",
            value=path,
            expected=f"a checkpoint of the objective {model.objective}, but this checkpoint was trained with "
            f"{objective}",
        )
    check_settings(path, found, recipe)
    model.on_load_checkpoint(found)
    own = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    saved = shapes(found["state_dict"])
    if different := sorted(name for name in own.keys() | saved.keys() if own.get(name) != saved.get(name)):
        name = different[0]
        raise InputError(
            key="resume",
            value=path,
            expected=f"a checkpoint with the weights of this model, but {len(different)} weights differ in name or "
            f"shape; the first is {name}: expected shape {own.get(name, 'none')}, got {saved.get(name, 'none')}",
            hint="Set backbone to the backbone of the run that wrote the checkpoint.",
        )
