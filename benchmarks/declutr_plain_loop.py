"""A plain PyTorch training loop of DeCLUTR, the baseline of `benchmarks.declutr_step`.

The chunks are ours, and so is NT-Xent; model, head, pooling, MLM, AdamW and clipping are written out.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForMaskedLM

from contrastive_encoders.core import IGNORED_LABEL, SpanBatch
from contrastive_encoders.encoders.kernels.chunks import chunk_cost, concatenate, padded, plan_chunks
from contrastive_encoders.losses.contrastive import nt_xent


def train(
    backbone: Path,
    batches: Iterable[SpanBatch],
    steps: int,
    *,
    lr: float,
    weight_decay: float,
    token_budget: int,
    bf16: bool,
    clock: Callable[[], float],
) -> tuple[list[float], dict[str, Tensor]]:
    """When each step ended, and the weights they led to."""
    model = AutoModelForMaskedLM.from_pretrained(backbone, dtype=torch.float32).train()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, eps=1e-6)
    times: list[float] = []
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = declutr_loss(model, batch, token_budget)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(clock())
        if len(times) == steps:
            break
    return times, model.state_dict()


def declutr_loss(model: Any, batch: SpanBatch, token_budget: int) -> Tensor:
    head = model.cls if hasattr(model, "cls") else model.lm_head

    def forward(ids: Tensor, mask: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        states = model.base_model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        chosen, weights = labels != IGNORED_LABEL, mask.unsqueeze(-1).float()
        mlm = F.cross_entropy(head(states[chosen]).float(), labels[chosen], reduction="sum")
        return (states.float() * weights).sum(1) / weights.sum(1), mlm

    ids, lengths, _ = concatenate([batch.anchors._replace(ids=batch.masked_ids), batch.positives])
    labels = torch.cat([batch.labels, torch.full_like(batch.positives.ids, IGNORED_LABEL)])
    chunks = plan_chunks(lengths, token_budget, chunk_cost(torch.device("cpu")))
    recompute = sum(chunk.padded_tokens for chunk in chunks) > token_budget
    vectors: list[Any] = [None] * len(lengths)
    mlm = torch.zeros(())
    pad = model.config.pad_token_id
    laid_out = zip(padded(ids, lengths, chunks, pad), padded(labels, lengths, chunks, IGNORED_LABEL), strict=True)
    for chunk, ((chunk_ids, mask), (chunk_labels, _)) in zip(chunks, laid_out, strict=True):
        inputs = (chunk_ids, mask, chunk_labels)
        pooled, part = checkpoint(forward, *inputs, use_reentrant=False) if recompute else forward(*inputs)
        mlm = mlm + part
        for row, vector in zip(chunk.rows.tolist(), pooled, strict=True):
            vectors[row] = vector
    number = len(batch.anchors.lengths)
    anchors, positives = torch.stack(vectors[:number]), torch.stack(vectors[number:])
    positives = positives.view(number, -1, anchors.shape[1]).mean(1)
    return nt_xent(anchors, positives, temperature=0.05).loss + mlm / (labels != IGNORED_LABEL).sum()
