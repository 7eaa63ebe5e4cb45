"""P24: distillation from a store of the teacher's vectors, against sentence-transformers with the teacher in each step.

    python -m benchmarks.distillation [--quick] [--precisions fp32 bf16] [--clock wall|cpu] [--rounds N] [--steps N]

Four layers of all-MiniLM-L6-v2 learn the vectors of all six on sentences, in batches of 128. Ours: Lightning's Trainer
with the callbacks of a run, and the data module over a token store and a store of vectors. Theirs:
SentenceTransformerTrainer with EmbedDistillLoss, whose labels the teacher makes in the step, without gradients, of the
ids that the student has: nothing is tokenised twice. Both get the same sentences in the same batches, the same AdamW
and clipping; before the race their losses of one batch are compared. The second row has the time in which the store was
made, of as many sentences, with our steps: what one pass over the data costs. Wanted: 1.5 times the sentences/s.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import materials, texts
from benchmarks.declutr_step import Marks, trainer_of_a_run
from benchmarks.pair_training import OPTIMIZER, Work, by_the_library
from benchmarks.sides import CLOCKS, Line, alternate, arguments, on_the_cpu, rates, report
from contrastive_encoders.core import SentenceBatch
from contrastive_encoders.datamodules.row_datamodules import TextRows
from contrastive_encoders.datamodules.store.teacher_embeddings import VectorStore, make_or_go_on
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.encoders.objectives.distil import Distil

BATCH, LAYERS, LENGTH = 128, [0, 2, 3, 5], 128
SAME = 2e-3  # of the losses of a batch: the store has 16 bits


class Prepared(NamedTuple):
    work: Work
    seconds: float  # in which the teacher's vectors of ``rows`` were made
    rows: int


class LiveTeacher(nn.Module):
    """EmbedDistillLoss of the vectors that the teacher makes of a batch."""

    def __init__(self, student: Any, teacher: Any) -> None:
        from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss

        super().__init__()
        self.loss, self.teacher = EmbedDistillLoss(student), [teacher]  # in a list: it is not trained

    def forward(self, features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        columns = list(features)
        with torch.no_grad():
            vectors = self.teacher[0](dict(columns[0]))["sentence_embedding"]
        return self.loss(columns, vectors)


def student() -> Distil:
    backbone = materials.packaged_minilm()
    keys = {"teacher": str(backbone), "layers": LAYERS, "dropout": 0.0, **OPTIMIZER}
    model: Distil = materials.objective("distil", backbone, **keys)
    model.learn_from_teacher(model.encoder.width, seed=1)
    return model


def their_student() -> Any:
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(materials.packaged_minilm()), device="cpu")
    model.max_seq_length = LENGTH
    bert = model[0].auto_model
    bert.encoder.layer = nn.ModuleList(bert.encoder.layer[place] for place in LAYERS)
    bert.config.num_hidden_layers = len(LAYERS)
    for module in bert.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def prepare(folder: Path, steps: int, precision: str, clock: Callable[[], float]) -> Prepared:
    """The data module with its stores built."""
    backbone, path = materials.packaged_minilm(), folder / "sentences.txt"
    sentences = texts.sentences((steps + 1) * BATCH)
    path.write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")
    keys = {"max_length": LENGTH, "cache_dir": folder / "cache", "tokenizer": backbone, "batch_size": BATCH}
    data: TextRows = materials.data_module("sentences", path=path, **keys)
    data.prepare_data()
    data.setup()
    teacher = load_encoder(backbone, device="cpu")
    autocast = torch.bfloat16 if precision == "bf16" else None

    def embed(several: list[str]) -> np.ndarray:
        return teacher.embed(several, convert_to_numpy=True, autocast=autocast, progress=False)

    began, vectors = clock(), folder / f"vectors-{precision}"
    make_or_go_on(vectors, data.used_texts, data.num_examples, embed, quiet=True)
    seconds = clock() - began
    data.taught = VectorStore(vectors, data.rows_used)
    rows = [{"sentence": row[0]} for row in data.used_texts()]
    work = Work("distillation", backbone, data, rows, precision, steps, clock, folder / "run")
    return Prepared(work, seconds, data.num_examples)


def ours(work: Work) -> float:
    """Seconds of the timed steps."""
    marks = Marks(work.clock)
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", marks)
    trainer.fit(student(), datamodule=work.data)
    return float(marks.times[-1] - marks.times[0])


def theirs(work: Work) -> float:
    """Seconds of the same steps."""
    from sentence_transformers import SentenceTransformer

    model, teacher = their_student(), SentenceTransformer(str(work.backbone), device="cpu").eval()
    return float(by_the_library(work, model, LiveTeacher(model, teacher))[0])


def check_losses(work: Work) -> float:
    """The difference of both losses of the first batch; ends the program where it is no rounding."""
    from sentence_transformers import SentenceTransformer

    model, other = student().eval(), their_student().eval()
    batch: SentenceBatch = work.data.batch(0, np.arange(BATCH))
    teacher = SentenceTransformer(str(work.backbone), device="cpu").eval()
    with torch.no_grad():
        own = float(model.training_step(batch, 0)["loss"])
        features = other.tokenize([work.pairs[row]["sentence"] for row in batch.rows.tolist()])
        wanted = float(LiveTeacher(other, teacher)([features]))
    if abs(own - wanted) > SAME * wanted:
        raise SystemExit(f"the losses of a batch are {own:.6f} and {wanted:.6f}: no race.")
    return abs(own - wanted)


def compare(prepared: Prepared, rounds: int, apart: float) -> list[Line]:
    work = prepared.work
    seconds = alternate({"ours": lambda: ours(work), "theirs": lambda: theirs(work)}, rounds)
    own, other = seconds.values()
    making = prepared.seconds / prepared.rows * work.steps * BATCH
    case = f"{work.precision}, batches of {BATCH}"
    amount = work.steps * BATCH
    return [
        rates("P24", f"{case}, losses within {apart:.0e}", "sentences/s", amount, [own, other], ">= 1.5x"),
        rates("P24", f"{case}, with the making", "sentences/s", amount, [[one + making for one in own], other], ""),
    ]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, rounds=5, clock=True, precisions=True)
    parser.add_argument("--steps", type=int, default=12, help="timed steps of a round")
    options = parser.parse_args(words)
    if options.quick:
        options.precisions, options.rounds, options.steps = options.precisions[:1], 1, 2
    return options


def measured(options: argparse.Namespace) -> list[Line]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    lines = list[Line]()
    with tempfile.TemporaryDirectory() as scratch:
        for precision in options.precisions:
            prepared = prepare(Path(scratch), options.steps, precision, CLOCKS[options.clock])
            lines += compare(prepared, options.rounds, check_losses(prepared.work))
    return lines


def main() -> None:
    options = parse()
    on_the_cpu()
    materials.hush()
    report(f"Distillation: a store against a live teacher, {options.clock} time", measured(options), options.output)


if __name__ == "__main__":
    main()
