"""The startup summary that is logged before the first step: objective, data, and duration of a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from contrastive_encoders.compat import multiplies_bf16
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.encoders.kernels.compiled_layers import compiled
from contrastive_encoders.encoders.kernels.compiler import check_compiler
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.optimizers import planned_steps
from contrastive_encoders.evaluation.callback import ScoreCallback
from contrastive_encoders.io.installed_models import hub_name
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.data_summary import account_of, name_of
from contrastive_encoders.training.neighbor_batches import grouped_rows
from contrastive_encoders.training.prepare import PreparedRun
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.resume import Resumption
from contrastive_encoders.training.usable_negatives import Counts

WIDTH, MAX_TASKS = 10, 5  # characters of the names; number of tasks


def facts(
    prepared: PreparedRun,
    trainer: Any,
    score_callback: ScoreCallback,
    resumed: Resumption | None,
    changes: Mapping[str, Sequence[Any]],
    negatives: Mapping[str, Counts],
) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each line of the startup summary.

    Args:
        prepared: run whose data are set up for ``trainer``.
        changes: keys that make the untrained encoder differ from its backbone.
        negatives: number of negatives for each data source of a mixture, or for the key ""; empty if the loss has no
            negatives.
    """
    run, model, data = prepared.run, prepared.model, prepared.data
    yield "objective", model.objective
    for key, value in model.resolved_settings.items():
        yield "resolved", f"{key}: {value}"
    weights = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    total, trained = sum(size for size, _ in weights), sum(size for size, is_trained in weights if is_trained)
    some = "" if trained == total else f", {millions(trained)} of them trained"
    yield "backbone", f"{hub_name(prepared.backbone)}, {millions(total)} parameters{some}"
    found = data.manifest()
    yield "data", f"{name_of(run.data)}: {_counted(found)}"
    yield from account_of(found, data.yields)
    loader = data.train_dataloader()
    yield "batch", f"{count_of(data.batch_size, 'example')}{describe_small_batches(data)}{_negatives(negatives)}"
    steps = planned_steps(trainer.max_steps, trainer.max_epochs, len(loader))
    limit = f", {run.max_time} at most" if run.max_time else ""
    yield "steps", f"{steps:,}, {steps_of_epoch(data, len(loader)):,} per epoch{limit}"
    if scored := list(dict.fromkeys(task.name for task in score_callback.suite)):
        more = f" and {len(scored) - MAX_TASKS} more" if len(scored) > MAX_TASKS else ""
        yield "scores", f"{', '.join(scored[:MAX_TASKS])}{more}: {_when(run, score_callback)}"
    slow = run.precision == "bf16" and not multiplies_bf16(trainer.strategy.root_device.type)
    hint = " (this processor has no bf16 instructions; precision=fp32 is faster)" if slow else ""
    yield "device", f"{_device(trainer)}, {run.precision}{hint}"
    if isinstance(model, Objective):
        encoder = model.encoder
        normalized = ", normalized" if encoder.normalize else ""
        yield "embeddings", f"{encoder.width} dimensions, pooling {encoder.pooled}{normalized}"
        if changes:
            own = {key: value for key, (value, _) in changes.items()}
            yield "changed", f"{', '.join(changed_keys(changes))}; the backbone has {', '.join(overrides(own))}"
        yield "attention", encoder.attention_plan(trainer.strategy.root_device).why
    if found := compiled(model.transformer):
        check_compiler(trainer.strategy.root_device, found.backend)
        yield "compiled", f"{len(found.layers)} layers with {found.backend}; the first steps are slower"
    yield "output", str(run.output_dir)
    if resumed:
        yield from resumed.facts()
        for place, rows in grouped_rows(data).items():
            if rows < min(steps * data.batch_size, data_modules(data)[place].num_examples):
                yield "neighbors", f"{place}: all steps draw from the {rows:,} rows that the first run grouped"


def changed_keys(changes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return, as ``KEY=VALUE``, the settings in which the encoder differs from its backbone before training."""
    return overrides({key: value for key, (_, value) in changes.items()})


def overrides(values: Mapping[str, Any]) -> list[str]:
    """Format each key and its value as an override, ``KEY=VALUE``."""
    return [
        format_override(key, value)
        if isinstance(value, str) and value
        else f"{key}={json.dumps(None if value == '' else value)}"
        for key, value in values.items()
    ]


def steps_of_epoch(data: Any, steps: int) -> int:
    """Return the number of steps in an epoch over all examples. If the data are grouped and the run requires fewer
    examples, the loader contains only ``steps`` steps.
    """
    if not len(getattr(data, "groups", ())):
        return steps
    batches, rest = divmod(data.num_examples, data.batch_size)
    return batches + (rest > 0 and not data.drop_last)


def describe_small_batches(data: Any) -> str:
    """Describe batches that contain all rows, because there are fewer rows than ``batch_size``."""
    batch_size = data.settings.batch_size
    if data.batch_size < batch_size:
        return f" (all rows; batch_size={batch_size:,})"
    small = {name: part for name, part in getattr(data, "parts", {}).items() if part.batch_size < batch_size}
    found = ", ".join(f"{part.batch_size:,} from {name}, which are all its rows" for name, part in small.items())
    return f" ({found})" if found and data.homogeneous else ""


def _negatives(counts: Mapping[str, Counts]) -> str:
    """Describe how many negatives each text has. For a mixture whose batches each come from one data source, the
    sources are listed separately if their numbers differ.
    """
    rule = " (duplicates excluded)" if any(one.minimum < one.maximum for one in counts.values()) else ""
    if len(same := set(counts.values())) <= 1:
        return "".join(f", {one} negative{'' if str(one) == '1' else 's'} per text{rule}" for one in same)
    by_part = ", ".join(f"{one} in {name}" for name, one in sorted(counts.items()))
    return f", negatives per text{rule}: {by_part}"


def millions(number: int) -> str:
    """Format a number in millions, such as ``22.6 million``; below 100,000, with all digits."""
    return f"{number / 1e6:,.1f} million" if number >= 1e5 else f"{number:,}"


def _when(run: ResolvedRun, score_callback: ScoreCallback) -> str:
    start = ["before training"] if score_callback.at_start else []
    steps = score_callback.every_n_steps if len(score_callback.during) else 0
    between = [f"every {count_of(steps, 'step')}"] if steps else []
    best = f"; the best {run.monitor} is kept" if run.monitor else ""
    return f"{', '.join([*start, *between, 'at the end'])}{best}"


def _counted(found: Mapping[str, Any]) -> str:
    if parts := found.get("parts"):
        counts = ", ".join(f"{part['used']:,} from {name}" for name, part in parts.items())
        return f"{count_of(sum(part['used'] for part in parts.values()), 'example')}: {counts}"
    part = "" if found["used"] == found["kept"] else f"{found['used']:,} of "
    return f"{part}{count_of(found['kept'], 'example')}, {count_of(found['tokens'], 'token')}"


def _device(trainer: Any) -> str:
    device, number = trainer.strategy.root_device, trainer.world_size
    threads = torch.get_num_threads()
    cpu = f"{device.type} ({count_of(threads, 'thread')})"
    one = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu
    return one if number == 1 else f"{number} processes, each on {one}"
