"""P13: how much of a GPU's matmul peak a DeCLUTR step uses for real tokens.

    python -m benchmarks.gpu_step [--quick] [--backbone roberta|smollm2] [--token-budgets 16384 65536]
        [--documents 16 64] [--recompute on off] [--keys model.KEY=VALUE ...] [--profile FILE] [--device cuda|cpu]

The shape of RoBERTa-base or SmolLM2-135M with random weights, spans of 32..512 tokens, A = P = 2, bf16, Lightning's
Trainer with the callbacks of a run; SmolLM2 without masked tokens. The peak is measured: the best of some large bf16
matmuls. Padding, recomputation and embedding look-ups are no work; what is counted is said at `flops`. Wanted: 45 %.
``--keys`` are others of the objective; one that it does not have makes a row that says so. ``--profile`` writes which
kernels three steps spend their time in, and how much of it the device computes.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from torch import Tensor
from transformers import AutoTokenizer, RobertaConfig, RobertaForMaskedLM

from benchmarks import materials
from benchmarks.declutr_step import trainer_of_a_run
from benchmarks.materials import objective
from benchmarks.sides import Line, arguments, clock_on, report
from contrastive_encoders.core import IGNORED_LABEL, SpanBatch
from contrastive_encoders.encoders.attention import is_decoder_alone

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
VOCABULARY = 50_265  # RoBERTa's; the tokenizer that is at hand uses fewer of the ids


class Case(NamedTuple):
    documents: int
    spans: tuple[int, int]
    token_budget: int
    recompute: str
    keys: dict[str, Any]  # of the objective
    device: str
    profile: Path | None


class Meter(pl.Callback):
    """FLOPs and seconds of the steps after the first few."""

    def __init__(self, warmup: int, last: int, head: bool) -> None:
        self.warmup, self.last, self.head = warmup, last, head
        self.flops: Tensor | float = 0.0
        self.tokens, self.seconds = 0, 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: SpanBatch, batch_idx: int
    ) -> None:
        if trainer.global_step > self.warmup:
            self.flops = self.flops + flops(pl_module.encoder.transformer, batch, self.head)
            self.tokens += outputs["spent"]["real_tokens"]
        if trainer.global_step in (self.warmup, self.last):  # nowhere else: the host must stay ahead of the device
            self.seconds = clock_on(str(pl_module.device))() - self.seconds


class Profile(pl.Callback):
    """Writes which kernels three steps spend their time in."""

    def __init__(self, path: Path, first: int) -> None:
        self.path, self.first, self.seconds, self.busy = path, first, 0.0, 0.0
        self.profiler = torch.profiler.profile()

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step == self.first:
            self.profiler.start()
            self.seconds = clock_on(str(pl_module.device))()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step == self.first + 3:
            self.seconds = clock_on(str(pl_module.device))() - self.seconds
            self.profiler.stop()
            found = self.profiler.key_averages()
            self.busy = sum(one.self_device_time_total for one in found) / 1e6
            orders = ["self_cpu_time_total", *(["self_device_time_total"] if pl_module.device.type == "cuda" else [])]
            table = "\n".join(found.table(sort_by=by, row_limit=40, max_name_column_width=100) for by in orders)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(f"{self.busy:.3f} s of {self.seconds:.3f} s computed on the device\n{table}\n")


def flops(model: Any, batch: SpanBatch, head: bool = True) -> Tensor | float:
    """Forward and backward: 6 per weight and real token, attention 12 T^2 D a layer, of causal models half of it, and
    the language-model head on predicted tokens.

    Stays on the device, which is not waited for.
    """
    config, lengths = model.config, np.concatenate([batch.anchors.lengths, batch.positives.lengths])
    alone = is_decoder_alone(config)
    layers = model.base_model.layers if alone else model.base_model.encoder
    trunk = sum(p.numel() for p in layers.parameters())
    attention = (6 if alone else 12) * config.num_hidden_layers * config.hidden_size * float((lengths**2).sum())
    of_trunk = 6.0 * trunk * int(lengths.sum()) + attention
    if not head:
        return of_trunk
    predicted = (batch.labels != IGNORED_LABEL).sum().double()
    return of_trunk + 6.0 * config.hidden_size * (config.hidden_size + config.vocab_size) * predicted


def matmul_peak(device: torch.device, size: int, repeats: int = 30) -> float:
    """Measure the FLOP/s of square bf16 matmuls; return the best of ``repeats``."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    clock = clock_on(str(device))
    for _ in range(repeats):
        start = clock()
        for _ in range(5):
            left @ right
        best = min(best, (clock() - start) / 5)
    return 2 * size**3 / best


def measure(backbone: Path, folder: Path, case: Case, steps: int, warmup: int) -> tuple[Meter, float]:
    """Train ``warmup`` + ``steps`` steps; return the meter and the peak memory of the device in GiB."""
    data = materials.span_data(folder, backbone, case.documents, *case.spans)
    model = objective("declutr", backbone, token_budget=case.token_budget, recompute=case.recompute, **case.keys)
    meter, on_gpu = Meter(warmup, warmup + steps, model.mlm_weight > 0), case.device != "cpu"
    watching = [Profile(case.profile, warmup)] if case.profile else []
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    trainer = trainer_of_a_run(folder / "run", warmup + steps, True, meter, *watching, device=case.device)
    trainer.fit(model, datamodule=data)
    return meter, torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0


def roberta(folder: Path, sizes: dict[str, int]) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(materials.packaged_minilm())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=514, type_vocab_size=1, pad_token_id=0, bos_token_id=101, **sizes
    )
    return materials.random_weights(RobertaForMaskedLM, config, folder)


def backbone_of(options: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the backbone and the keys of the objective that it needs."""
    if options.backbone == "roberta":
        return roberta(folder, SMALL if options.quick else BASE), {}
    keys = {"mlm_weight": 0.0, "pooling": "mean"}
    return (
        materials.tiny_decoder(folder) if options.quick else materials.decoder_sized(folder, **materials.SMOLLM2)
    ), keys


def given(words: Sequence[str]) -> dict[str, Any]:
    return {name.removeprefix("model."): yaml.safe_load(value) for name, _, value in (w.partition("=") for w in words)}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, device="cuda")
    parser.add_argument("--backbone", choices=["roberta", "smollm2"], default="roberta")
    parser.add_argument("--recompute", choices=["on", "off"], nargs="+", default=["on", "off"])
    parser.add_argument("--keys", nargs="*", default=[], metavar="model.KEY=VALUE")
    parser.add_argument("--profile", type=Path, metavar="FILE")
    parser.add_argument("--documents", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--token-budgets", type=int, nargs="+", default=[16_384, 65_536])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(words)
    if options.quick:
        options.documents, options.token_budgets, options.steps = [4], [16_384], 4
    return options


def measured(options: argparse.Namespace) -> list[Line]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _measured(options, Path(scratch))
    finally:
        torch.set_float32_matmul_precision(before)


def _measured(options: argparse.Namespace, folder: Path) -> list[Line]:
    keys, name = given(options.keys), " ".join([options.backbone, *options.keys])
    if missing := sorted(keys.keys() - materials.keys_of("declutr")):
        raise NotThere(f"model.{missing[0]}: no such key")
    peak = matmul_peak(torch.device(options.device), 8192 if options.device != "cpu" else 256)
    backbone, own = backbone_of(options, folder / "backbone")
    lines = []
    for documents in options.documents:
        for budget in options.token_budgets:
            for recompute in options.recompute:
                spans = (8, 32) if options.quick else (32, 512)
                case = Case(documents, spans, budget, recompute, own | keys, options.device, options.profile)
                meter, gib = measure(backbone, folder, case, options.steps, warmup=5)
                rate = float(meter.flops) / meter.seconds
                said = f"{name}, {documents} documents, chunks of {budget}, recompute {recompute}, "
                said += f"{meter.tokens / meter.seconds:.0f} tokens/s, {gib:.1f} GiB"
                lines.append(Line("P13", said, "TFLOP/s", rate / 1e12, peak / 1e12, rate / peak, ">= 0.45x"))
    return lines


class NotThere(Exception):
    """The thing to be measured does not exist."""


def main() -> None:
    options = parse()
    materials.hush()
    device = "the CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    report(f"DeCLUTR on {device}, bf16; theirs is the matmul peak", measured(options), options.output)


if __name__ == "__main__":
    main()
