"""P1: training on pairs as a run does it, against the trainer of sentence-transformers.

    python -m benchmarks.pair_training [--quick] [--objectives cosine contrastive] [--precisions fp32 bf16]
                                       [--device cpu|cuda] [--clock wall|cpu] [--seeds N] [--seed-steps 100]

all-MiniLM-L6-v2: cosine regression on STS-B's training pairs in batches of 32 (CosineSimilarityLoss), and
in-batch contrastive on NLI premises with what follows from them in batches of 64 (MultipleNegativesRankingLoss at scale
20, our temperature 0.05). Ours: Lightning's Trainer with the callbacks of a run and the data module over a prepared row
store. Theirs: SentenceTransformerTrainer with its defaults, so it tokenises every batch anew, as it always does. Both
get the same pairs in the same batches, the same limit of 128 tokens, AdamW, clipping and weights. Before the race both
train without dropout, and must end at the same weights. Wanted: twice the pairs/s. Without SHARED_DATA the pairs are
invented. ``--seeds`` trains both sides with dropout from N seeds, each an order of the pairs, and scores them
on STS-B dev.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import materials, texts
from benchmarks.declutr_step import Marks, largest_difference, trainer_of_a_run
from benchmarks.sides import Line, alternate, arguments, clock_on, rates, report
from contrastive_encoders.datamodules.row_datamodules import TextRows
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.evaluation.tasks.sts import LAYOUTS, Layout, read_pairs
from contrastive_encoders.statistics.bootstrap import spearman

LR, DECAY, EPS, MAX_LENGTH, TEMPERATURE = 2e-5, 0.01, 1e-8, 128, 0.05
BATCH = {"cosine": 32, "contrastive": 64}
OPTIMIZER: dict[str, Any] = {"lr": LR, "weight_decay": DECAY, "eps": EPS, "lr_schedule": "constant"}
CHECKED_STEPS = 3
SAME = 1e-4  # of a weight, after so many steps: Adam makes any gradient's first steps as long as the learning rate


class Work(NamedTuple):
    objective: str
    backbone: Path
    data: TextRows
    pairs: list[dict[str, Any]]  # by row of the store
    precision: str
    steps: int  # timed ones; one more comes before them
    clock: Callable[[], float]
    folder: Path
    device: str = "cpu"


def write_dino_file(tables: Path, path: Path) -> Path:
    """STS-B's training pairs in DINO's columns, ratings of 0..5 as labels of 0..1."""
    pairs = read_pairs(tables, "stsb-train", Layout({"STSBenchmark/train": 5749}, 0, 5, has_subsets=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for left, right, score in zip(pairs.left, pairs.right, (pairs.gold / 5).tolist(), strict=True):
            file.write(json.dumps({"text_a": left, "text_b": right, "label": round(score, 4)}) + "\n")
    return path


def contrastive_file(path: Path, count: int) -> Path:
    """Write premises with the hypotheses that follow from them."""
    shared = texts.shared_data()
    with path.open("w", encoding="utf-8") as file:
        for left, right in _invented_pairs(count) if shared is None else _nli_pairs(shared, count):
            file.write(json.dumps({"anchor": left, "positive": right}) + "\n")
    return path


def cosine_file(path: Path, count: int) -> Path:
    """STS-B's training pairs."""
    if (shared := texts.shared_data()) is not None:
        return write_dino_file(shared / "eval", path)
    with path.open("w", encoding="utf-8") as file:
        for number, (left, right) in enumerate(_invented_pairs(count)):
            file.write(json.dumps({"text_a": left, "text_b": right, "label": number % 7 / 6}) + "\n")
    return path


def _nli_pairs(shared: Path, count: int) -> Iterator[tuple[str, str]]:
    with gzip.open(shared / "train" / "triplets.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in islice(map(json.loads, lines), count):
            yield record["premise"], record["entailment"]


def _invented_pairs(count: int) -> Iterator[tuple[str, str]]:
    for number in range(count):
        words = random.Random(number).randint
        yield texts.invented(2 * number, words(6, 30)), texts.invented(2 * number + 1, words(4, 16))


def prepare(
    objective: str, backbone: Path, folder: Path, count: int, max_length: int = MAX_LENGTH
) -> tuple[TextRows, list[dict[str, Any]]]:
    """The data module with its store built, and the same pairs as sentence-transformers wants them, by row."""
    common: dict[str, Any] = {"max_length": max_length, "cache_dir": folder / "cache", "tokenizer": backbone}
    common["batch_size"] = BATCH[objective]
    data: TextRows
    if objective == "cosine":
        path = cosine_file(folder / "cosine.jsonl", count)
        data = materials.data_module("dino", path=path, postprocess="off", dev_share=0.0, **common)
        names = {"text_a": "sentence1", "text_b": "sentence2", "label": "score"}
    else:
        path = contrastive_file(folder / "contrastive.jsonl", count)
        data = materials.data_module("triplets", path=path, **common)
        names = {"anchor": "anchor", "positive": "positive"}
    data.prepare_data()
    data.setup()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if objective == "cosine":  # the store holds them in the order of its own shuffle
        rows = [{"text_a": one.texts[0], "text_b": one.texts[1], "label": one.label} for one in data.source()]
    return data, [{new: row[old] for old, new in names.items()} for row in rows]


def our_model(objective: str, backbone: Path) -> Objective:
    common: dict[str, Any] = {"pooling": "mean", "max_length": MAX_LENGTH, "bias_correction": True, **OPTIMIZER}
    if objective == "cosine":
        return materials.objective("sroberta", backbone, **common)
    return materials.objective("simcse", backbone, mlp=False, temperature=TEMPERATURE, **common)


def ours(work: Work) -> tuple[float, dict[str, Tensor]]:
    """Train by our trainer; return the seconds of the timed steps, and the weights after them."""
    marks = Marks(work.clock)
    model = our_model(work.objective, work.backbone)
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", marks, device=work.device)
    trainer.fit(model, datamodule=work.data)
    return marks.times[-1] - marks.times[0], model.encoder.trunk.state_dict()


def theirs(work: Work) -> tuple[float, dict[str, Tensor]]:
    """Train by SentenceTransformerTrainer; return the seconds of the timed steps, and the weights after them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss

    model: Any = SentenceTransformer(str(work.backbone), device=work.device)
    model.max_seq_length = MAX_LENGTH
    loss = (
        CosineSimilarityLoss(model)
        if work.objective == "cosine"
        else MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    )
    seconds, _ = by_the_library(work, model, loss)
    return seconds, model[0].auto_model.state_dict()


def by_the_library(work: Work, model: Any, loss: Any, logging_steps: int = 50) -> tuple[float, Any]:
    """Train by SentenceTransformerTrainer with any loss; return the seconds of the timed steps, and the trainer."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from transformers import TrainerCallback

    class StepEnds(TrainerCallback):
        def __init__(self) -> None:
            self.times = list[float]()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if not self.times:
                self.times.append(work.clock())

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.times.append(work.clock())

    options = SentenceTransformerTrainingArguments(
        output_dir=str(work.folder / "theirs"),
        per_device_train_batch_size=work.data.batch_size,
        max_steps=work.steps + 1,
        learning_rate=LR,
        weight_decay=DECAY,
        adam_epsilon=EPS,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        seed=work.data.settings.seed,
        bf16=work.precision == "bf16",
        use_cpu=work.device == "cpu",
        batch_sampler=in_order,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=logging_steps,
    )
    ends = StepEnds()
    pairs = Dataset.from_list([work.pairs[row] for row in order_of(work)])
    trainer = SentenceTransformerTrainer(model, options, train_dataset=pairs, loss=loss, callbacks=[ends])
    trainer.train()
    return ends.times[-1] - ends.times[0], trainer


def order_of(work: Work) -> list[int]:
    """Return the numbers of the rows in the order in which our batches have them."""
    work.data.trainer = None  # or the loader would go on where the trainer stopped
    batches = islice(work.data.train_dataloader(), work.steps + 1)
    return [int(row) for batch in batches for row in batch.rows]


def in_order(dataset: Any, batch_size: int, drop_last: bool, **_: Any) -> Any:
    from torch.utils.data import BatchSampler, SequentialSampler

    return BatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def without_dropout(backbone: Path, folder: Path) -> Path:
    shutil.copytree(backbone, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


def drift(work: Work) -> float:
    """Return how far apart the weights of both sides are after training without dropout in fp32. It ends the program if
    that is more than rounding."""
    with tempfile.TemporaryDirectory() as scratch:
        backbone = without_dropout(work.backbone, Path(scratch) / "backbone")
        still = work._replace(backbone=backbone, precision="fp32", steps=CHECKED_STEPS - 1)
        found = largest_difference(theirs(still)[1], ours(still)[1])
    if found > SAME:
        raise SystemExit(f"{work.objective}: after {CHECKED_STEPS} steps a weight differs by {found:.1e}; no race.")
    return found


def compare(work: Work, rounds: int, apart: float) -> Line:
    seconds = alternate({"ours": lambda: ours(work)[0], "theirs": lambda: theirs(work)[0]}, rounds)
    batch = BATCH[work.objective]
    case = f"{work.objective} {work.precision}, {batch} pairs, weights within {apart:.0e}"
    return rates("P1", case, "pairs/s", work.steps * batch, list(seconds.values()), ">= 2x")


def score(work: Work, weights: dict[str, Tensor], tables: Path) -> float:
    """Return the Spearman correlation on STS-B's development set, times 100."""
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(work.backbone), device="cpu")
    model[0].auto_model.load_state_dict(weights, strict=False)  # only theirs has the pooler, which nothing uses
    pairs = read_pairs(tables, "stsb-dev", LAYOUTS["stsb-dev"])
    sides = (pairs.left, pairs.right)
    left, right = (model.encode(side, convert_to_tensor=True, show_progress_bar=False) for side in sides)
    return float(spearman(F.cosine_similarity(left, right).cpu(), torch.from_numpy(pairs.gold)).value)


def seeds_line(work: Work, seeds: int, steps: int, tables: Path) -> Line:
    """Return the means of both sides; compare their difference with the spread over seeds."""
    scores: dict[str, list[float]] = {"ours": [], "theirs": []}
    for seed in range(1, seeds + 1):
        work.data.settings = replace(work.data.settings, seed=seed)
        for name, side in (("ours", ours), ("theirs", theirs)):
            scores[name].append(score(work, side(work._replace(steps=steps - 1))[1], tables))
    own, other = (statistics.mean(found) for found in scores.values())
    spread = max(statistics.stdev(found) for found in scores.values())
    case = f"{work.objective} {work.precision}, STS-B dev after {steps} steps, {seeds} seeds, deviation {spread:.2f}"
    return Line("P1", case, "Spearman x 100", own, other, None, "within noise")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, rounds=5, clock=True, precisions=True, device="cpu")
    parser.add_argument("--objectives", nargs="+", choices=list(BATCH), default=list(BATCH))
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a round")
    parser.add_argument("--seeds", type=int, default=0, help="also score both sides trained from so many (2 or more)")
    parser.add_argument("--seed-steps", type=int, default=100)
    options = parser.parse_args(words)
    if options.quick:
        options.objectives, options.rounds, options.steps = options.objectives[:1], 1, 2
    return options


def measured(options: argparse.Namespace) -> list[Line]:
    try:
        import accelerate  # noqa: F401  # their trainer needs it
    except ImportError:
        raise SystemExit("The other side needs accelerate: pip install 'sentence-transformers[train]'.") from None
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    backbone, lines, shared = materials.packaged_minilm(), list[Line](), texts.shared_data()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for objective in options.objectives:
            needed = (max(options.steps, options.seed_steps, CHECKED_STEPS) + 1) * BATCH[objective]
            data, pairs = prepare(objective, backbone, folder, max(needed, 4_096))
            clock = clock_on(options.device, options.clock)
            work = Work(objective, backbone, data, pairs, "fp32", options.steps, clock, folder / "run", options.device)
            apart = drift(work)
            for precision in options.precisions:
                at = work._replace(precision=precision)
                if options.rounds:
                    lines.append(compare(at, options.rounds, apart))
                if options.seeds and shared is not None:
                    lines.append(seeds_line(at, options.seeds, options.seed_steps, shared / "eval"))
    return lines


def main() -> None:
    options = parse()
    materials.hush()
    title = f"Pairs: a run's machinery against sentence-transformers' trainer, {options.device}, {options.clock} time"
    report(title, measured(options), options.output)


if __name__ == "__main__":
    main()
