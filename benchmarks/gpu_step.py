"""P13: the share of a GPU's matmul peak that a DeCLUTR step uses for real tokens.

The shape of RoBERTa-base or SmolLM2-135M with random weights, spans of 32 to 512 tokens, A = P = 2, bf16, Lightning's
Trainer with the callbacks of a run; SmolLM2 without masked tokens. The peak is measured: the best of some large bf16
matmuls. Padding, recomputation, and embedding look-ups don't count as work; see `flops`. ``--keys`` are others
of the objective (``model.KEY=VALUE``). ``--profile FILE`` writes which kernels three steps spend their time in, and the
share of it in which the device computes. Target: 45 %.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from torch import Tensor
from transformers import RobertaConfig, RobertaForMaskedLM

from benchmarks import materials
from benchmarks.runner import Line, clock_of
from benchmarks.trainers import make_trainer
from contrastive_encoders.core import IGNORED_LABEL, SpanBatch
from contrastive_encoders.encoders.attention import is_decoder_alone

OPTIONS = {
    "backbone": ("roberta", "smollm2"),
    "recompute": ["on", "off"],
    "keys": [],
    "profile": None,
    "documents": [16, 64],
    "token_budgets": [16_384, 65_536],
    "steps": 20,
    "device": "cuda",
}
QUICK = {"documents": [4], "token_budgets": [16_384], "steps": 4}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
VOCABULARY = 50_265  # RoBERTa's; the installed tokenizer uses fewer of the ids
WARMUP = 5


class Meter(pl.Callback):
    """FLOPs and seconds of the steps after the first few."""

    def __init__(self, last: int, head: bool, clock: Callable[[], float]) -> None:
        self.last, self.head, self.clock = last, head, clock
        self.flops: Tensor | float = 0.0
        self.tokens, self.seconds = 0, 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: SpanBatch, batch_idx: int
    ) -> None:
        if trainer.global_step > WARMUP:
            self.flops = self.flops + flops(pl_module.encoder.transformer, batch, self.head)
            self.tokens += outputs["spent"]["real_tokens"]
        if trainer.global_step in (WARMUP, self.last):  # nowhere else: the host must stay ahead of the device
            self.seconds = self.clock() - self.seconds


class Profile(pl.Callback):
    """Writes which kernels three steps spend their time in."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path, self.clock, self.start = path, clock, 0.0
        self.profiler = torch.profiler.profile()

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step == WARMUP:
            self.profiler.start()
            self.start = self.clock()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step == WARMUP + 3:
            seconds = self.clock() - self.start
            self.profiler.stop()
            averages = self.profiler.key_averages()
            busy = sum(one.self_device_time_total for one in averages) / 1e6
            orders = ["self_cpu_time_total", *(["self_device_time_total"] if pl_module.device.type == "cuda" else [])]
            tables = [averages.table(sort_by=by, row_limit=40, max_name_column_width=100) for by in orders]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("\n".join([f"{busy:.3f} s of {seconds:.3f} s computed on the device", *tables]))


def flops(model: Any, batch: SpanBatch, head: bool = True) -> Tensor | float:
    """Count forward and backward: 6 per weight and real token, attention 12 T^2 D per layer, of causal models half of
    it, and the language-model head on predicted tokens. The sum stays on the device.
    """
    config, lengths = model.config, np.concatenate([batch.anchors.lengths, batch.positives.lengths])
    alone = is_decoder_alone(config)
    layers = model.base_model.layers if alone else model.base_model.encoder
    weights = sum(p.numel() for p in layers.parameters())
    attention = (6 if alone else 12) * config.num_hidden_layers * config.hidden_size * float((lengths**2).sum())
    total = 6.0 * weights * int(lengths.sum()) + attention
    if not head:
        return total
    predicted = (batch.labels != IGNORED_LABEL).sum().double()
    return total + 6.0 * config.hidden_size * (config.hidden_size + config.vocab_size) * predicted


def matmul_peak(device: str, size: int, clock: Callable[[], float]) -> float:
    """Return the best FLOP/s of square bf16 matmuls."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(30):
        start = clock()
        for _ in range(5):
            left @ right
        best = min(best, (clock() - start) / 5)
    return 2 * size**3 / best


def make_backbone(options: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the backbone, and the keys of the objective that it needs."""
    if options.backbone == "smollm2":
        sizes = materials.TINY_DECODER if options.quick else materials.SMOLLM2
        return materials.decoder_sized(folder, **sizes), {"mlm_weight": 0.0, "pooling": "mean"}
    ids = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 0, "bos_token_id": 101}
    config = RobertaConfig(vocab_size=VOCABULARY, **ids, **(SMALL if options.quick else BASE))
    return materials.random_weights(RobertaForMaskedLM, config, folder), {}


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield from measure_steps(options, folder)
    finally:
        torch.set_float32_matmul_precision(before)


def measure_steps(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    on_gpu, clock, name = options.device != "cpu", clock_of(options), " ".join([options.backbone, *options.keys])
    keys = {
        key.removeprefix("model."): yaml.safe_load(value) for key, _, value in (k.partition("=") for k in options.keys)
    }
    peak = matmul_peak(options.device, 8192 if on_gpu else 256, clock)
    backbone, own = make_backbone(options, folder / "backbone")
    cases = [
        (n, budget, how) for n in options.documents for budget in options.token_budgets for how in options.recompute
    ]
    for documents, budget, recompute in cases:
        data = materials.span_data(folder, backbone, documents, *((8, 32) if options.quick else (32, 512)))
        model = materials.objective(
            "declutr", backbone, token_budget=budget, activation_checkpointing=recompute, **own | keys
        )
        last = WARMUP + options.steps
        meter = Meter(last, model.mlm_weight > 0, clock)
        profile = [Profile(Path(options.profile), clock)] if options.profile else []
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        trainer = make_trainer(folder / "run", last, "bf16", meter, *profile, device=options.device)
        trainer.fit(model, datamodule=data)
        gib = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0
        rate = float(meter.flops) / meter.seconds
        case = f"{name}, {documents} documents, chunks of {budget}, recompute {recompute}, "
        case += f"{meter.tokens / meter.seconds:.0f} tokens/s, {gib:.1f} GiB"
        yield Line("P13", case, "TFLOP/s", rate / 1e12, peak / 1e12, rate / peak, ">= 0.45x")
