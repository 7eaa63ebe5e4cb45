"""Estimates of a run's time and memory: from short forward and backward passes (the probe) before the first step, and
from measurements after the third step.
"""

import logging
import time
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from contrastive_encoders.core import Ragged
from contrastive_encoders.core.progress import clock
from contrastive_encoders.encoders.kernels.chunks import concatenate, recomputes
from contrastive_encoders.encoders.kernels.compiled_layers import compiled
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.evaluation.callback import ScoreCallback
from contrastive_encoders.io.results import current_memory_bytes, peak_memory_bytes

PROBE_TOKENS = 3_000  # of the longer probe; a shorter one before it absorbs the cost of the first call
SAMPLE = 256  # examples whose lengths are used to estimate the tokens of a step
MEASURED_STEPS = 3
ADAM_BYTES = 12  # per trained weight: its gradient and two moments

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """Number of tokens per optimizer step: the mean and the 99th percentile."""

    mean: float
    percentile_99: float


class Mark(NamedTuple):
    """A point in time during training, with the step number and the time spent on scoring up to then."""

    step: int
    time: float  # seconds
    scoring: float  # seconds of all scorings so far


class MemoryProbe(NamedTuple):
    """Time and memory of one forward and backward pass over ``tokens`` tokens."""

    tokens: int
    seconds: float
    saved_bytes: int  # stored by the forward pass for the backward pass


class RunEstimate(pl.Callback):
    """Callback that logs the estimated time of training and scoring and the estimated peak memory, unless ``quiet``.

    The probe requires a single process and a model whose loss is computed from embeddings. Other runs are estimated
    after the third step only.
    """

    def __init__(self, score_callback: ScoreCallback, *, quiet: bool) -> None:
        self.score_callback, self.quiet = score_callback, quiet
        self._start: Mark | None = None  # before the first step of this process
        self._first: Mark | None = None  # after it

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Time short forward and backward passes (the probe), and log a first estimate of the run's time and memory.

        The evaluation before training has already run, so its time is known.
        """
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if self.quiet or trainer.world_size > 1 or not hasattr(data, "batch") or not self._steps(trainer):
            pass
        # a probe would be compiled as well
        elif isinstance(pl_module, Objective) and not compiled(pl_module.transformer):
            with trainer.precision_plugin.forward_context():
                log.info("%s", self._before(trainer, pl_module, data))

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._start is None:
            self._start = self._mark(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.quiet or self._start is None:
            return
        now = self._mark(trainer)
        if self._first is None and now.step > self._start.step:
            self._first = now
        if self._first is None or now.step < self._start.step + MEASURED_STEPS:
            return
        self.quiet = True  # once
        if trainer.is_global_zero and (remaining := self._steps(trainer)):
            steps, scoring = now.step - self._first.step, now.scoring - self._first.scoring
            a_step = (now.time - self._first.time - scoring) / steps  # the first step has additional costs
            training = now.time - self._start.time + a_step * remaining + self._scoring_between(trainer)
            log.info(
                "%s", shown(f"after {MEASURED_STEPS} steps", training, self.score_callback.seconds, peak_memory_bytes())
            )

    def _mark(self, trainer: pl.Trainer) -> "Mark":
        return Mark(trainer.global_step, time.monotonic(), self.score_callback.seconds_in_total)

    def _before(self, trainer: pl.Trainer, module: Objective, data: Any) -> str:
        step = tokens_of_step(module, data)
        probe = run_probe(module, data)
        budget = module.encoder.budget(module.device)
        how = module.encoder.activation_checkpointing
        is_recomputed = recomputes(how, int(step.mean), budget)
        trained = sum(one.numel() for one in module.parameters() if one.requires_grad)
        chunk = module.encoder.recomputed_budget(budget, module.device) if is_recomputed else budget
        at_once = step.percentile_99 if how == "off" else min(step.percentile_99, chunk)
        memory = current_memory_bytes() + ADAM_BYTES * trained + probe.saved_bytes / probe.tokens * at_once
        a_step = probe.seconds / probe.tokens * step.mean * (4 / 3 if is_recomputed else 1)
        training = a_step * self._steps(trainer) + self._scoring_between(trainer)
        when = f"before step {trainer.global_step + 1}"
        return shown(when, training, self.score_callback.seconds, max(peak_memory_bytes(), memory))

    def _steps(self, trainer: pl.Trainer) -> int:
        """Return the number of remaining steps; 0 if the number is unknown."""
        total = trainer.estimated_stepping_batches
        return 0 if total == float("inf") else int(total) - trainer.global_step

    def _scoring_between(self, trainer: pl.Trainer) -> float:
        """Return the estimated seconds of scoring during the remaining steps, assuming that each evaluation takes as
        long as the last one.
        """
        every, step = self.score_callback.every_n_steps, trainer.global_step
        if not every or not len(self.score_callback.during):
            return 0.0
        last = step + self._steps(trainer)
        return (-(-last // every) - step // every) * self.score_callback.seconds


def shown(when: str, training: float, scoring: float, memory: float) -> str:
    """Format an estimate: ``estimate before step 1: 0:02:10 of training, 0:00:12 of evaluation at the end, 2.4 GiB at
    most``.
    """
    scored = f", {clock(scoring)} of evaluation at the end" if scoring else ""
    return f"estimate   {when}: {clock(training)} of training{scored}, {memory / 2**30:.1f} GiB at most"


def tokens_of_step(module: Objective, data: Any) -> Step:
    """Estimate the number of tokens per step from a sample of the examples, which are loaded two at a time."""
    pairs = np.array_split(_sample(data), max(1, min(SAMPLE, data.num_examples) // 2))
    tokens = [_sequences(module, data, pair).lengths.sum() / len(pair) for pair in pairs]
    size = data.batch_size * data.passes
    mean, spread = float(np.mean(tokens)), float(np.std(tokens)) * 2**0.5
    return Step(mean * size, mean * size + 2.3 * spread * size**0.5)


def run_probe(module: Objective, data: Any) -> MemoryProbe:
    """Measure the time and memory of a forward and backward pass on a few examples. Weights, gradients, and random
    states stay unchanged.
    """
    rows = _sample(data)
    per_example = _sequences(module, data, rows).lengths.sum() / len(rows)
    number = max(2, int(PROBE_TOKENS / per_example))
    modes = module.training
    devices = [module.device] if module.device.type == "cuda" else []
    module.train()
    try:
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            for size in (max(1, number // 4), number):  # the first call prepares kernels
                found = _probed(module, _sequences(module, data, rows[:size]))
    finally:
        module.train(modes)
        module.zero_grad(set_to_none=True)
    return found


def _probed(module: Objective, sequences: Ragged) -> MemoryProbe:
    saved = dict[int, int]()
    weights = {one.untyped_storage().data_ptr() for one in module.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    _wait(module.device)
    began = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        vectors_ND = module.encoder.encode_sequences(sequences).vectors
    vectors_ND.float().square().mean().backward()
    _wait(module.device)
    return MemoryProbe(int(sequences.lengths.sum()), time.perf_counter() - began, sum(saved.values()))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _sample(data: Any) -> np.ndarray:
    """Return the indices of evenly spaced examples, in random order."""
    rows = np.unique(np.linspace(0, data.num_examples - 1, min(SAMPLE, data.num_examples)).astype(np.int64))
    return np.random.default_rng(0).permutation(rows)


def _sequences(module: Objective, data: Any, examples: np.ndarray) -> Ragged:
    batch = data.batch(0, examples)
    found = concatenate(module.checked_views(batch))
    return found._replace(ids=found.ids.to(module.device))
