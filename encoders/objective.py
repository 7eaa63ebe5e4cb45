"""Base class of objectives. Its method ``views`` returns the sequences to encode, and ``loss`` compares their
embeddings.

A subclass defines these two methods, ``objective``, ``consumes``, and the config class. The base class implements
chunked batches, Matryoshka, adapters, checkpoints, evaluation, and export.
"""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from contrastive_encoders.core import InputError, Ragged, StepOutput
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.base_module import TrainedModule
from contrastive_encoders.encoders.dense import dense_layers
from contrastive_encoders.encoders.embedding_distillation import EmbeddingDistillationLoss
from contrastive_encoders.encoders.kernels.chunks import concatenate
from contrastive_encoders.encoders.loading.backbones import POST_POOLING_KEY, PROMPTS
from contrastive_encoders.encoders.loading.trainable import TrainableEncoder
from contrastive_encoders.encoders.lora import record_of, take_digests
from contrastive_encoders.encoders.model_configs import EmbeddingConfig, EncoderConfig
from contrastive_encoders.encoders.objectives.matryoshka import Prefix, over_prefixes, prefixes
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.encoders.sharding import broadcast_from_first_rank, shard
from contrastive_encoders.losses.duplicate_masking import text_hashes


class LossOutput(NamedTuple):
    """Loss and metrics of a batch on this rank, as scalars; their means over all ranks are the values for the global
    batch.
    """

    loss: Tensor
    metrics: dict[str, Tensor]  # detached


class StepResult(NamedTuple):
    """Loss, metrics, and numbers of tokens of a training step on this rank."""

    loss: Tensor
    metrics: dict[str, Tensor]
    real_tokens: int
    padding_tokens: int  # padding only


def negatives_unlike_positive(positives: Ragged, negatives: Ragged) -> Tensor:
    """Return, for each row, the number of hard negatives whose text differs from the positive of the row."""
    positives_B, negatives_N = (text_hashes(one.ids, one.lengths) for one in (positives, negatives))
    differs_BH: Tensor = negatives_N.view(len(positives_B), -1) != positives_B[:, None]
    return differs_BH.sum(1)


class Objective(TrainedModule):
    """Base class of objectives, which encode the sequences of a batch and compare their embeddings.

    A subclass defines `views` and `loss`, and these attributes.

    Attributes:
        objective: Name of the objective in results and model cards.
        consumes: Class of its batches, or a tuple of classes.
        settings: Config of the model; its type in the subclass is the config class.
        default_pooling: Pooling of a plain transformer.
        encoder: Encoder that is trained.

    Example:
        >>> import torch.nn.functional as F
        >>> from contrastive_encoders import Objective
        >>> from contrastive_encoders.core import ScoredPairBatch
        >>> class CosineRegression(Objective):
        ...     objective, consumes = "cosine_regression", ScoredPairBatch
        ...
        ...     def views(self, batch):
        ...         return [batch.left, batch.right]
        ...
        ...     def loss(self, vectors, batch):
        ...         return F.mse_loss(F.cosine_similarity(*vectors), batch.scores)
    """

    settings: EncoderConfig
    trainable: TrainableEncoder
    encoder: SentenceEncoder
    prefixes: list[Prefix]
    default_pooling: ClassVar[str] = "mean"  # of a plain transformer

    def __init__(self, settings: EncoderConfig) -> None:
        super().__init__(settings)
        self.teaching: EmbeddingDistillationLoss | None = (
            None  # set by `learn_from_teacher` when the width of the teacher's embeddings is known
        )
        self.trainable = TrainableEncoder(settings, self.default_pooling)
        self.encoder = self.make_encoder(self.trainable)
        self.hparams.pooling = self.encoder.pooling
        sizes, weights = (
            (settings.matryoshka, settings.matryoshka_weights)
            if isinstance(settings, EmbeddingConfig)
            else (None, None)
        )
        self.prefixes = prefixes(sizes, weights, self.encoder.width)

    def make_encoder(self, trainable: TrainableEncoder) -> SentenceEncoder:
        """Load the encoder to train."""
        return trainable.load()

    @property
    def transformer(self) -> PreTrainedModel:
        return self.encoder.transformer

    @property
    def changes(self) -> dict[str, list[Any]]:
        """Settings in which the encoder to train differs from its backbone, see `TrainableEncoder.changes`."""
        return self.trainable.changes(self.encoder)

    def shard(self, mesh: DeviceMesh) -> None:
        ours = self.encoder.attention_plans, record_of(self)  # both need the full weights, which rank 0 has
        plans, record = broadcast_from_first_rank(ours)
        self.strict_loading = record is None
        if record is not None:
            take_digests(self, record)
        self.encoder.attention_plans = plans
        self.encoder.sharded = (shard(self, self.transformer, mesh),)

    @property
    def sizes(self) -> list[int]:
        """Matryoshka sizes that are trained, except for the size of the full embedding."""
        return [one.size for one in self.prefixes if one.size < self.encoder.width]

    def views(self, batch: Any) -> Sequence[Ragged]:
        """Return the token sequences to encode: one item per view, such as the left texts and the right texts of pairs.

        Sequences include special tokens.

        Args:
            batch: Batch of this process, an instance of ``consumes``.

        Raises:
            InputError: If the batch lacks something that the settings require.
        """
        raise NotImplementedError

    def loss(self, vectors: Sequence[Tensor], batch: Any) -> Any:
        """Return the loss of a batch.

        Args:
            vectors: (sequences, width) float32 embeddings of each view, in the order of `views`.
            batch: Batch of this process.

        Returns:
            A scalar tensor, or a named tuple with the scalar ``loss`` and detached scalars, which are logged by name.
            The mean over processes must be the value of the global batch (see ``losses.gather``).
        """
        raise NotImplementedError

    def checked_views(self, batch: Any) -> Sequence[Ragged]:
        """Return the views of a batch, after checking their type.

        Raises:
            InputError: `views` returned something other than a list of token sequences.
        """
        found: Any = self.views(batch)
        if isinstance(found, list | tuple) and found and all(isinstance(one, Ragged) for one in found):
            return found
        raise self._return_error(
            "views", _type_description(found), "a list of token sequences of the batch, such as [batch.anchors]"
        )

    def _return_error(self, method: str, value: str, expected: str) -> InputError:
        """Return the error about the return value of a method that a user may have defined."""
        place = f"{type(self).__module__}.{type(self).__qualname__}.{method}"
        return InputError(location=place, value=value, expected=expected)

    def metrics(self, vectors: Sequence[Tensor], batch: Any) -> dict[str, Tensor]:
        """Return further scalars to log, as a mapping from names to detached tensors. The arguments are those of
        `loss`.
        """
        return {}

    def project(self, vectors_ND: Tensor) -> Tensor:
        """Map embeddings, (N, width), through layers that only the loss uses and that are not exported. The base class
        has none.
        """
        return vectors_ND

    def compute_loss(self, vectors: Sequence[Tensor], batch: Any, **known: Any) -> LossOutput:
        """Compute the loss and the metrics of a batch. If there are Matryoshka prefixes, the loss is the weighted sum
        of the losses on all prefixes of the embeddings.

        ``known`` are further keyword arguments of `loss`.
        """

        def compute(*cut: Tensor) -> LossOutput:
            found = self.loss(cut, batch, **known)
            metrics = found._asdict() if hasattr(found, "_asdict") else {"loss": found}
            scalars = {name: one for name, one in metrics.items() if one is not None}
            if "loss" not in scalars or not all(isinstance(one, Tensor) and one.ndim == 0 for one in scalars.values()):
                expected = "a scalar tensor, or a named tuple of scalar tensors, one of which is loss"
                raise self._return_error("loss", _type_description(found), expected)
            return LossOutput(scalars.pop("loss"), scalars)

        (loss, metrics), of_prefixes = over_prefixes(compute, self.prefixes, *vectors)
        return LossOutput(loss, {**metrics, **of_prefixes, **self.metrics(vectors, batch)})

    def compute(self, views: Sequence[Ragged], batch: Any) -> StepResult:
        """Encode the views and compute the loss. Override this method if the loss needs more than the embeddings."""
        sequences = concatenate(views)
        encoded = self.encoder.encode_sequences(sequences)
        compute = self.compute_encoded_loss(encoded.vectors, [len(view.lengths) for view in views], batch)
        return StepResult(*compute, int(sequences.lengths.sum()), encoded.padding_tokens)

    def compute_encoded_loss(self, vectors_ND: Tensor, lengths: Sequence[int], batch: Any) -> LossOutput:
        """Compute the loss from the embeddings of all views. ``lengths`` are the numbers of sequences of the views."""
        return self.compute_loss(self.project(vectors_ND).split(lengths), batch)

    def learn_from_teacher(self, width: int, seed: int) -> None:
        """Set up distillation from batches that contain a teacher's embeddings of the given width.

        This method must be called before the optimizer is created and a checkpoint is loaded. ``seed`` initializes the
        projections.
        """
        sizes = [one.size for one in self.prefixes] or [self.encoder.width]
        distance = getattr(self.settings, "distance", None) or "cosine"
        self.teaching = EmbeddingDistillationLoss(sizes, width, distance, normalize=self.encoder.normalize, seed=seed)

    def set_prompts(self, columns: Sequence[Collection[str]]) -> None:
        """Set the prompts with which the texts of each data column may start. Most objectives do not use them."""

    def training_step(self, batch: Any, batch_idx: int) -> StepOutput:
        computed = self.compute(self.checked_views(batch), batch)
        if torch.is_grad_enabled() and not computed.loss.requires_grad:
            expected = "a scalar tensor with a gradient, which detach() and no_grad() remove"
            raise self._return_error("loss", "a tensor without a gradient", expected)
        return self.step_output(computed.loss, computed.metrics, batch, computed.real_tokens, computed.padding_tokens)

    def all_equal(self, left: Ragged, right: Ragged) -> bool:
        """Return whether the two texts of every pair have equal embeddings, because the two texts are equal and there
        is no dropout.
        """
        left_N, right_N = (text_hashes(one.ids, one.lengths) for one in (left, right))
        return torch.equal(left_N, right_N) and not has_dropout(self.encoder)

    def check_batch(self, batch: Any) -> None:
        self.checked_views(batch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["max_length"] = self.encoder.max_length
        checkpoint[PROMPTS] = self.encoder.prompts.to_json()
        layers = [layer.options for layer in dense_layers(self.encoder.head)]
        truncate = {"truncate": self.encoder.truncate} if self.encoder.truncate else {}
        checkpoint[POST_POOLING_KEY] = {"normalize": self.encoder.normalize, "layers": layers, **truncate}


def _type_description(value: Any) -> str:
    """Describe the type of a value, with the shape of a tensor and the types of the items of a tuple or list."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if hasattr(value, "_asdict"):
        items = ", ".join(f"{name}: {_type_description(one)}" for name, one in value._asdict().items())
        return f"{type(value).__name__}({items})"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {', '.join(_type_description(one) for one in value) or 'nothing'}"
    return type(value).__name__
