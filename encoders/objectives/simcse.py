"""SimCSE: contrastive loss of two dropout masks of a sentence, or of NLI pairs (Gao, Yao and Chen, EMNLP 2021).

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
    """Contrastive objective with an optional MLP between pooling and loss.

    - ``mlp``: adds a linear layer and tanh. A layer after the pooling of the backbone replaces it.
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
        kept_out = {"cls_before_pooler": "leaves the MLP out of the encoder", "pooler_output": "has a layer of its own"}
        if settings.mlp and not settings.mlp_only_train and (why := kept_out.get(settings.pooling or "")):
            value = "null" if settings.mlp_only_train is None else "false"
            raise InputError(
                f"model.pooling={settings.pooling} {why}, and model.mlp_only_train={value} keeps the MLP in. Take "
                "model.pooling=cls, or model.mlp_only_train=true."
            )
        if settings.mlp and settings.mlp_only_train and settings.matryoshka:
            raise InputError(
                f"model.matryoshka={list(settings.matryoshka)}: the MLP is left out of the encoder, and mixes the "
                "numbers of its vectors before the loss, so that no prefix of them is trained. Set model.mlp=false, or "
                "model.mlp_only_train=false."
            )
        super().__init__(settings)
        self.mlp: nn.Module = nn.Identity()
        if settings.mlp and settings.mlp_only_train:
            self.mlp = TanhHead(self.encoder.width, seed=settings.seed)
        elif settings.mlp and (settings.mlp_only_train is False or self.trainable.own.exported is None):
            self.encoder.head = self.encoder.head or TanhHead(self.encoder.width, seed=settings.seed)

    def views(self, batch: SentenceBatch | TripletBatch) -> list[Ragged]:
        """Return two views of the batch, and its hard negatives if it has any."""
        if isinstance(batch, SentenceBatch) and batch.damaged is not None:
            raise InputError(
                "model=simcse reads sentences whole, and data.deletion takes words out of them: set "
                "data.deletion_ratio=null, or take model=tsdae."
            )
        if isinstance(batch, SentenceBatch):
            if self.training and not has_dropout(self.encoder):
                raise InputError(
                    f"model=simcse on single sentences needs dropout: without it both views of a sentence are the "
                    f"same, and backbone={self.settings.backbone} has none. Set model.dropout=0.1 (0.3 of a decoder, "
                    "whose attention alone has any), or take data of two columns."
                )
            views, negatives = [batch.sentences, batch.sentences], None
        else:
            views, negatives = [batch.anchors, batch.positives], batch.negatives
        return self.with_negatives(views, negatives)

    def project(self, vectors_ND: Tensor) -> Tensor:
        return self.mlp(vectors_ND)
