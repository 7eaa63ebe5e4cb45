"""The two trainers that benchmarks compare: Lightning's as a run sets it up, and that of sentence-transformers."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler
from transformers import TrainerCallback

from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints
from contrastive_encoders.training.callbacks.freed_memory import FreedMemoryReuse
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.reseed import Reseed
from contrastive_encoders.training.callbacks.telemetry import Telemetry
from contrastive_encoders.training.metrics_csv import MetricsCSV

LR, WEIGHT_DECAY = 2e-5, 0.01
OPTIMIZER: dict[str, Any] = {
    "lr": LR,
    "weight_decay": WEIGHT_DECAY,
    "eps": 1e-8,
    "lr_schedule": "constant",
    "bias_correction": True,
}


class Work(NamedTuple):
    """Data and length of a training by both sides."""

    data: Any  # our data module, ready
    rows: list[dict[str, Any]]  # its examples as sentence-transformers wants them
    precision: str
    steps: int  # timed ones; one more comes before them
    clock: Callable[[], float]
    folder: Path
    device: str = "cpu"


class StepTimes(pl.Callback, TrainerCallback):
    """A callback of both trainers that measures the seconds of the steps after the first one.

    The clock is read twice only, so that the host does not wait for a GPU in between.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.start, self.seconds = clock, 0.0, 0.0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.start = self.start or self.clock()

    on_train_batch_end = on_step_end  # Lightning's name

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.seconds = self.clock() - self.start


class NoDiagnostics(pl.Callback):
    """Callback that turns off the metrics of logged steps. The last step is always logged, and few steps are timed."""

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.log_step = False


class NothingSaved(RunCheckpoints):
    """Checkpoints that do all their work at every step but write no files."""

    def _save(self, trainer: pl.Trainer, last: bool, best: bool) -> None:
        return


def make_trainer(folder: Path, steps: int, precision: str, *more: pl.Callback, device: str = "cpu") -> pl.Trainer:
    """Return the trainer of a run with default settings, without scoring and files."""
    saving = NothingSaved(folder, every_n_steps=None, every_n_minutes=None, monitor=None, mode="max", patience=None)
    return pl.Trainer(
        accelerator="cpu" if device == "cpu" else "gpu",
        devices=1,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        max_steps=steps,
        max_epochs=-1,
        gradient_clip_val=1.0,
        use_distributed_sampler=False,
        callbacks=[
            Reseed(1),
            Telemetry(every_n_steps=50),
            NoDiagnostics(),
            FreedMemoryReuse(),
            Interruption(),
            saving,
            *more,
        ],
        logger=MetricsCSV(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )


def train(model: pl.LightningModule, work: Work, *more: pl.Callback) -> float:
    """Train by a run's trainer; return the seconds of the timed steps."""
    times = StepTimes(work.clock)
    trainer = make_trainer(work.folder, work.steps + 1, work.precision, times, *more, device=work.device)
    trainer.fit(model, datamodule=work.data)
    return times.seconds


def train_by_library(model: Any, loss: Any, work: Work) -> float:
    """Train by SentenceTransformerTrainer on the same batches; return the seconds of the timed steps."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    options = SentenceTransformerTrainingArguments(
        output_dir=str(work.folder / "theirs"),
        per_device_train_batch_size=work.data.batch_size,
        max_steps=work.steps + 1,
        learning_rate=LR,
        weight_decay=WEIGHT_DECAY,
        adam_epsilon=OPTIMIZER["eps"],
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        bf16=work.precision == "bf16",
        use_cpu=work.device == "cpu",
        batch_sampler=lambda dataset, batch_size, drop_last, **_: BatchSampler(
            SequentialSampler(dataset), batch_size, drop_last
        ),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    work.data.trainer = None  # or the loader would continue where our trainer stopped
    batches = islice(work.data.train_dataloader(), work.steps + 1)
    rows = Dataset.from_list([work.rows[row] for batch in batches for row in batch.rows.tolist()])
    times = StepTimes(work.clock)
    SentenceTransformerTrainer(model, options, train_dataset=rows, loss=loss, callbacks=[times]).train()
    return times.seconds


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Return the largest difference between the weights that both have."""
    names = [name for name in right if name in left and right[name].is_floating_point()]
    return max(float((left[name].cpu() - right[name].cpu()).abs().max()) for name in names)


def check_equal(what: str, difference: float, tolerance: float) -> str:
    """Return the difference as text; end the program if it is more than rounding."""
    if difference > tolerance:
        raise SystemExit(f"{what} of both sides differ by {difference:.1e}, more than {tolerance:.0e}: not compared.")
    return f"{what} within {difference:.0e}"
