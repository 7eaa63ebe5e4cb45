"""P24: distillation from stored teacher embeddings, compared with sentence-transformers and the teacher in each step.

Four layers of all-MiniLM-L6-v2 learn the embeddings of all six on sentences, in batches of 128. Ours: Lightning's
Trainer with the callbacks of a run, over a token store and a store of embeddings. Theirs: SentenceTransformerTrainer
with EmbedDistillLoss, whose labels the teacher computes in the step, without gradients, from the student's token ids:
nothing is tokenized twice. Both get the same sentences in the same batches, AdamW, and clipping; first their losses of
one batch are compared. The second line adds the time in which as many embeddings were stored: the price of one pass
over the data. Target: 1.5 times the sentences/s.
"""

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import materials, texts
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, rates
from benchmarks.trainers import OPTIMIZER, Work, check_equal, train, train_by_library
from contrastive_encoders.datamodules.store.teacher_embeddings import TeacherEmbeddingStore, build_or_resume
from contrastive_encoders.encoders.loading.load import load_encoder

OPTIONS = {"precisions": PRECISIONS, "rounds": 5, "steps": 12, "clock": ("wall", "cpu")}
QUICK = {"precisions": ["fp32"], "rounds": 1, "steps": 2}
BATCH, LAYERS, MAX_LENGTH = 128, [0, 2, 3, 5], 128
TOLERANCE = 2e-3  # of a loss: the store has 16 bits


class LiveTeacher(nn.Module):
    """EmbedDistillLoss of the embeddings that the teacher computes of a batch."""

    def __init__(self, student: Any, teacher: Any) -> None:
        from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss

        super().__init__()
        self.loss, self.teacher = EmbedDistillLoss(student), [teacher]  # in a list, so that it isn't trained

    def forward(self, features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        columns = list(features)
        with torch.no_grad():
            embeddings = self.teacher[0](dict(columns[0]))["sentence_embedding"]
        return self.loss(columns, embeddings)


def our_student() -> Any:
    backbone = materials.packaged_minilm()
    model = materials.objective("distil", backbone, teacher=str(backbone), keep_layers=LAYERS, dropout=0.0, **OPTIMIZER)
    model.learn_from_teacher(model.encoder.width, seed=1)
    return model


def their_student() -> tuple[Any, LiveTeacher]:
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(materials.packaged_minilm()), device="cpu")
    model.max_seq_length = MAX_LENGTH
    bert = model[0].auto_model
    bert.encoder.layer = nn.ModuleList(bert.encoder.layer[index] for index in LAYERS)
    bert.config.num_hidden_layers = len(LAYERS)
    for module in bert.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model, LiveTeacher(model, SentenceTransformer(str(materials.packaged_minilm()), device="cpu").eval())


def prepare(folder: Path, steps: int) -> Any:
    """Return the data module with its token store."""
    path = folder / "sentences.txt"
    path.write_text("".join(f"{one}\n" for one in texts.sentences((steps + 1) * BATCH)), encoding="utf-8")
    keys = {"max_length": MAX_LENGTH, "cache_dir": folder / "cache", "tokenizer": materials.packaged_minilm()}
    data = materials.data_module("sentences", path=path, batch_size=BATCH, **keys)
    data.prepare_data()
    data.setup()
    return data


def store_teacher(data: Any, folder: Path, precision: str) -> None:
    """Compute and store the teacher's embeddings of the data."""
    teacher = load_encoder(materials.packaged_minilm(), device="cpu")
    autocast = torch.bfloat16 if precision == "bf16" else None

    def embed(several: list[str]) -> np.ndarray:
        return teacher.embed(several, convert_to_numpy=True, autocast=autocast, progress=False)

    path = folder / f"embeddings-{precision}"
    build_or_resume(path, data.used_texts, data.num_examples, embed, quiet=True)
    data.taught = TeacherEmbeddingStore(path, data.rows_used)


def check_losses(work: Work) -> str:
    """Compare both losses of the first batch."""
    batch = work.data.batch(0, np.arange(BATCH))
    student, teacher = their_student()
    with torch.no_grad():
        ours = float(our_student().eval().training_step(batch, 0)["loss"])
        features = student.eval().tokenize([work.rows[row]["sentence"] for row in batch.rows.tolist()])
        theirs = float(teacher([features]))
    return check_equal("losses", abs(ours - theirs) / theirs, TOLERANCE)


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    clock, data = clock_of(options), prepare(folder, options.steps)
    rows, amount = [{"sentence": row[0]} for row in data.used_texts()], options.steps * BATCH
    for precision in options.precisions:
        start = clock()
        store_teacher(data, folder, precision)
        storing = (clock() - start) * amount / data.num_examples
        work = Work(data, rows, precision, options.steps, clock, folder / "run")
        case = f"{precision}, batches of {BATCH}, {check_losses(work)}"
        sides = {
            "ours": lambda work=work: train(our_student(), work),
            "theirs": lambda work=work: train_by_library(*their_student(), work),
        }
        ours, theirs = alternate(sides, options.rounds).values()
        yield rates("P24", case, "sentences/s", amount, ours, theirs, ">= 1.5x")
        yield rates("P24", f"{case}, with storing", "sentences/s", amount, [one + storing for one in ours], theirs)
