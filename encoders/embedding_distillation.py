"""Learning from the vectors of a teacher, which are in the batch: the distance to them, and projections to their width.

Shape letters: N rows, C texts of a row, W width of the teacher's vectors, D that of the encoder's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrastive_encoders.core import InputError, SentenceBatch
from contrastive_encoders.losses.distillation import cosine_to, mse_to

DISTANCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"cosine": cosine_to, "mse": mse_to}


class EmbeddingDistillationLoss(nn.Module):
    """The distance of vectors of ``sizes`` numbers, prefixes or whole, to those of a teacher, of ``width``.

    A size that is another than ``width`` has a linear layer of its own between them, whose first weights ``seed``
    draws. It is trained and in checkpoints, and no part of the encoder. ``normalize``: the encoder's vectors leave it
    with length 1, and are compared so.
    """

    def __init__(self, sizes: Sequence[int], width: int, distance: str, *, normalize: bool, seed: int) -> None:
        super().__init__()
        self.width, self.distance, self.normalize = width, DISTANCES[distance], normalize
        self.projections = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for size in sizes:
                if size != width:
                    self.projections[str(size)] = nn.Linear(size, width)

    def forward(self, vectors: Sequence[Tensor], batch: Any) -> Tensor:
        """(sequences, D) vectors of each view -> () float32, the mean distance over all texts of the batch."""
        with torch.autocast(vectors[0].device.type, enabled=False):
            whole_ND = torch.cat([one.float() for one in vectors])
            if self.normalize:
                whole_ND = F.normalize(whole_ND, dim=-1)
            size = str(whole_ND.shape[-1])
            if size in self.projections:
                whole_ND = self.projections[size](whole_ND)
            return self.distance(whole_ND, targets(vectors, batch))


def targets(vectors: Sequence[Tensor], batch: Any) -> Tensor:
    """(sequences of all views, W) float32 vectors of the teacher, in the order of the views. Every view of single texts
    is of the same texts; else they are a row's first texts, its second ones, and all others, those of a row side by
    side.

    Raises:
        RuntimeError: the batch has none, because nobody has given the data the teacher's vectors.
    """
    if batch.taught is None:
        raise RuntimeError("The batch has no vectors of a teacher: data.taught was not set before training.")
    taught_NCW = batch.taught.float()
    if isinstance(batch, SentenceBatch):
        return taught_NCW[:, 0].repeat(len(vectors), 1)
    columns = [taught_NCW[:, 0], taught_NCW[:, 1], taught_NCW[:, 2:].flatten(0, 1)]
    return torch.cat(columns[: len(vectors)])


def check_teacher(teacher: str | None, **others: float | str | None) -> None:
    """Refuse keys that say how to learn from a teacher where there is none.

    Raises:
        InputError: there is no teacher, and one of the ``others`` is given.
    """
    for name, value in others.items():
        if teacher is None and value is not None:
            raise InputError(f"model.{name}={value}: there is no teacher to learn from. Set model.teacher, too.")
