"""P13: how much of a GPU's matmul peak a DeCLUTR step turns into work on real tokens.

    python -m benchmarks.gpu_step [--quick] [--token-budgets 16384 65536] [--documents 16 64]

A RoBERTa-base with random weights, spans of 32..512 tokens, A = P = 2, bf16, Lightning's Trainer with the callbacks of
a run. The peak is measured: the best of some large bf16 matmuls. Padding, recomputation and embedding look-ups are no
work; what is counted is said at `flops`. Wanted: 45 %. Without a GPU this says so and does nothing.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from transformers import AutoTokenizer, RobertaConfig, RobertaForMaskedLM

from benchmarks import materials
from benchmarks.declutr_step import trainer_of_a_run
from benchmarks.materials import objective
from benchmarks.sides import Line, arguments, report
from contracts import IGNORED_LABEL, SpanBatch

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
VOCABULARY = 50_265  # RoBERTa's; the tokenizer that is at hand uses fewer of the ids


class Case(NamedTuple):
    documents: int
    token_budget: int
    recompute: str


class Meter(pl.Callback):
    """FLOPs and seconds of the steps after the first few."""

    def __init__(self, warmup: int, last: int) -> None:
        self.warmup, self.last = warmup, last
        self.flops: Tensor | float = 0.0
        self.tokens, self.seconds = 0, 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: SpanBatch, batch_idx: int
    ) -> None:
        if trainer.global_step > self.warmup:
            self.flops = self.flops + flops(pl_module.encoder.transformer, batch)
            self.tokens += outputs["spent"]["real_tokens"]
        if trainer.global_step in (self.warmup, self.last):  # nowhere else: the host must stay ahead of the device
            wait(pl_module.device)
            self.seconds = time.perf_counter() - self.seconds


def flops(model: Any, batch: SpanBatch) -> Tensor:
    """Forward and backward: 6 per weight and real token, attention 12 T^2 D a layer, the head on predicted tokens.

    Stays on the device, which is not waited for.
    """
    config, lengths = model.config, np.concatenate([batch.anchors.lengths, batch.positives.lengths])
    trunk = sum(p.numel() for p in model.base_model.encoder.parameters())
    head = config.hidden_size * (config.hidden_size + config.vocab_size)
    predicted = (batch.labels != IGNORED_LABEL).sum().double()
    attention = 12 * config.num_hidden_layers * config.hidden_size * float((lengths**2).sum())
    return 6.0 * trunk * int(lengths.sum()) + attention + 6.0 * head * predicted


def matmul_peak(device: torch.device, size: int, repeats: int = 30) -> float:
    """FLOP/s of the fastest of some square bf16 matmuls."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        for _ in range(5):
            left @ right
        wait(device)
        best = min(best, (time.perf_counter() - start) / 5)
    return 2 * size**3 / best


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(backbone: Path, folder: Path, case: Case, steps: int, warmup: int) -> Meter:
    """Train ``warmup`` + ``steps`` steps."""
    data = materials.span_data(folder, backbone, case.documents, 32, 512)
    model = objective("declutr", backbone, token_budget=case.token_budget, recompute=case.recompute)
    meter = Meter(warmup, warmup + steps)
    trainer_of_a_run(folder / "run", warmup + steps, True, meter).fit(model, datamodule=data)
    return meter


def roberta(folder: Path, sizes: dict[str, int]) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(materials.packaged_minilm())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=514, type_vocab_size=1, pad_token_id=0, bos_token_id=101, **sizes
    )
    return materials.random_weights(RobertaForMaskedLM, config, folder)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--token-budgets", type=int, nargs="+", default=[16_384, 65_536])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if options.quick:
        options.documents, options.token_budgets, options.steps = [4], [16_384], 2
    return options


def main() -> None:
    options = parse()
    if not torch.cuda.is_available():
        print("P13: no CUDA device here; nothing was measured.")
        return
    materials.hush()
    torch.set_float32_matmul_precision("high")
    peak, lines = matmul_peak(torch.device("cuda"), 8192), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        backbone = roberta(folder / "roberta", SMALL if options.quick else BASE)
        for documents in options.documents:
            for budget in options.token_budgets:
                for recompute in ("on", "off"):
                    meter = measure(backbone, folder, Case(documents, budget, recompute), options.steps, warmup=5)
                    rate = float(meter.flops) / meter.seconds
                    case = f"{documents} documents, chunks of {budget}, recompute {recompute}, "
                    case += f"{meter.tokens / meter.seconds:.0f} tokens/s"
                    lines.append(Line("P13", case, "TFLOP/s", rate / 1e12, peak / 1e12, rate / peak, ">= 0.45x"))
    report(f"DeCLUTR on {torch.cuda.get_device_name()}, bf16; theirs is the matmul peak", lines, options.output)


if __name__ == "__main__":
    main()
