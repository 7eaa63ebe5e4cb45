"""Embeddings by the encoder of a run before its first step, on rank 0."""

import torch
from torch import Tensor

from contrastive_encoders.core import Ragged
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.training.resolve import ResolvedRun


def initial_embeddings(run: ResolvedRun, model: Objective, sequences: Ragged) -> Tensor:
    """Return the embeddings of N token sequences, (N, D) float32 on the CPU, with the run's precision.

    They are computed on the device on which the run trains. If its weights are sharded, they are computed on the CPU,
    because a device may be too small for the entire encoder.
    """
    device = device_of(run.device or "auto") if not run.is_sharded else "cpu"
    autocast = torch.bfloat16 if run.precision == "bf16" else None
    try:
        return model.encoder.to(device).embed_ids(sequences, autocast=autocast)
    finally:
        model.encoder.to("cpu")
