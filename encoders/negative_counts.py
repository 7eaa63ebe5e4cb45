"""Counts of the negatives in a batch, without a model."""

from typing import Any

import numpy as np
import torch

from contrastive_encoders.core.batches import TripletBatch
from contrastive_encoders.losses.duplicate_masking import FILLER, count_negatives, text_hashes


def usable_negatives(batch: Any) -> np.ndarray | None:
    """Return the number of negatives that the loss uses for each anchor, excluding texts that equal a positive, or None
    if the batch has no positives.
    """
    if not isinstance(batch, TripletBatch):
        return None
    numbers = [text_hashes(one.ids, one.lengths) for one in (batch.anchors, batch.positives, batch.negatives) if one]
    accepted = None
    if batch.fillers is not None:
        numbers[2] = numbers[2].masked_fill(torch.from_numpy(batch.fillers), FILLER)
    if (others := batch.all_positives) is not None:
        accepted = text_hashes(others.ids, others.lengths).view(len(batch.rows), -1)
        accepted = torch.cat([accepted, torch.full_like(accepted[:, :1], FILLER)], dim=1)
    return count_negatives(*numbers, groups=batch.groups, accepted=accepted).numpy()
