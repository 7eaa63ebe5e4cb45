"""Distillation of a teacher's embeddings: the loss, and projections to the teacher's width.

Shape letters: N rows, C texts of a row, W width of the teacher's embeddings, D width of the encoder's embeddings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrastive_encoders.core import InputError, SentenceBatch
from contrastive_encoders.losses.distillation import cosine_to, mse_to

RIDGE = 0.01  # penalty of a fitted projection, relative to the mean variance of a dimension
ROUNDING = 1e-8  # the same, relative to its mean square: rounding errors of equal embeddings are not fitted
TINY = 1e-30  # the same, if all embeddings are zero
DISTANCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"cosine": cosine_to, "mse": mse_to}


class EmbeddingDistillationLoss(nn.Module):
    """Loss: the distance between a model's embeddings, or prefixes of them, and the embeddings of a teacher.

    Each size that differs from ``width`` has a linear projection. Projections are trained and saved in checkpoints, but
    are not part of the encoder.

    Args:
        sizes: Dimensions of the embeddings or prefixes to compare.
        width: Dimension of the teacher's embeddings.
        distance: A key of `DISTANCES`.
        normalize: Whether the encoder normalizes its embeddings, so that normalized ones are compared.
        seed: Seed that initializes the projections.
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

    @torch.no_grad()
    def fit(self, embeddings_ND: Tensor, taught_NW: Tensor, sizes: Sequence[str] | None = None) -> None:
        """Set each projection, or those of ``sizes``, to the ridge regression of the teacher's embeddings of N texts on
        those of the encoder.

        With random projections, the first steps change the encoder more than the projections.
        """
        for size in self.projections if sizes is None else sizes:
            inputs_ND = self._prepared(embeddings_ND[:, : int(size)]).double()
            input_mean_D, taught_mean_W = inputs_ND.mean(0), taught_NW.double().mean(0)
            rounding = ROUNDING * float(inputs_ND.square().sum(0).mean())
            inputs_ND = inputs_ND - input_mean_D
            moments_DD = inputs_ND.T @ inputs_ND
            penalty = RIDGE * float(moments_DD.diagonal().mean()) + rounding + TINY
            moments_DD += penalty * torch.eye(int(size))
            weight_DW = torch.linalg.solve(moments_DD, inputs_ND.T @ (taught_NW - taught_mean_W))
            self.projections[size].load_state_dict(
                {"weight": weight_DW.T, "bias": taught_mean_W - input_mean_D @ weight_DW}
            )

    def _prepared(self, embeddings_ND: Tensor) -> Tensor:
        return F.normalize(embeddings_ND, dim=-1) if self.normalize else embeddings_ND

    def forward(self, vectors: Sequence[Tensor], batch: Any) -> Tensor:
        """Return the mean distance over all texts of the batch, () float32. A view of ``vectors`` is (sequences, D)."""
        with torch.autocast(vectors[0].device.type, enabled=False):
            embeddings_ND = self._prepared(torch.cat([one.float() for one in vectors]))
            size = str(embeddings_ND.shape[-1])
            if size in self.projections:
                embeddings_ND = self.projections[size](embeddings_ND)
            return self.distance(embeddings_ND, targets(vectors, batch))


def targets(vectors: Sequence[Tensor], batch: Any) -> Tensor:
    """Return the teacher's embeddings of the texts of all views, (sequences, W) float32 with width W, in the order of
    the views.

    All views of a `SentenceBatch` contain the same texts. For other batches, the views contain the first texts of the
    rows, the second texts, and all further texts, of which those of one row are consecutive.

    Raises:
        RuntimeError: If the batch has no embeddings of a teacher, because ``data.taught`` was not set.
    """
    if batch.taught is None:
        raise RuntimeError("The batch has no teacher embeddings: data.taught was not set before training.")
    taught_NCW = batch.taught.float()
    if isinstance(batch, SentenceBatch):
        return taught_NCW[:, 0].repeat(len(vectors), 1)
    columns = [taught_NCW[:, 0], taught_NCW[:, 1], taught_NCW[:, 2:].flatten(0, 1)]
    return torch.cat(columns[: len(vectors)])


def check_teacher(teacher: str | None, **others: float | str | None) -> None:
    """Check that no distillation settings are set if there is no teacher.

    Raises:
        InputError: If one of the ``others`` is given, but no teacher.
    """
    for name, value in others.items():
        if teacher is None and value is not None:
            raise InputError(
                key=f"model.{name}",
                value=value,
                expected="null if there is no teacher",
                hint=f"To use model.{name}, set model.teacher.",
            )
