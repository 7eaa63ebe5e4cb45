"""Cross-encoder that is trained to distinguish relevant documents from hard negatives (Nogueira and Cho, 2019)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from contrastive_encoders.core import InputError, Ragged, ScoredPairBatch, StepOutput, TripletBatch
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.base_module import TrainedModule
from contrastive_encoders.encoders.cross_encoder import CrossEncoder, CrossEncoderOutput, load_cross_encoder
from contrastive_encoders.encoders.kernels.chunks import concatenate
from contrastive_encoders.encoders.lengths import length_to_train, usual_length
from contrastive_encoders.encoders.loading.backbones import check_vocabulary, load_tokenizer
from contrastive_encoders.encoders.loading.own_encoder import directory_of
from contrastive_encoders.encoders.loading.sentence_transformers_folder import stated_length
from contrastive_encoders.encoders.loading.trainable import TrainableBackbone
from contrastive_encoders.encoders.objective import negatives_unlike_positive
from contrastive_encoders.encoders.objectives.reranker_config import RerankerConfig
from contrastive_encoders.losses.reranking import binary_relevance, listwise


class Reranker(TrainedModule):
    """Objective that trains a cross-encoder.

    ``loss="binary"`` classifies each pair independently (`losses.reranking.binary_relevance`). ``loss="listwise"``
    compares the positive with its hard negatives (`losses.reranking.listwise`).
    """

    objective = "reranker"
    consumes = (TripletBatch, ScoredPairBatch)
    needs = "negatives that differ from their positive"
    remedy = "Replace the negatives that repeat their positive."
    product = "reranker"

    settings: RerankerConfig

    def __init__(self, settings: RerankerConfig) -> None:
        super().__init__(settings)
        trainable, backbone = TrainableBackbone(settings), settings.backbone
        transformer = load_cross_encoder(
            backbone, weights=trainable.adapter_base.base, seed=settings.seed, dropout=settings.dropout
        )
        tokenizer = load_tokenizer(backbone)
        check_vocabulary(transformer, tokenizer, backbone)
        trainable.prepare(transformer)
        length = usual_length(transformer.config, tokenizer, stated_length(directory_of(backbone)))
        self.cross_encoder = CrossEncoder(
            transformer,
            tokenizer,
            max_length=length_to_train(settings.max_length, length, transformer.config, backbone),
            token_budget=settings.token_budget,
            activation_checkpointing=settings.activation_checkpointing,
        ).train()
        for weight in self._head_weights():  # an adapter freezes all other weights
            weight.requires_grad_(True)

    @property
    def transformer(self) -> PreTrainedModel:
        return self.cross_encoder.transformer

    def _head_weights(self) -> list[nn.Parameter]:
        return [weight for layer in self.cross_encoder.head for weight in layer.parameters(recurse=False)]

    def special_learning_rates(self) -> dict[nn.Parameter, float]:
        rate = self.settings.head_lr
        return {} if rate is None else dict.fromkeys(self._head_weights(), rate)

    def check_batch(self, batch: Any) -> None:
        if isinstance(batch, ScoredPairBatch):
            if self.settings.loss != "binary":
                raise InputError(
                    key="model.loss",
                    value=self.settings.loss,
                    expected="binary for scored pairs, which have one document per query",
                    hint="Set model.loss=binary, or use triplets.",
                )
        elif batch.negatives is None:
            raise InputError(
                key="model",
                value="reranker",
                expected="data with hard negatives",
                hint="Mine them: contrastive-encoders mine-negatives encoder=sentence-transformers/all-MiniLM-L6-v2 "
                "input=PAIRS output=mined.jsonl num_negatives=4 range_min=5. Then set data=triplets "
                "data.path=mined.jsonl.",
            )
        elif batch.fillers is not None and batch.fillers.any():
            raise InputError(
                key="model",
                value="reranker",
                expected="data with the same number of negatives in each row",
                hint="Give each row the same number of negatives, or set model=pairs.",
            )

    def count_negatives(self, batch: Any) -> Tensor | None:
        """Return the number of hard negatives of each anchor, excluding copies of its positive."""
        if not isinstance(batch, TripletBatch) or batch.negatives is None:
            return None
        return negatives_unlike_positive(batch.positives, batch.negatives)

    def can_learn(self, batch: Any, num_negatives: Tensor | None) -> bool:
        if num_negatives is None or num_negatives.any() or self.settings.loss == "binary":
            return True
        return has_dropout(self.transformer)

    def training_step(self, batch: TripletBatch | ScoredPairBatch, batch_idx: int) -> StepOutput:
        self.check_batch(batch)
        if isinstance(batch, ScoredPairBatch):
            scored = self._score(batch.left, [batch.right])
            loss, metrics = binary_relevance(scored.logits_N, batch.scores), dict[str, Tensor]()
        else:
            assert batch.negatives is not None
            scored = self._score(batch.anchors, [batch.positives, batch.negatives])
            rows = len(batch.rows)
            negative_BL = scored.logits_N[rows:].unflatten(0, (rows, -1))
            logits_BL = torch.cat([scored.logits_N[:rows, None], negative_BL], dim=1)
            labels_BL = torch.zeros_like(logits_BL)
            labels_BL[:, 0] = 1
            if self.settings.loss == "binary":
                loss = binary_relevance(logits_BL.flatten(), labels_BL.flatten())
            else:
                loss = listwise(logits_BL, labels_BL)
            first_B = (logits_BL[:, :1] > logits_BL[:, 1:]).all(1)
            metrics = {"positive_first": first_B.float().mean().detach()}
        return self.step_output(loss, metrics, batch, scored.real_tokens, scored.padding_tokens)

    def _score(self, queries: Ragged, documents: Sequence[Ragged]) -> CrossEncoderOutput:
        rows = np.arange(len(queries.lengths))
        query_of = np.concatenate([np.repeat(rows, len(one.lengths) // len(rows)) for one in documents])
        return self.cross_encoder.score(self.cross_encoder.join(queries, concatenate(documents), query_of))

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str], **options: Any) -> Tensor:
        """Return the logits of query-document pairs, as `CrossEncoder.score_pairs` does."""
        return self.cross_encoder.score_pairs(queries, documents, **options)
