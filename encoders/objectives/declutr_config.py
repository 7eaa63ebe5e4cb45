"""Configuration keys of DeCLUTR. This module does not import torch."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import ContrastiveConfig, OptimizerConfig, ScheduleName


@dataclass(frozen=True, kw_only=True)
class DeCLUTRConfig(ContrastiveConfig):
    """Configuration of DeCLUTR (Giorgi et al. 2021): NT-Xent on spans of documents plus masked language modeling.

    Example:
        >>> from contrastive_encoders import DeCLUTRConfig
        >>> config = DeCLUTRConfig(temperature=0.1)
        >>> config.lr, config.weight_decay
        (5e-05, 0.1)
    """

    target: str = "contrastive_encoders.encoders.objectives.declutr.DeCLUTR"
    summary: ClassVar[str] = (
        "DeCLUTR (Giorgi et al., ACL 2021): spans of one document are near each other, beside masked language "
        "modeling. No labels."
    )

    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    weight_decay: float = new_default(OptimizerConfig, "weight_decay", 0.1)
    eps: float = new_default(OptimizerConfig, "eps", 1.0e-6)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "slanted_triangular")
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)

    contrastive_weight: float = config_field(1.0, "weight of the contrastive loss", ge=0)
    mlm_weight: float | None = config_field(
        None,
        "weight of the masked language modeling loss; null: 1 if the backbone can predict masked tokens, else 0",
        ge=0,
    )
    mask_anchors_for_contrast: bool = config_field(
        True,
        "whether the contrastive loss uses the masked anchors; false: it uses unmasked anchors, which requires "
        "encoding them in addition",
    )
    mask_token: str | None = config_field(
        None, 'token that replaces masked tokens; null: the tokenizer\'s mask token, or "_" if it has none'
    )
    reduction: Literal["mean", "sum"] = config_field(
        "mean",
        "reduction of the contrastive loss over the texts of a batch; mean: as in the published code; sum: "
        "as in the equation of the paper",
    )
    ddp_gradient: Literal["exact", "per_rank"] = config_field(
        "exact",
        "scale of the contrastive loss's gradient when training on several processes; exact: as on one process; "
        "per_rank: divided by the number of processes, as in the published code",
    )
    metric_loss: str | None = config_field(
        None, "class name of a loss in pytorch-metric-learning that replaces NT-Xent, e.g. SupConLoss; null: NT-Xent"
    )
    metric_miner: str | None = config_field(
        None, "class name of a miner in pytorch-metric-learning that is used with metric_loss; null: no miner"
    )
    metric_options: dict[str, Any] | None = config_field(
        None,
        "keyword arguments of metric_loss, e.g. {m: 0.4}; keyword arguments of metric_miner are nested as "
        "miner_options: {...}",
    )


MODELS = {"declutr": DeCLUTRConfig}
