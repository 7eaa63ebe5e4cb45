"""What is about to be trained, on what and how long, in a few lines before the first step."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from omegaconf import DictConfig

from encoders.optim import planned_steps

log = logging.getLogger("train")

WIDTH = 10  # of the names


def say_opening(cfg: DictConfig, backbone: str, model: Any, data: Any, trainer: Any, checkpoint: str | None) -> None:
    """``cfg`` is as it will be trained, ``backbone`` as it was asked for; ``data`` is set up for ``trainer``."""
    for name, fact in facts(cfg, backbone, model, data, trainer, checkpoint):
        log.info("%s", f"{name:<{WIDTH}} {fact}")


def facts(
    cfg: DictConfig, backbone: str, model: Any, data: Any, trainer: Any, checkpoint: str | None
) -> Iterator[tuple[str, str]]:
    """Name and fact of each line."""
    yield "objective", model.objective
    weights = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    total, trained = sum(size for size, _ in weights), sum(size for size, is_trained in weights if is_trained)
    some = "" if trained == total else f", {millions(trained)} of them trained"
    yield "backbone", f"{backbone}, {millions(total)} parameters{some}"
    yield "data", f"{_name_of(cfg.data)}: {_counted(data.manifest())}"
    loader = data.train_dataloader()
    negatives = model.negatives(loader.first(), trainer.world_size)
    yield "batch", f"{cfg.data.batch_size:,} examples{f', {negatives:,} negatives for each text' if negatives else ''}"
    steps = planned_steps(trainer.max_steps, trainer.max_epochs, len(loader))
    limit = f", {cfg.max_time} at most" if cfg.max_time else ""
    yield "steps", f"{steps:,}, {len(loader):,} an epoch{limit}"
    yield "device", f"{_device(trainer)}, {cfg.precision}"
    yield "output", cfg.output_dir
    if checkpoint:
        yield "goes on", f"from {checkpoint}"


def millions(number: int) -> str:
    """``22.6 million``."""
    return f"{number / 1e6:,.1f} million" if number >= 1e5 else f"{number:,}"


def _name_of(data: DictConfig) -> str:
    named = data.get("path") or data.get("id")
    if named is None:
        return str(data._target_).rpartition(".")[2]
    first, *more = [named] if isinstance(named, str) else [str(one) for one in named]
    return f"{first} and {len(more)} more" if more else first


def _counted(found: Mapping[str, Any]) -> str:
    if parts := found.get("parts"):
        counts = ", ".join(f"{part['used']:,} of {name}" for name, part in parts.items())
        return f"{sum(part['used'] for part in parts.values()):,} examples, {counts}"
    of = "" if found["used"] == found["kept"] else f" of {found['kept']:,}"
    return f"{found['used']:,}{of} examples, {found['tokens']:,} tokens"


def _device(trainer: Any) -> str:
    device, number = trainer.strategy.root_device, trainer.world_size
    threads = torch.get_num_threads()
    on_threads = f"{device.type} ({threads} thread{'s' * (threads > 1)})"
    one = torch.cuda.get_device_name(device) if device.type == "cuda" else on_threads
    return one if number == 1 else f"{number} processes, each on {one}"
