"""P14: LoRA on a decoder language model as a run does it, compared with the trainer of sentence-transformers.

SmolLM2-135M on the CPU, adapters of rank 16 in all linear layers: in-batch contrast on NLI premises with their
entailments in batches of 64, the last token pooled, at most 32 tokens, temperature 0.05. Ours: Lightning's Trainer with
the callbacks of a run over a prepared row store, with frozen weights in 32 bits and in 16
(``model.frozen_dtype=bf16``). Theirs: SentenceTransformerTrainer over the same model with the same peft settings,
initial weights, pairs and order, AdamW and clipping. First both train a few steps in fp32, and must end at the same
adapter. Target: 1.5 times the pairs/s.

Memory compares ours with ours: the peak of a process that trains, above the memory before, with adapters and with all
weights, under ``token_budget=2048 activation_checkpointing=on`` (target: at most 0.6); and the size of the checkpoints
(target: an adapter and its optimizer under 70 MB).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks import materials
from benchmarks.pair_training import BATCH, TEMPERATURE, prepare
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, in_new_process, memory_line, rates, resident
from benchmarks.trainers import OPTIMIZER, Work, check_equal, largest_difference, make_trainer, train, train_by_library
from contrastive_encoders.encoders.lora import is_adapter

OPTIONS = {"precisions": PRECISIONS, "frozen": PRECISIONS, "rounds": 3, "steps": 4, "clock": ("wall", "cpu")}
QUICK = {"precisions": ["fp32"], "frozen": ["bf16"], "rounds": 1, "steps": 1}
RANK, ALPHA, PAIRS = 16, 32, BATCH["contrastive"]
MAX_LENGTH = 32  # at 128 the other side, which computes a batch in one go, needs more than 24 GB in fp32
LORA = {"rank": RANK, "alpha": ALPHA, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 1}
CHECKED_STEPS, TOLERANCE = 3, 1e-5


def our_model(backbone: Path, **keys: Any) -> Any:
    keys |= {"pooling": "last", "max_length": MAX_LENGTH, "mlp": False, "temperature": TEMPERATURE, **OPTIMIZER}
    return materials.objective("simcse", backbone, **keys)


def adapter_of(transformer: Any) -> dict[str, Tensor]:
    """Return copies of the adapter's weights by LAYER.lora_A and LAYER.lora_B, whatever either side calls it."""
    weights = {name: weight for name, weight in transformer.named_parameters() if is_adapter(name)}
    return {name.rsplit(".", 2)[0]: weight.detach().clone() for name, weight in weights.items()}


def train_ours(backbone: Path, work: Work, frozen: str = "fp32") -> tuple[float, dict[str, Tensor]]:
    """Return the seconds of the timed steps, and the adapter after them."""
    model = our_model(backbone, lora=LORA, frozen_dtype=frozen)
    return train(model, work), adapter_of(model.encoder.trunk)


def train_theirs(backbone: Path, work: Work) -> tuple[float, dict[str, Tensor]]:
    """Do the same with an adapter of peft in all linear layers, which starts from our weights."""
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.models import Pooling, Transformer

    transformer = Transformer(str(backbone), max_seq_length=MAX_LENGTH)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="lasttoken")
    model: Any = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    config = {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "target_modules": "all-linear"}
    model.add_adapter(LoraConfig(task_type="FEATURE_EXTRACTION", **config))
    first = adapter_of(our_model(backbone, lora=LORA).encoder.trunk)
    for name, weight in model[0].auto_model.named_parameters():
        if is_adapter(name):
            weight.data.copy_(first[name.rsplit(".", 2)[0]])
    loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    return train_by_library(model, loss, work), adapter_of(model[0].auto_model)


def peak_and_checkpoint(backbone: Path, folder: Path, frozen: str | None, precision: str) -> tuple[int, int]:
    """Return the bytes that two steps need above the memory before, and those of a checkpoint; None: all weights."""
    data, _ = prepare("contrastive", backbone, folder, 4_096, MAX_LENGTH)
    before = resident("VmRSS")
    keys = {} if frozen is None else {"lora": LORA, "frozen_dtype": frozen}
    trainer = make_trainer(folder / "run", 2, precision)
    trainer.fit(our_model(backbone, **keys, token_budget=2048, activation_checkpointing="on"), datamodule=data)
    peak, path = resident("VmHWM"), folder / "run" / "measured.ckpt"
    trainer.save_checkpoint(path)
    return peak - before, path.stat().st_size


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    make_backbone = materials.tiny_decoder if options.quick else materials.unpacked_smollm2
    backbone = make_backbone(folder / "backbone")
    data, rows = prepare("contrastive", backbone, folder, max((options.steps + 1) * PAIRS, 4_096), MAX_LENGTH)
    work = Work(data, rows, "fp32", CHECKED_STEPS - 1, clock_of(options), folder / "run")
    adapters = [side(backbone, work)[1] for side in (train_ours, train_theirs)]
    equal = check_equal("adapters", largest_difference(*adapters), TOLERANCE)
    for precision in options.precisions:
        work = work._replace(precision=precision, steps=options.steps)
        sides = {name: lambda name=name, work=work: train_ours(backbone, work, name)[0] for name in options.frozen}
        theirs = {"theirs": lambda work=work: train_theirs(backbone, work)[0]}
        seconds = alternate(sides | theirs, options.rounds)
        for frozen in options.frozen:
            case = f"contrastive {precision}, {PAIRS} pairs, frozen weights in {frozen}, {equal}"
            amount = options.steps * PAIRS
            yield rates("P14", case, "pairs/s", amount, seconds[frozen], seconds["theirs"], ">= 1.5x")
    for precision in options.precisions:
        full, full_size = in_new_process(peak_and_checkpoint, backbone, folder, None, precision)
        for frozen in options.frozen:
            peak, size = in_new_process(peak_and_checkpoint, backbone, folder, frozen, precision)
            case = f"adapters / all weights, {precision}, frozen weights in {frozen}"
            yield memory_line("P14", f"peak, {case}", peak, full, "<= 0.6x")
            yield memory_line("P14", f"checkpoint, {case}", size, full_size, "<= 70 MB")
