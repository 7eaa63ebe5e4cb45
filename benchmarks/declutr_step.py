"""P2: a DeCLUTR step as a run does it, against a bare PyTorch loop that does the same arithmetic.

    python -m benchmarks.declutr_step [--quick] [--models tiny minilm] [--precisions fp32 bf16] [--clock wall|cpu]

Ours: Lightning's Trainer with the callbacks of a run (all but the scoring; nothing is saved) and the data module over a
prepared token store. Theirs: `benchmarks.declutr_plain_loop` over the same batches. Both start from the same weights
and must end at the same. Wanted: 0.95 of the plain loop's documents/s.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from torch import Tensor

from benchmarks import declutr_plain_loop, materials
from benchmarks.materials import objective
from benchmarks.sides import CLOCKS, Line, alternate, arguments, rates, report
from contrastive_encoders.datamodules.documents import DocumentSpans
from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.reseed import Reseed
from contrastive_encoders.training.callbacks.telemetry import Telemetry
from contrastive_encoders.training.metrics_csv import MetricsCSV

LR, DECAY, BUDGET = 5e-5, 0.1, 16_384


class Work(NamedTuple):
    backbone: Path
    data: DocumentSpans
    precision: str
    steps: int  # timed ones; one more comes before them
    clock: Callable[[], float]
    folder: Path


class Marks(pl.Callback):
    """When the first step ended, and the training; between them a GPU is not asked whether it has done its work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.times = clock, list[float]()

    def on_train_batch_end(self, *_: Any) -> None:
        if not self.times:
            self.times.append(self.clock())

    def on_train_end(self, *_: Any) -> None:
        self.times.append(self.clock())


class NothingSaved(RunCheckpoints):
    """Checkpoints that do all their work at every step but write no files."""

    def _save(self, trainer: pl.Trainer, last: bool, best: bool) -> None:
        return


def trainer_of_a_run(folder: Path, steps: int, bf16: bool, *more: pl.Callback, device: str = "cpu") -> pl.Trainer:
    """Return the trainer that a run makes of its defaults, without scores and files."""
    saving = NothingSaved(folder, every_n_steps=None, every_n_minutes=None, monitor=None, mode="max", patience=None)
    return pl.Trainer(
        accelerator="cpu" if device == "cpu" else "gpu",
        devices=1,
        precision="bf16-mixed" if bf16 else "32-true",
        max_steps=steps,
        max_epochs=-1,
        gradient_clip_val=1.0,
        use_distributed_sampler=False,
        callbacks=[Reseed(1), Telemetry(every_n_steps=50), Interruption(), saving, *more],
        logger=MetricsCSV(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )


def ours(work: Work) -> tuple[float, dict[str, Tensor]]:
    """Seconds of the timed steps, and the weights they led to."""
    marks = Marks(work.clock)
    model = objective("declutr", work.backbone, lr=LR, weight_decay=DECAY, lr_schedule="constant", token_budget=BUDGET)
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", marks)
    trainer.fit(model, datamodule=work.data)
    return marks.times[-1] - marks.times[0], model.encoder.transformer.state_dict()


def bare(work: Work) -> tuple[float, dict[str, Tensor]]:
    """Return the same of the bare loop."""
    work.data.trainer = None  # or the loader would go on where the trainer stopped
    times, weights = declutr_plain_loop.train(
        work.backbone,
        work.data.train_dataloader(),
        work.steps + 1,
        lr=LR,
        weight_decay=DECAY,
        token_budget=BUDGET,
        bf16=work.precision == "bf16",
        clock=work.clock,
    )
    return times[-1] - times[0], weights


def compare(work: Work, rounds: int) -> Line:
    drift = largest_difference(ours(work)[1], bare(work)[1])
    seconds = alternate({"ours": lambda: ours(work)[0], "bare": lambda: bare(work)[0]}, rounds)
    case = f"{work.backbone.name} {work.precision}, {work.data.batch_size} documents, weights within {drift:.0e}"
    documents = work.steps * work.data.batch_size
    return rates("P2", case, "documents/s", documents, list(seconds.values()), ">= 0.95x")


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    return max(
        float((left[name].cpu() - right[name].cpu()).abs().max()) for name in right if right[name].is_floating_point()
    )


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, rounds=5, clock=True, precisions=True)
    parser.add_argument("--models", nargs="+", choices=["tiny", "minilm"], default=["tiny", "minilm"])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--spans", type=int, nargs=2, default=(8, 64), metavar=("MIN", "MAX"))
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a round")
    options = parser.parse_args()
    if options.quick:
        options.models, options.batch_size, options.rounds, options.steps = options.models[:1], 4, 1, 2
    return options


def main() -> None:
    options = parse()
    materials.hush()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in options.models:
            backbone = materials.BACKBONES[name](folder / name)
            data = materials.span_data(folder, backbone, options.batch_size, *options.spans)
            for precision in options.precisions:
                work = Work(backbone, data, precision, options.steps, CLOCKS[options.clock], folder / "run")
                lines.append(compare(work, options.rounds))
    report(f"DeCLUTR step: a run's machinery against a bare loop, {options.clock} time", lines, options.output)


if __name__ == "__main__":
    main()
