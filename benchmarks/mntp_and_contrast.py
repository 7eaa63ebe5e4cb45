"""P15: masked next-token prediction and contrast in one forward, against the two stages one after the other.

    python -m benchmarks.mntp_and_contrast [--quick] [--precisions fp32 bf16] [--clock wall|cpu]

SmolLM2-135M-Instruct, reading both ways, on spans of real documents: an anchor and a positive of each. Ours:
model=declutr with both losses, so the masked anchors are encoded once for both. The other side is what LLM2Vec does, on
the same spans, masks and settings: a run with the first loss alone, then a run with the second from its weights. Both
as a run has them. Wanted: 1.4 times the documents/s.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks import materials
from benchmarks.declutr_step import Marks, Work, trainer_of_a_run
from benchmarks.sides import CLOCKS, alternate, arguments, on_the_cpu, rates, report

SETTINGS: dict[str, Any] = {
    "attention": "bidirectional",
    "lr": 5e-5,
    "weight_decay": 0.0,
    "lr_schedule": "constant",
    "token_budget": 2048,
}
ONE_RUN = {"contrastive_weight": 1.0, "mlm_weight": 1.0}
FIRST, SECOND = ({"contrastive_weight": 0.0, "mlm_weight": 1.0}, {"contrastive_weight": 1.0, "mlm_weight": 0.0})


def seconds(work: Work, weights: dict[str, Tensor], loss: dict[str, float]) -> tuple[float, dict[str, Tensor]]:
    """Return the seconds of the timed steps of a run that starts from the weights, and its final weights."""
    marks = Marks(work.clock)
    model = materials.objective("declutr", work.backbone, **SETTINGS, **loss)
    model.encoder.trunk.load_state_dict(weights or model.encoder.trunk.state_dict())
    work.data.trainer = None  # or the loader would go on where the last run stopped
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", marks)
    trainer.fit(model, datamodule=work.data)
    return marks.times[-1] - marks.times[0], model.encoder.trunk.state_dict()


def together(work: Work) -> float:
    return seconds(work, {}, ONE_RUN)[0]


def in_turn(work: Work) -> float:
    first, weights = seconds(work, {}, FIRST)
    return first + seconds(work, weights, SECOND)[0]


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, rounds=3, clock=True, precisions=True)
    parser.add_argument("--batch-size", type=int, default=8, help="documents")
    parser.add_argument("--spans", type=int, nargs=2, default=(32, 128), metavar=("MIN", "MAX"))
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a round")
    options = parser.parse_args()
    if options.quick:
        options.precisions, options.batch_size, options.rounds, options.steps = ["fp32"], 2, 1, 1
    return options


def main() -> None:
    options = parse()
    on_the_cpu()
    materials.hush()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        backbone = materials.unpacked_smollm2(folder / "smollm2", layers=1 if options.quick else None)
        spans = {"anchors_per_document": 1, "positives_per_anchor": 1}
        data = materials.span_data(folder, backbone, options.batch_size, *options.spans, **spans)
        for precision in options.precisions:
            work = Work(backbone, data, precision, options.steps, CLOCKS[options.clock], folder / "run")
            sides = {"together": lambda work=work: together(work), "in turn": lambda work=work: in_turn(work)}
            taken = alternate(sides, options.rounds)
            documents = work.steps * options.batch_size
            case = f"SmolLM2 {precision}, {options.batch_size} documents a step"
            lines.append(rates("P15", case, "documents/s", documents, list(taken.values()), ">= 1.4x"))
    report(f"MNTP and contrast in one run, or in two, {options.clock} time", lines, options.output)


if __name__ == "__main__":
    main()
