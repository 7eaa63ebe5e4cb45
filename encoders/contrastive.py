"""The base class of contrastive objectives: hard negatives, a guide, diagnostics of the vectors."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from contrastive_encoders.core import InputError, Ragged, Role, ScoredTripletBatch, TripletBatch
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.embedding_distillation import check_teacher
from contrastive_encoders.encoders.model_configs import ContrastiveConfig, HardNegativesConfig
from contrastive_encoders.encoders.objective import LossOutput, Objective
from contrastive_encoders.encoders.objectives.guide import GuideEncoder, kept_on_host
from contrastive_encoders.encoders.objectives.matryoshka import over_prefixes
from contrastive_encoders.io.model_names import prompt_places
from contrastive_encoders.losses.contrastive import ContrastiveOutput, Guide, info_nce
from contrastive_encoders.losses.diagnostics import contrast_diagnostics
from contrastive_encoders.losses.duplicate_masking import FILLER, count_negatives, text_hashes
from contrastive_encoders.losses.gather import gather_rows

Column = TypeVar("Column")


class Distance(NamedTuple):
    loss: Tensor


class ContrastiveObjective(Objective):
    """An objective whose negatives are the other texts of the batch. Its ``loss`` is given what the guide makes of the
    texts. ``log_every_n_steps`` is that of the diagnostics.
    """

    needs = "rows that are negatives of each other (rows with an equal text are not)"
    remedy = "Add rows with other texts, or a third column of texts that do not belong to the first."

    settings: ContrastiveConfig

    def __init__(self, settings: ContrastiveConfig) -> None:
        margins = settings.guide_absolute_margin, settings.guide_relative_margin
        for name, margin in zip(("absolute", "relative"), margins, strict=True):
            if settings.guide is None and margin is not None:
                raise InputError(
                    f"model.guide_{name}_margin={margin}: there is no guide to hold it. Set model.guide, too."
                )
        check_teacher(settings.teacher, teacher_weight=settings.teacher_weight, distance=settings.distance)
        super().__init__(settings)
        self.margins = margins[0] or 0.0, margins[1] or 0.0
        self.guide = None if settings.guide is None else GuideEncoder(settings.guide, self.encoder.tokenizer)
        self.encoder.beside = self.guide.modules if self.guide else ()
        self.prompts: Sequence[Collection[str]] = ()  # of each column of the data
        self.prompt_places: Sequence[slice] = ()  # of the prompt that all texts of a column have

    def texts(self, batch: Any) -> Sequence[Ragged]:
        """What the guide reads of each view: the texts, before any mask or prompt."""
        return self.views(batch)

    def loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> Any:
        """`Objective.loss`, told which candidates are no negatives: ``guide`` is what `guided` returns, ``texts`` what
        `numbered` does. A function of `losses` takes both.
        """
        raise NotImplementedError

    def know_prompts(self, columns: Sequence[Collection[str]]) -> None:
        self.prompts = columns
        same = (next(iter(prompts)) if len(prompts) == 1 else "" for prompts in columns)
        self.prompt_places = [prompt_places(self.encoder.tokenizer, prompt) for prompt in same]

    def numbered(self, batch: Any) -> Sequence[Tensor] | None:
        """Return the (sequences,) int64 hashes of the texts of each view; None with ``exclude_equal_texts=false``,
        unless rows have lists, whose other positives and empty texts are no negatives.
        """
        has_lists = getattr(batch, "all_positives", None) is not None
        return self.text_numbers(batch) if self.settings.exclude_equal_texts or has_lists else None

    def text_numbers(self, batch: Any) -> list[Tensor]:
        """Return the (sequences,) int64 hashes of the texts of each view, without the prompts of the columns; `FILLER`
        for the empty texts that fill up a row.
        """
        fillers = getattr(batch, "fillers", None)
        views = self.texts(batch)
        places = of_views(self.prompt_places, len(views), slice(0, 0))
        found = [text_hashes(view.ids, view.lengths, prompt) for view, prompt in zip(views, places, strict=True)]
        if fillers is not None:
            found[2] = found[2].masked_fill(torch.from_numpy(fillers).to(found[2].device, non_blocking=True), FILLER)
        return found

    def accepted(self, batch: Any) -> Tensor | None:
        """Return the (N, P) hashes of the texts that are no negatives of an anchor; None if rows have no lists."""
        positives = getattr(batch, "all_positives", None)
        if positives is None:
            return None
        [_, place] = of_views(self.prompt_places, 2, slice(0, 0))
        hashes = text_hashes(positives.ids, positives.lengths, place).view(len(batch.rows), -1)
        return torch.cat([hashes, torch.full_like(hashes[:, :1], FILLER)], dim=1)

    def guided(self, batch: Any) -> Guide | None:
        """What the guide makes of the texts of a batch; None where there is no guide."""
        if self.guide is None:
            return None
        texts = self.texts(batch)
        has_roles = isinstance(batch, TripletBatch | ScoredTripletBatch)
        roles: Sequence[Role | None] = ("query", "document") if has_roles else (None,)
        vectors = self.guide(texts, of_views(roles, len(texts), None), of_views(self.prompts, len(texts), ()))
        return Guide(vectors, *self.margins)

    def compare(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> LossOutput:
        accepted = self.accepted(batch)
        known |= {} if accepted is None else {"accepted": accepted}
        return super().compare(vectors, batch, guide=self.guided(batch), texts=self.numbered(batch), **known)

    def compare_encoded(self, vectors_ND: Tensor, lengths: Sequence[int], batch: Any) -> LossOutput:
        """Compare the vectors, and where there is a teacher those that leave the encoder with its own."""
        contrast, weight = super().compare_encoded(vectors_ND, lengths, batch), self.settings.teacher_weight
        if self.teaching is None:
            return contrast
        teaching = partial(self.teaching, batch=batch)
        (distance,), _ = over_prefixes(lambda *cut: Distance(teaching(cut)), self.prefixes, *vectors_ND.split(lengths))
        loss = contrast.loss + (1.0 if weight is None else weight) * distance
        return LossOutput(loss, {**contrast.metrics, "distance_to_teacher": distance.detach()})

    def metrics(self, vectors: Sequence[Tensor], batch: Any) -> dict[str, Tensor]:
        """Diagnostics of the pairs of all ranks, at steps that are logged: they take an eigendecomposition."""
        if (self.global_step + 1) % self.settings.log_every_n_steps:
            return {}
        left, right = (gather_rows(one.detach())[0] for one in vectors[:2])
        return contrast_diagnostics(left, right)

    def negatives(self, batch: Any) -> Tensor | None:
        """The texts of all views but the first, without those that the loss leaves out."""
        return count_negatives(
            *self.text_numbers(batch),
            groups=getattr(batch, "groups", None),
            accepted=self.accepted(batch),
            exclude_equal=self.numbered(batch) is not None,
        )

    def can_learn(self, batch: Any, negatives: Tensor | None) -> bool:
        """Whether an anchor has a negative. Equal texts that are kept differ by dropout, and by the other direction."""
        if self.settings.teacher is not None or negatives is None or negatives.any():
            return True
        directions = getattr(self.settings, "directions", ())
        is_kept = not self.settings.exclude_equal_texts and len(batch.rows) > 1
        return is_kept and (has_dropout(self.encoder) or len(directions) > 1)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """A guide reads texts, and keeps their ids on the host: the device would have to be asked for them."""
        return batch if self.guide is None else type(batch)(*map(kept_on_host, batch))


class HardNegativesObjective(ContrastiveObjective):
    """A contrastive objective whose anchors may have hard negatives of their own, compared by InfoNCE."""

    settings: HardNegativesConfig

    def with_negatives(self, views: list[Ragged], negatives: Ragged | None) -> list[Ragged]:
        """Return the views, and the hard negatives if there are any.

        Raises:
            InputError: there are none to give a weight to.
        """
        for key in ("hard_negative_weight", "hardness_strength"):
            if negatives is None and (weight := getattr(self.settings, key)):
                raise InputError(
                    f"model.{key}={weight}: this data has no hard negatives to weigh. Set it to 0, or take data of "
                    "three columns."
                )
        return views if negatives is None else [*views, negatives]

    def loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> ContrastiveOutput:
        return info_nce(*vectors, **{**self.loss_keys(batch), **known})

    def loss_keys(self, batch: Any) -> dict[str, Any]:
        """Return the keyword arguments of the loss that follow from the settings and the batch."""
        return {
            "temperature": self.settings.temperature,
            "hard_negative_weight": self.settings.hard_negative_weight,
            "hardness_strength": self.settings.hardness_strength,
            "groups": getattr(batch, "groups", None),
        }


def of_views(columns: Sequence[Column], views: int, otherwise: Column) -> list[Column]:
    """Return what belongs to the column of each view: the last one's also to further views. ``otherwise``: if there are
    no columns.
    """
    return [columns[min(place, len(columns) - 1)] if columns else otherwise for place in range(views)]
