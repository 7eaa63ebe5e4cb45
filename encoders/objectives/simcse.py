"""SimCSE: contrastive loss on sentences encoded with two dropout masks, or on NLI pairs (Gao, Yao and Chen, EMNLP
2021).

In unsupervised training, the positive is the same sentence with another dropout mask. In supervised training, it is an
entailed text, and contradicting texts are hard negatives. Two columns without contradictions correspond to
multiple-negatives ranking.
"""

from torch import Tensor, nn

from contrastive_encoders.core import InputError, Ragged, SentenceBatch, TripletBatch
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.contrastive import HardNegativesObjective
from contrastive_encoders.encoders.dense import TanhHead
from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig


class SimCSE(HardNegativesObjective):
    """Contrastive objective with an optional MLP between the pooling and the loss.

    - ``mlp``: adds a linear layer and tanh. If it is part of the encoder, a layer after the backbone's pooling replaces
      it.
    - ``mlp_only_train``: true excludes the MLP from the encoder, and false includes it. null includes it only if the
      backbone is a plain transformer, so that an encoder keeps its structure.
    - ``attention_dropout``: dropout of the backbone's attention, if it differs from ``dropout``.
    - ``seed``: initializes the MLP.

    The weights of hard negatives are explained in `losses.contrastive.info_nce`.
    """

    objective = "simcse"
    consumes = (SentenceBatch, TripletBatch)
    default_pooling = "cls"

    settings: SimCSEConfig

    def __init__(self, settings: SimCSEConfig) -> None:
        without_mlp = {
            "cls_before_pooler": "excludes the MLP",
            "pooler_output": "uses the backbone's pooler layer instead",
        }
        if settings.mlp and not settings.mlp_only_train and (reason := without_mlp.get(settings.pooling or "")):
            value = "null" if settings.mlp_only_train is None else "false"
            raise InputError(
                key="model.pooling",
                value=settings.pooling,
                expected="a pooling other than cls_before_pooler and pooler_output, because "
                f"model.mlp_only_train={value} keeps the MLP in the encoder, and {settings.pooling} {reason}",
                hint="Set model.pooling=cls, or model.mlp_only_train=true.",
            )
        if settings.mlp and settings.mlp_only_train and settings.matryoshka:
            raise InputError(
                key="model.matryoshka",
                value=list(settings.matryoshka),
                expected="null, because the MLP between encoder and loss mixes all dimensions, so that prefixes of the "
                "embeddings would not be trained",
                hint="Set model.mlp=false, or model.mlp_only_train=false.",
            )
        super().__init__(settings)
        self.mlp: nn.Module = nn.Identity()
        if settings.mlp and settings.mlp_only_train:
            self.mlp = TanhHead(self.encoder.width, seed=settings.seed)
        elif settings.mlp and (settings.mlp_only_train is False or self.trainable.own.exported is None):
            self.encoder.head = self.encoder.head or TanhHead(self.encoder.width, seed=settings.seed)

    def views(self, batch: SentenceBatch | TripletBatch) -> list[Ragged]:
        """Return two views (sentences twice, or anchors and positives), followed by the hard negatives if the batch has
        any.
        """
        if isinstance(batch, SentenceBatch) and batch.damaged is not None:
            raise InputError(
                key="data.deletion_ratio",
                expected="null, because model=simcse encodes complete sentences",
                hint="Set data.deletion_ratio=null, or model=tsdae.",
            )
        if isinstance(batch, SentenceBatch):
            if self.training and not has_dropout(self.encoder):
                raise InputError(
                    key="model.dropout",
                    value=self.settings.dropout,
                    expected=f"a value above 0, because {self.settings.backbone} has no dropout, so that the two views "
                    "of a single sentence would be the same",
                    hint="Set model.dropout=0.1 (0.3 for a decoder that has only attention dropout), or use data with "
                    "two columns.",
                )
            views, negatives = [batch.sentences, batch.sentences], None
        else:
            views, negatives = [batch.anchors, batch.positives], batch.negatives
        return self.with_negatives(views, negatives)

    def project(self, vectors_ND: Tensor) -> Tensor:
        return self.mlp(vectors_ND)
