"""Load a backbone to be trained: its weights, an adapter in them, frozen layers, weights in 16 bits, compiled layers.

The fields of the classes are keys under ``model``.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedModel

from encoders.attention import check_first_token
from encoders.backbones import check_vocabulary, load_masked_lm, load_tokenizer
from encoders.behind_pooling import folder_of, kept_behind, pooling_of
from encoders.compiled import compile_layers
from encoders.exported import read_head
from encoders.layers import check_decay, freeze
from encoders.lengths import length_to_train
from encoders.lora import Below, adapt, below, wanted
from encoders.pooling import POOLERS
from encoders.sentence_encoder import SentenceEncoder
from encoders.settings import LoraKeys
from encoders.shipped_pooler import shipped_pooler
from encoders.unpadded import set_attn_implementation

Kind = TypeVar("Kind")


def from_keys(kind: type[Kind], keys: Mapping[str, Any]) -> Kind:
    """Make a dataclass of those keys that are called like its fields."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: keys[name] for name in names if name in keys})


@dataclasses.dataclass(frozen=True)
class TrainableBackbone:
    """The weights of a backbone that are trained."""

    backbone: str
    freeze: str | None = None
    layer_decay: float | None = None
    lora: LoraKeys | None = None
    frozen_weights: str = "fp32"
    compile: bool | str = False

    @cached_property
    def below(self) -> Below:
        """The weights to load: the backbone, or what lies below the adapters that it has and this run keeps."""
        return below(self.backbone, self.lora)

    def prepare(self, transformer: PreTrainedModel, *beside: nn.Module) -> None:
        """Put an adapter into a loaded transformer where ``lora.rank`` asks for one, freeze layers and have layers
        compiled, as the keys say; in place. Modules ``beside`` it share its weights.

        Raises:
            InputError: a key does not go with this transformer.
        """
        if wanted(self.lora, self.frozen_weights):
            assert self.lora is not None
            adapt(transformer, self.lora, self.below, self.frozen_weights, *beside)
        freeze(transformer, self.freeze, self.backbone)
        check_decay(transformer, self.layer_decay)
        compile_layers(self.compile, transformer, *beside)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainableEncoder(TrainableBackbone):
    """The same of an encoder: backbone, tokenizer, pooling and the layers behind it."""

    pooling: str | None
    attn_implementation: str
    max_length: int | None
    token_budget: int | None
    recompute: str
    normalize: bool | None = None
    append_end: bool | None = None
    attention: str | None = None
    dropout: float | None = None
    attention_dropout: float | None = None
    prompt: str | None = None

    def load(self, *, lm_head: bool = False, prepared: bool = True) -> SentenceEncoder:
        """Return the encoder in training mode, with a masked-LM head if asked for. With ``prepared=False`` the caller
        calls `prepare`, once the modules beside the transformer are there.

        Raises:
            InputError: the backbone cannot be loaded, or a key does not go with it.
        """
        pooling = self.pooling or pooling_of(self.backbone)
        pooler = POOLERS.get(pooling)
        head: nn.Module | None = shipped_pooler(self.backbone) if pooler is not None and pooler.is_shipped else None
        behind = kept_behind(self.backbone, pooling)
        transformer = load_masked_lm(
            self.backbone,
            weights=self.below.base,
            lm_head=lm_head,
            decoder=pooler is not None and pooler.decodes,
            attention=self.attention,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )
        check_first_token(transformer, pooling, self.backbone)
        tokenizer = load_tokenizer(self.backbone, ends=bool(self.append_end))
        check_vocabulary(transformer, tokenizer, self.backbone)
        set_attn_implementation(transformer, self.attn_implementation, self.backbone)
        if prepared:
            self.prepare(transformer)
        if head is None and behind.layers:
            width = int(transformer.config.hidden_size)
            head = read_head(folder_of(self.backbone), behind.layers, width, setting="backbone")
        encoder = SentenceEncoder(
            transformer,
            tokenizer,
            pooling=pooling,
            head=head,
            max_length=length_to_train(self.max_length, transformer.config, tokenizer, self.backbone),
            token_budget=self.token_budget,
            recompute=self.recompute,
            attn_implementation=self.attn_implementation,
            prompt_suffix=self.prompt or "",
            normalize=behind.normalize if self.normalize is None else self.normalize,
        )
        return encoder.train()  # from_pretrained leaves dropout off, and Lightning trains in the mode it finds
