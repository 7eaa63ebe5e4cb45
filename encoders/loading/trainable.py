"""Preparation of a backbone for training: weights, adapters, frozen layers, and compiled layers."""

from functools import cached_property
from typing import Any

from torch import nn
from transformers import AutoConfig, PreTrainedModel

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.attention import ATTENTION, check_first_token, is_causal
from contrastive_encoders.encoders.dense import dense_layers
from contrastive_encoders.encoders.kernels.compiled_layers import compile_layers
from contrastive_encoders.encoders.kernels.unpadded import set_attn_implementation
from contrastive_encoders.encoders.layers import check_decay, freeze, keep_layers
from contrastive_encoders.encoders.lengths import length_to_train, own_length
from contrastive_encoders.encoders.loading.backbones import (
    check_vocabulary,
    from_pretrained,
    load_masked_lm,
    load_tokenizer,
)
from contrastive_encoders.encoders.loading.bert_pooler import shipped_pooler
from contrastive_encoders.encoders.loading.meta_weights import dtype_to_load, forget_weights
from contrastive_encoders.encoders.loading.own_encoder import OwnEncoder, directory_of, layers_to_keep, own_encoder
from contrastive_encoders.encoders.loading.sentence_transformers_folder import read_head, read_prompts, read_similarity
from contrastive_encoders.encoders.lora import AdapterBase, adapt, base_and_adapters, lora_enabled
from contrastive_encoders.encoders.model_configs import EncoderConfig, TrainableConfig
from contrastive_encoders.encoders.pooling import pooler_of
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder


class TrainableBackbone:
    """Loader of a backbone to train, which prepares its weights for training."""

    def __init__(self, settings: TrainableConfig) -> None:
        self.settings = settings

    @cached_property
    def adapter_base(self) -> AdapterBase:
        """Model from which the weights are loaded: the backbone, or, if this run keeps the adapters of the backbone,
        their base model.
        """
        return base_and_adapters(self.settings.backbone, self.settings.lora.keys)

    def prepare(self, transformer: PreTrainedModel, *beside: nn.Module) -> None:
        """Prepare a loaded transformer in place, as configured: inject an adapter, freeze layers, and compile layers.

        Args:
            transformer: Loaded transformer.
            *beside: Modules that share its weights.

        Raises:
            InputError: If a setting is not supported by this transformer.
        """
        lora = self.settings.lora.keys
        if lora_enabled(lora, self.settings.frozen_dtype):
            adapt(transformer, lora, self.adapter_base, self.settings.frozen_dtype, *beside)
        freeze(transformer, self.settings.freeze, self.settings.backbone)
        check_decay(transformer, self.settings.layer_decay)
        compile_layers(self.settings.compile, transformer, *beside)


class TrainableEncoder(TrainableBackbone):
    """Loader of an encoder to train: backbone, tokenizer, pooling, and the layers after the pooling.

    A backbone that is already an encoder keeps all of these unless the settings override them.

    Args:
        settings: Config of the model.
        default_pooling: Pooling of a plain transformer.
    """

    settings: EncoderConfig

    def __init__(self, settings: EncoderConfig, default_pooling: str = "mean") -> None:
        super().__init__(settings)
        self.default_pooling = default_pooling

    @cached_property
    def own(self) -> OwnEncoder:
        """Sentence encoder settings of the backbone, which are empty for a plain transformer."""
        return own_encoder(self.settings.backbone, self.settings.pooling)

    def load(self, *, lm_head: bool = False, prepared: bool = True, prompt: str | None = None) -> SentenceEncoder:
        """Load the encoder in training mode.

        Args:
            lm_head: Whether to load the masked-LM head.
            prepared: Whether to call `prepare`. If False, the caller does so after it has created the modules that
                share weights with the transformer.
            prompt: Prompt that is appended to every text.

        Raises:
            InputError: If the backbone cannot be loaded, or does not support a setting.
        """
        settings, exported = self.settings, self.own.exported
        directory = directory_of(settings.backbone)
        if settings.keep_layers is not None and (settings.lora.rank is not None or self.adapter_base.adapters):
            kept = settings.keep_layers if isinstance(settings.keep_layers, int) else [*settings.keep_layers]
            raise InputError(
                key="model.keep_layers",
                value=settings.keep_layers,
                expected="null if there is an adapter, which needs all layers of the backbone",
                hint="Set model.lora.rank=null. To train an adapter of a smaller backbone, first make this backbone: "
                f"run the command with model.keep_layers={str(kept).replace(' ', '')} model.lora.rank=null "
                "model.lr=0 max_steps=1, then set backbone to the directory of that run.",
            )
        if prompt is None and exported and exported.prompt_suffix:
            raise InputError(
                key="backbone",
                value=settings.backbone,
                expected=f"an encoder that appends no prompt to texts, but it appends {exported.prompt_suffix!r}",
                hint="Set model=gense, which trains with a prompt.",
            )
        pooler = pooler_of(settings.pooling or self.own.pooling(self.default_pooling), "model.pooling")
        head = shipped_pooler(settings.backbone) if pooler.is_shipped else None
        layers = layers_to_keep(exported, pooler, settings.backbone) if exported and head is None else ()
        transformer = load_masked_lm(
            settings.backbone,
            weights=self.adapter_base.base,
            lm_head=lm_head,
            decoder=pooler.decodes,
            attention=settings.attention,
            dropout=settings.dropout,
            attention_dropout=settings.attention_dropout,
            dtype=dtype_to_load(),
        )
        keep_layers(transformer, settings.keep_layers, settings.backbone)
        check_first_token(transformer, pooler, settings.backbone)
        tokenizer = load_tokenizer(settings.backbone, ends=bool(settings.append_eos))
        check_vocabulary(transformer, tokenizer, settings.backbone)
        set_attn_implementation(transformer, settings.attn_implementation, settings.backbone)
        forget_weights(transformer)
        if prepared:
            self.prepare(transformer)
        if layers:
            width = int(transformer.config.hidden_size)
            head = read_head(directory, layers, width, setting="backbone")
        length = own_length(exported, transformer.config, tokenizer)
        encoder = SentenceEncoder(
            transformer,
            tokenizer,
            pooling=pooler.name,
            head=head,
            max_length=length_to_train(settings.max_length, length, transformer.config, settings.backbone),
            token_budget=settings.token_budget,
            activation_checkpointing=settings.activation_checkpointing,
            attn_implementation=settings.attn_implementation,
            prompt_suffix=prompt or "",
            normalize=bool(exported and exported.normalize) if settings.normalize is None else settings.normalize,
            truncate=exported.truncate if exported else None,
            prompts=read_prompts(directory, "backbone"),
            similarity_fn_name=read_similarity(directory),
        )
        return encoder.train()  # from_pretrained returns a model in eval mode, and Lightning does not change the mode

    def changes(self, encoder: SentenceEncoder) -> dict[str, list[Any]]:
        """Return the settings in which the encoder to train differs from its backbone, before any training.

        The values are pairs of the backbone's and the encoder's setting. A plain transformer has no such settings, so
        the result is empty.
        """
        settings, own = self.settings, self.own.exported
        if self.own.unsupported_reason:
            return {"model.pooling": ["its own", encoder.pooling]}
        if own is None:
            return {}
        config: Any = from_pretrained(AutoConfig, settings.backbone)
        layers = len(dense_layers(encoder.head)) - len(own.layers)
        is_alike = encoder.pooler.computes_as(own.pooler) and layers == 0
        pooling = own.pooler.name if is_alike else encoder.pooling
        plain = load_tokenizer(settings.backbone)
        values: dict[str, list[Any]] = {
            "model.pooling": [own.pooler.name, pooling],
            "model.mlp_only_train": [True, layers <= 0],
            "model.normalize": [own.normalize, encoder.normalize],
            "model.max_length": [own_length(own, config, plain), encoder.max_length],
            "model.prompt_suffix": [own.prompt_suffix, encoder.prompt_suffix],
            "model.keep_layers": [config.num_hidden_layers, encoder.trunk.config.num_hidden_layers],
            "model.append_eos": [False, plain("a")["input_ids"] != encoder.tokenizer("a")["input_ids"]],
            "data.prompts": [_by_role(read_prompts(directory_of(settings.backbone))), _by_role(encoder.prompts)],
            "model.attention": [ATTENTION[not is_causal(one)] for one in (config, encoder.trunk.config)],
        }
        return {key: pair for key, pair in values.items() if pair[0] != pair[1]}


def _by_role(prompts: EncoderPrompts) -> dict[str, str]:
    """Return a mapping of the non-empty prompts by role: query, document, and default."""
    every = {"query": prompts.query, "document": prompts.document, "default": prompts.default}
    return {name: prompt for name, prompt in every.items() if prompt}
