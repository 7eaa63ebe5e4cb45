"""A run small enough to be killed many times: a module with dropout, a stateful stream, and all callbacks.

As a script: ``python toy.py FOLDER [KEY=VALUE ...]`` with the arguments of ``train``; it exits as ``train.py`` does.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from contrastive_encoders.core.runtime.child_processes import init_process
from contrastive_encoders.core.runtime.local_ranks import start_ranks
from contrastive_encoders.core.runtime.process_group import init_process_group, launcher_info
from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints, find_resumable
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.rank_failures import RankFailureMonitor
from contrastive_encoders.training.callbacks.reseed import Reseed
from contrastive_encoders.training.callbacks.telemetry import Telemetry
from contrastive_encoders.training.metrics_csv import MetricsCSV

EXAMPLES, BATCH, WIDTH = 40, 4, 6
SCORE = "toy-dev/cosine/spearman"


class Batch(NamedTuple):
    examples: Tensor  # (BATCH / ranks, WIDTH)
    rows: np.ndarray


class Stream:
    """Order of the examples from (seed, epoch); its state is the position within the epoch."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world, self.epoch, self.position = rank, world, 0, 0
        self.examples = torch.randn(EXAMPLES, WIDTH, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return EXAMPLES // BATCH

    def __iter__(self) -> Any:
        if self.position == len(self):
            self.epoch, self.position = self.epoch + 1, 0
        order = np.random.default_rng((3, self.epoch)).permutation(EXAMPLES)
        while self.position < len(self):
            rows = order[self.position * BATCH : (self.position + 1) * BATCH][self.rank :: self.world]
            self.position += 1
            yield Batch(self.examples[rows], rows)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


class Toy(pl.LightningModule):
    def __init__(self, bad_loss_at: int = -1, bad_gradient_at: int = -1) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 1))
        self.bad_loss_at, self.bad_gradient_at = bad_loss_at, bad_gradient_at

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        loss = (self.net(batch.examples) - batch.examples.sum(1, keepdim=True)).square().mean()
        if self.global_step + 1 == self.bad_loss_at and self.global_rank == self.trainer.world_size - 1:
            loss = loss * float("nan")
        if self.global_step + 1 == self.bad_gradient_at:
            loss = loss + torch.sqrt((self.net[0].weight * 0).sum())  # the value is 0, the gradient is NaN
        spent = {
            "examples": len(batch.examples),
            "real_tokens": 10 * len(batch.examples),
            "padded_tokens": len(batch.examples),
        }
        return {"loss": loss, "metrics": {"norm": batch.examples.norm().detach()}, "spent": spent}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Scores(pl.Callback):
    """Write a score as ``evaluation``'s callback does: to the loggers and to ``callback_metrics``."""

    def __init__(self, scores: dict[int, float]) -> None:
        self.scores = scores

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step in self.scores:
            score = self.scores[trainer.global_step]
            for logger in trainer.loggers:
                logger.log_metrics({SCORE: score}, step=trainer.global_step)
            trainer.callback_metrics[SCORE] = torch.tensor(score)


class Accident(pl.Callback):
    """Callback that acts in the middle of a step: after the optimizer, before anything is logged or saved."""

    def __init__(self, kill_at: int, signal_at: int, signum: int, pause: float) -> None:
        self.kill_at, self.signal_at, self.signum, self.pause = kill_at, signal_at, signum, pause

    def on_before_zero_grad(self, trainer: pl.Trainer, *_: Any) -> None:
        time.sleep(self.pause)
        if trainer.global_step + 1 == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if trainer.global_step + 1 == self.signal_at:
            os.kill(os.getpid(), self.signum)


def train(
    folder: Path,
    max_steps: int = 24,
    max_epochs: int = -1,
    save_every: int | None = 5,
    minutes: float | None = None,
    log_every: int = 2,
    kill_at: int = -1,
    signal_at: int = -1,
    signum: int = signal.SIGTERM,
    pause: float = 0.0,
    devices: int = 1,
    scores: dict[int, float] | None = None,
    monitor: str | None = SCORE,
    mode: str = "max",
    patience: int | None = None,
    module: dict[str, int] | None = None,
    accumulate: int = 1,
    loggers: tuple[Any, ...] = (),
    callbacks: Sequence[pl.Callback] = (),
) -> pl.Trainer:
    """Start or resume a run in ``folder``."""
    if devices > 1:
        init_process_group("gloo")
    torch.manual_seed(1)
    resumed, warning = find_resumable(folder / "checkpoints")
    scores = {6: 40.0, 12: 60.0, 18: 60.0, 24: 50.0} if scores is None else scores
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 or "TORCHELASTIC_RUN_ID" in os.environ else "auto",
        max_steps=max_steps,
        max_epochs=max_epochs,
        logger=[MetricsCSV(folder), *loggers],
        callbacks=[
            RankFailureMonitor(),
            Interruption(),
            Reseed(seed=5),
            Accident(kill_at, signal_at, signum, pause),
            Telemetry(every_n_steps=log_every, resumed=resumed is not None),
            Scores(scores),
            *callbacks,
            RunCheckpoints(
                folder / "checkpoints",
                every_n_steps=save_every,
                every_n_minutes=minutes,
                monitor=monitor,
                mode=mode,
                patience=patience,
            ),
        ],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        default_root_dir=str(folder),
    )
    stream = Stream(trainer.global_rank, trainer.world_size)
    trainer.fit(Toy(**(module or {})), stream, ckpt_path=str(resumed) if resumed else None)
    trainer.resume_warning = warning  # for the tests
    return trainer


def main(arguments: list[str]) -> None:
    """Run the script; ``stays=7`` delays the exit of the first process by 7 seconds."""
    init_process()
    given = dict(argument.split("=") for argument in arguments[1:])
    stays = float(given.pop("stays", 0))
    numbers = {name: float(value) if name == "pause" else int(value) for name, value in given.items()}
    if numbers.get("devices", 1) > 1 and not launcher_info():
        start_ranks(int(numbers["devices"]))
    trainer = train(Path(arguments[0]), **numbers)
    if trainer.global_rank == 0:
        time.sleep(stays)
    status = Interruption.of(trainer).exit_status
    sys.exit(status or 0)


if __name__ == "__main__":
    main(sys.argv[1:])
