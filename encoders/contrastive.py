"""Base classes of contrastive objectives, with hard negatives, a guide, and diagnostics of the embeddings."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from contrastive_encoders.core import InputError, Ragged, Role, ScoredTripletBatch, TripletBatch
from contrastive_encoders.core.embedding_diagnostics import contrast_diagnostics
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.embedding_distillation import check_teacher
from contrastive_encoders.encoders.model_configs import ContrastiveConfig, HardNegativesConfig
from contrastive_encoders.encoders.negative_counts import NO_PROMPT, hashes_of_positives, hashes_of_views
from contrastive_encoders.encoders.objective import LossOutput, Objective
from contrastive_encoders.encoders.objectives.guide import GuideEncoder, keep_on_host
from contrastive_encoders.encoders.objectives.matryoshka import over_prefixes
from contrastive_encoders.io.model_names import prompt_slice
from contrastive_encoders.losses.contrastive import ContrastiveOutput, Guide, info_nce
from contrastive_encoders.losses.duplicate_masking import count_negatives
from contrastive_encoders.losses.gather import gather_rows

Column = TypeVar("Column")


class Distance(NamedTuple):
    loss: Tensor


class ContrastiveObjective(Objective):
    """Base class of objectives whose loss contrasts texts with other texts of the batch (in-batch negatives).

    The methods call each other in this order: `Objective.compute` encodes the views, `compute_encoded_loss` splits the
    embeddings and adds the teacher's distance, `compute_loss` adds the guide's output and the hashes of the texts, and
    ``loss`` of the subclass, which is called for each Matryoshka prefix, returns the contrastive loss. Diagnostics are
    computed at logged steps.
    """

    needs = "rows that are negatives of each other (rows with an equal text are not)"
    remedy = "Add rows with other texts, or a third column of texts that do not belong to the first."

    settings: ContrastiveConfig

    def __init__(self, settings: ContrastiveConfig) -> None:
        margins = settings.guide_absolute_margin, settings.guide_relative_margin
        for name, margin in zip(("absolute", "relative"), margins, strict=True):
            if settings.guide is None and margin is not None:
                raise InputError(
                    key=f"model.guide_{name}_margin",
                    value=margin,
                    expected="null if there is no guide",
                    hint="To use a margin, set model.guide.",
                )
        check_teacher(settings.teacher, teacher_weight=settings.teacher_weight, distance=settings.distance)
        super().__init__(settings)
        self.margins = margins[0] or 0.0, margins[1] or 0.0
        self.guide = None if settings.guide is None else GuideEncoder(settings.guide, self.encoder.tokenizer)
        self.encoder.other_modules = self.guide.modules if self.guide else ()
        self.prompts: Sequence[Collection[str]] = ()  # for each column of the data
        self.prompt_places: Sequence[slice] = ()  # token positions of the prompt that all texts of a column share

    def texts(self, batch: Any) -> Sequence[Ragged]:
        """Return, for each view, the sequences that the guide reads: without masked tokens and without the appended
        prompt.
        """
        return self.views(batch)

    def loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> Any:
        """Compute the loss, like `Objective.loss`, with further arguments that specify which candidates are not
        negatives.

        The keyword arguments are the outputs of `guide_embeddings` (``guide``) and `loss_hashes` (``text_hashes``). The
        functions in `losses` accept both.
        """
        raise NotImplementedError

    def set_prompts(self, columns: Sequence[Collection[str]]) -> None:
        self.prompts = columns
        same = (next(iter(prompts)) if len(prompts) == 1 else "" for prompts in columns)
        self.prompt_places = [prompt_slice(self.encoder.tokenizer, prompt) for prompt in same]

    def loss_hashes(self, batch: Any) -> Sequence[Tensor] | None:
        """Return the hashes by which the loss recognizes and excludes equal texts, (sequences,) int64 for each view.

        Return None if ``exclude_equal_texts`` is False and rows have no lists of texts. If they have lists, their other
        positives and empty texts must be excluded from the negatives.
        """
        has_lists = getattr(batch, "all_positives", None) is not None
        return self.view_hashes(batch) if self.settings.exclude_equal_texts or has_lists else None

    def view_hashes(self, batch: Any) -> list[Tensor]:
        """Return the hash of each text without the prompts of the data columns, (sequences,) int64 for each view."""
        views = self.texts(batch)
        return hashes_of_views(views, values_per_view(self.prompt_places, len(views), NO_PROMPT), batch)

    def accepted(self, batch: Any) -> Tensor | None:
        """Return `hashes_of_positives` without the prompt of the column of positives."""
        return hashes_of_positives(batch, values_per_view(self.prompt_places, 2, NO_PROMPT)[1])

    def guide_embeddings(self, batch: Any) -> Guide | None:
        """Return the guide's embeddings of a batch and the guide's margins, or None if there is no guide."""
        if self.guide is None:
            return None
        texts = self.texts(batch)
        has_roles = isinstance(batch, TripletBatch | ScoredTripletBatch)
        roles: Sequence[Role | None] = ("query", "document") if has_roles else (None,)
        vectors = self.guide(
            texts, values_per_view(roles, len(texts), None), values_per_view(self.prompts, len(texts), ())
        )
        return Guide(vectors, *self.margins)

    def compute_loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> LossOutput:
        accepted = self.accepted(batch)
        known |= {} if accepted is None else {"accepted": accepted}
        return super().compute_loss(
            vectors, batch, guide=self.guide_embeddings(batch), text_hashes=self.loss_hashes(batch), **known
        )

    def compute_encoded_loss(self, vectors_ND: Tensor, lengths: Sequence[int], batch: Any) -> LossOutput:
        """Compute the contrastive loss and, if there is a teacher, add the distance to the teacher's embeddings."""
        contrast, weight = super().compute_encoded_loss(vectors_ND, lengths, batch), self.settings.teacher_weight
        if self.teaching is None:
            return contrast
        teaching = partial(self.teaching, batch=batch)
        (distance,), _ = over_prefixes(lambda *cut: Distance(teaching(cut)), self.prefixes, *vectors_ND.split(lengths))
        loss = contrast.loss + (1.0 if weight is None else weight) * distance
        return LossOutput(loss, {**contrast.metrics, "distance_to_teacher": distance.detach()})

    def metrics(self, vectors: Sequence[Tensor], batch: Any) -> dict[str, Tensor]:
        """Return diagnostics of the embeddings of the pairs on all ranks.

        They are computed only at logged steps, because they need an eigendecomposition.
        """
        if not self.log_step:
            return {}
        left, right = (gather_rows(one.detach())[0] for one in vectors[:2])
        return contrast_diagnostics(left, right)

    def count_negatives(self, batch: Any) -> Tensor | None:
        """Return, for each anchor, the number of its negatives: the texts of all other views, except those that equal
        the anchor or one of its positives.
        """
        return count_negatives(
            *self.view_hashes(batch),
            groups=getattr(batch, "groups", None),
            accepted=self.accepted(batch),
            exclude_equal=self.loss_hashes(batch) is not None,
        )

    def can_learn(self, batch: Any, num_negatives: Tensor | None) -> bool:
        """Return whether the loss can have a gradient: there is a teacher, or the embedding of any negative differs
        from the embedding of its anchor's positive.

        Equal texts that are not excluded have different embeddings if there is dropout. They also count if the loss has
        several directions.
        """
        if self.settings.teacher is not None or num_negatives is None or num_negatives.any():
            return True
        directions = getattr(self.settings, "directions", ())
        is_kept = not self.settings.exclude_equal_texts and len(batch.rows) > 1
        return is_kept and (has_dropout(self.encoder) or len(directions) > 1)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Keep token ids on the host if there is a guide, so that the guide can read the texts without a device
        synchronization.
        """
        return batch if self.guide is None else type(batch)(*map(keep_on_host, batch))


class HardNegativesObjective(ContrastiveObjective):
    """Base class of contrastive objectives with the InfoNCE loss and optional hard negatives."""

    settings: HardNegativesConfig

    def with_negatives(self, views: list[Ragged], negatives: Ragged | None) -> list[Ragged]:
        """Return the views, followed by the hard negatives if there are any.

        Raises:
            InputError: If hard negatives have a weight in the settings, but the data has none.
        """
        for key in ("hard_negative_weight", "hardness_strength"):
            if negatives is None and (weight := getattr(self.settings, key)):
                raise InputError(
                    key=f"model.{key}",
                    value=weight,
                    expected="0, because the data has no hard negatives",
                    hint="Set this weight to 0, or use data with a third column of hard negatives.",
                )
        return views if negatives is None else [*views, negatives]

    def loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> ContrastiveOutput:
        return info_nce(*vectors, **{**self.loss_keys(batch), **known})

    def loss_keys(self, batch: Any) -> dict[str, Any]:
        """Return the keyword arguments of the loss that are derived from the settings and the batch."""
        return {
            "temperature": self.settings.temperature,
            "hard_negative_weight": self.settings.hard_negative_weight,
            "hardness_strength": self.settings.hardness_strength,
            "groups": getattr(batch, "groups", None),
        }


def values_per_view(columns: Sequence[Column], views: int, otherwise: Column) -> list[Column]:
    """Return a list with one value for each view, given one value for each data column.

    The value of the last column also applies to further views. If there are no columns, ``otherwise`` is returned for
    each view.
    """
    return [columns[min(place, len(columns) - 1)] if columns else otherwise for place in range(views)]
