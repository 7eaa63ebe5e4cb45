"""Configuration keys of the reranker, which is a cross-encoder. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import TrainableConfig


@dataclass(frozen=True, kw_only=True)
class RerankerConfig(TrainableConfig):
    """Configuration of a cross-encoder that reranks the documents that an encoder retrieves.

    Example:
        >>> from contrastive_encoders import RerankerConfig
        >>> RerankerConfig().loss
        'binary'
    """

    target: str = "contrastive_encoders.encoders.objectives.reranker.Reranker"

    loss: Literal["binary", "listwise"] = config_field(
        "binary",
        "loss function; binary: cross-entropy of each pair; listwise: softmax over a positive and its hard "
        "negatives (ListNet)",
    )
    head_lr: float | None = config_field(
        1.0e-3, "learning rate of the scoring head, whose initial weights are random; null: same as lr", ge=0
    )
    dropout: float | None = config_field(
        None, "dropout probability of the backbone during training; null: as in the model's config", ge=0, lt=1
    )
    max_length: int | None = config_field(
        None,
        "maximum length of a query and a document together, in tokens; null: the limit of the backbone, but at "
        "most 512",
        ge=1,
    )
    retriever: str | None = config_field(
        None,
        "encoder (directory, hub id, or run) that retrieves the documents to rerank in evaluation; null: no evaluation",
    )
    rerank_top: int = config_field(100, "number of top documents that are reranked for each query", ge=1)
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the scoring head")


MODELS = {"reranker": RerankerConfig}
