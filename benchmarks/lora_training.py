"""P14: LoRA on a decoder language model as a run does it, against the trainer of sentence-transformers.

    python -m benchmarks.lora_training [--quick] [--precisions fp32 bf16] [--rounds 3] [--steps 4] [--clock wall|cpu]

SmolLM2-135M on the CPU, adapters of rank 16 in all linear layers: in-batch contrastive on NLI premises with what
follows from them in batches of 64, the last token pooled, at most 32 tokens, temperature 0.05. Ours: Lightning's
Trainer with the callbacks of a run over a prepared row store. Theirs: SentenceTransformerTrainer over the same model
with the same peft settings, first weights, pairs and order, AdamW and clipping. Before the race both train a few steps:
in fp32 they must end at the same adapter, in bf16 the losses must agree. Wanted: 1.5 times the pairs/s.

Memory is ours against ours: the peak of a process that trains, above that of one which has imported the same, with
adapters and with all weights, under ``token_budget=2048 recompute=on``; wanted: at most 0.6. Beside it the sizes of
both checkpoints; wanted: an adapter and its optimiser under 70 MB. Ours is measured with frozen weights in 32 bits and
in 16 (``model.frozen_weights=bf16``); ``--frozen fp32`` or ``bf16`` names one of them.
``--rounds 0`` measures memory and checkpoints alone.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from benchmarks import materials
from benchmarks.declutr_step import Marks, largest_difference, trainer_of_a_run
from benchmarks.pair_training import OPTIMIZER, TEMPERATURE, Work, by_the_library, prepare
from benchmarks.sides import CLOCKS, Line, alternate, arguments, in_a_process, on_the_cpu, rates, report, resident
from contrastive_encoders.encoders.lora import is_adapter
from contrastive_encoders.encoders.objective import Objective

RANK, ALPHA, BATCH = 16, 32, 64
LONGEST = 32  # tokens of a text; at 128 the other side, which computes a batch at once, needs more than 24 GB in fp32
LORA = {"rank": RANK, "alpha": ALPHA, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 1}
CHECKED_STEPS = 3
SAME = {"fp32": 1e-5, "bf16": 1e-2}  # of a weight of the adapter; of a loss
IN_CHUNKS = {"token_budget": 2048, "recompute": "on"}
WANTED_MEMORY, WANTED_BYTES = "<= 0.6x", 70_000_000


class Trained(NamedTuple):
    seconds: float  # of the timed steps
    losses: list[float]
    adapter: dict[str, Tensor]  # by its names in the trunk


class Ends(Marks):
    """When each step ended, and its loss."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.losses = list[float]()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
        super().on_train_batch_end(trainer, module, outputs, *rest)
        self.losses.append(float(outputs["loss"]))


def our_model(backbone: Path, **keys: Any) -> Objective:
    common = {"pooling": "last", "max_length": LONGEST, "mlp": False, "temperature": TEMPERATURE, **OPTIMIZER}
    return materials.objective("simcse", backbone, bias_correction=True, **common, **keys)


def adapter_of(trunk: Any) -> dict[str, Tensor]:
    """Copies of an adapter's weights by LAYER.lora_A and LAYER.lora_B, whatever either side calls the adapter."""
    return {
        name.rsplit(".", 2)[0]: weight.detach().clone() for name, weight in trunk.named_parameters() if is_adapter(name)
    }


def ours(work: Work, frozen: str = "fp32") -> Trained:
    ends, model = Ends(work.clock), our_model(work.backbone, lora=LORA, frozen_weights=frozen)
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", ends)
    trainer.fit(model, datamodule=work.data)
    return Trained(ends.times[-1] - ends.times[0], ends.losses, adapter_of(model.encoder.trunk))


def theirs(work: Work) -> Trained:
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = their_model(work.backbone)
    loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    seconds, trainer = by_the_library(work, model, loss, logging_steps=1)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return Trained(seconds, losses, adapter_of(model[0].auto_model))


def their_model(backbone: Path) -> Any:
    """Return their model with an adapter of peft's in all linear layers, which begins with our weights."""
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    transformer = Transformer(str(backbone), max_seq_length=LONGEST)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="lasttoken")
    model: Any = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    config = LoraConfig(
        task_type="FEATURE_EXTRACTION", r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear"
    )
    model.add_adapter(config)
    first = adapter_of(our_model(backbone, lora=LORA).encoder.trunk)
    for name, weight in model[0].auto_model.named_parameters():
        if is_adapter(name):
            weight.data.copy_(first[name.rsplit(".", 2)[0]])
    return model


def apart(work: Work) -> float:
    """In fp32 how far the adapters are apart after a few steps, in bf16 the losses; ends the program if too far."""
    few = work._replace(steps=CHECKED_STEPS - 1)
    own, other = ours(few), theirs(few)
    if work.precision == "fp32":
        found, what = largest_difference(other.adapter, own.adapter), "a weight of the adapter"
    else:
        found, what = max(abs(a - b) for a, b in zip(own.losses, other.losses, strict=True)), "a loss"
    if found > SAME[work.precision]:
        raise SystemExit(f"{work.precision}: within {CHECKED_STEPS} steps {what} differs by {found:.1e}; no race.")
    return found


def compare(work: Work, rounds: int, frozen: Sequence[str]) -> list[Line]:
    found = apart(work)
    agreed = f"{'adapters' if work.precision == 'fp32' else 'losses'} within {found:.0e}"
    sides = {held: lambda held=held: ours(work, held).seconds for held in frozen}
    seconds = alternate(sides | {"theirs": lambda: theirs(work).seconds}, rounds)
    about = {"fp32": agreed, "bf16": "frozen weights in bf16"}
    return [
        rates(
            "P14",
            f"contrastive {work.precision}, {BATCH} pairs, {about[side]}",
            "pairs/s",
            work.steps * BATCH,
            (seconds[side], seconds["theirs"]),
            ">= 1.5x",
        )
        for side in sides
    ]


# ---------------------------------------------------------------------------- memory and checkpoints, ours against ours


def grown(folder: Path, what: str, precision: str) -> tuple[int, int]:
    """Return the bytes of a new process that trains: its peak above that of importing, and its checkpoint."""
    words = ["--grow", folder, what, "--precisions", precision]
    peak, size = in_a_process("benchmarks.lora_training", *words)[-2:]
    return int(peak), int(size)


def grow(folder: Path, what: str, precision: str) -> None:
    """Train in that process, and print its peak and checkpoint. ``what``: full, or how frozen weights are held."""
    data, _ = prepare("contrastive", folder / "backbone", folder, 4_096, LONGEST)
    idle = resident("VmRSS")
    keys = {} if what == "full" else {"lora": LORA, "frozen_weights": what}
    model = our_model(folder / "backbone", **keys, **IN_CHUNKS)
    trainer = trainer_of_a_run(folder / "run", 2, precision == "bf16")
    trainer.fit(model, datamodule=data)
    peak, path = resident("VmHWM"), folder / "run" / "measured.ckpt"
    trainer.save_checkpoint(path)
    print(peak - idle, path.stat().st_size)
    path.unlink()


def memory(folder: Path, precisions: Sequence[str], frozen: Sequence[str]) -> list[Line]:
    lines = []
    for precision in precisions:
        full, full_size = grown(folder, "full", precision)
        for held in frozen:
            peak, size = grown(folder, held, precision)
            about = f"{precision}, frozen weights in {held}"
            case = f"peak above idle, adapters / all weights, {about}"
            lines.append(Line("P14", case, "MiB", peak / 2**20, full / 2**20, peak / full, WANTED_MEMORY))
            target = f"<= {WANTED_BYTES / 1e6:.0f} MB"
            lines.append(
                Line("P14", f"checkpoint, {about}", "MB", size / 1e6, full_size / 1e6, size / full_size, target)
            )
    return lines


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, rounds=3, clock=True, precisions=True)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a round")
    parser.add_argument("--frozen", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--grow", nargs=2, metavar=("FOLDER", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 1
        options.precisions, options.frozen = options.precisions[:1], options.frozen[-1:]
    return options


def main() -> None:
    options = parse()
    materials.hush()
    if options.grow:
        grow(Path(options.grow[0]), options.grow[1], options.precisions[0])
        return
    on_the_cpu()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        backbone = (
            materials.tiny_decoder(folder / "backbone")
            if options.quick
            else materials.unpacked_smollm2(folder / "backbone")
        )
        data, pairs = prepare("contrastive", backbone, folder, max((options.steps + 1) * BATCH, 4_096), LONGEST)
        for precision in options.precisions if options.rounds else ():
            clock = CLOCKS[options.clock]
            work = Work("contrastive", backbone, data, pairs, precision, options.steps, clock, folder / "run")
            lines += compare(work, options.rounds, options.frozen)
        if not options.no_memory:
            lines += memory(folder, options.precisions, options.frozen)
    report(f"LoRA on a decoder: a run's machinery, {options.clock} time", lines, options.output)


if __name__ == "__main__":
    main()
