"""Hashes of the texts of a batch, by which losses recognize equal texts, and counts of negatives without a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core.batches import Ragged, TripletBatch
from contrastive_encoders.losses.duplicate_masking import FILLER, count_negatives, text_hashes

NO_PROMPT = slice(0, 0)


def hashes_of_views(views: Sequence[Ragged], prompts: Sequence[slice], batch: Any) -> list[Tensor]:
    """Return the hash of each text, (sequences,) int64 for each view, without the tokens at the positions ``prompts``
    of the view.

    Empty texts that fill up a row have the hash `FILLER`.
    """
    found = [text_hashes(view.ids, view.lengths, prompt) for view, prompt in zip(views, prompts, strict=True)]
    fillers = getattr(batch, "fillers", None)
    if fillers is not None:
        found[2] = found[2].masked_fill(torch.from_numpy(fillers).to(found[2].device, non_blocking=True), FILLER)
    return found


def hashes_of_positives(batch: Any, prompt: slice = NO_PROMPT) -> Tensor | None:
    """Return, for each anchor, the hashes of the texts that must not be its negatives, (anchors, texts) int64.

    These are all positives of the anchor's row, and empty texts. Return None if rows have no lists of positives.
    """
    positives = getattr(batch, "all_positives", None)
    if positives is None:
        return None
    hashes = text_hashes(positives.ids, positives.lengths, prompt).view(len(batch.rows), -1)
    return torch.cat([hashes, torch.full_like(hashes[:, :1], FILLER)], dim=1)


def usable_negatives(batch: Any) -> np.ndarray | None:
    """Return the number of negatives that the loss uses for each anchor, excluding texts that equal a positive, or None
    if the batch has no positives.
    """
    if not isinstance(batch, TripletBatch):
        return None
    views = [one for one in (batch.anchors, batch.positives, batch.negatives) if one]
    hashes = hashes_of_views(views, [NO_PROMPT] * len(views), batch)
    return count_negatives(*hashes, groups=batch.groups, accepted=hashes_of_positives(batch)).numpy()
