"""A backbone prepared for training: weights, adapters, frozen layers, compiled layers."""

from functools import cached_property

from torch import nn
from transformers import PreTrainedModel

from contracts import InputError
from encoders.attention import check_first_token
from encoders.kernels.compiled_layers import compile_layers
from encoders.kernels.unpadded import set_attn_implementation
from encoders.layers import check_decay, freeze, keep_layers
from encoders.lengths import length_to_train
from encoders.loading.absent_weights import dtype_to_load, forget_weights
from encoders.loading.backbones import check_vocabulary, load_masked_lm, load_tokenizer
from encoders.loading.bert_pooler import shipped_pooler
from encoders.loading.pooling_modules import folder_of, kept_behind, pooling_of
from encoders.loading.sentence_transformers_folder import read_head, read_prompts, read_similarity
from encoders.lora import Below, adapt, below, wanted
from encoders.pooling import POOLERS
from encoders.sentence_encoder import SentenceEncoder
from encoders.settings import Trained, TrainedEncoder


class TrainableBackbone:
    """The weights of a backbone that are trained."""

    def __init__(self, settings: Trained) -> None:
        self.settings = settings

    @cached_property
    def below(self) -> Below:
        """The weights to load: the backbone, or what lies below the adapters that it has and this run keeps."""
        return below(self.settings.backbone, self.settings.lora.keys)

    def prepare(self, transformer: PreTrainedModel, *beside: nn.Module) -> None:
        """Put an adapter into a loaded transformer where ``lora.rank`` asks for one, freeze layers and have layers
        compiled, as the keys say; in place. Modules ``beside`` it share its weights.

        Raises:
            InputError: a key does not go with this transformer.
        """
        lora = self.settings.lora.keys
        if wanted(lora, self.settings.frozen_weights):
            adapt(transformer, lora, self.below, self.settings.frozen_weights, *beside)
        freeze(transformer, self.settings.freeze, self.settings.backbone)
        check_decay(transformer, self.settings.layer_decay)
        compile_layers(self.settings.compile, transformer, *beside)


class TrainableEncoder(TrainableBackbone):
    """The same of an encoder: backbone, tokenizer, pooling and the layers behind it."""

    settings: TrainedEncoder

    def load(self, *, lm_head: bool = False, prepared: bool = True, prompt: str = "") -> SentenceEncoder:
        """Return the encoder in training mode, with a masked-LM head if asked for, and a ``prompt`` behind every
        text. With ``prepared=False`` the caller calls `prepare`, once the modules beside the transformer are there.

        Raises:
            InputError: the backbone cannot be loaded, or a key does not go with it.
        """
        own = self.settings
        if own.layers is not None and (own.lora.rank is not None or self.below.adapters):
            raise InputError(
                "model.layers: an adapter is kept for a whole backbone, and this one loses layers. Train without "
                "model.lora.rank, or train a run without a step first and take its folder as the backbone."
            )
        pooling = own.pooling or pooling_of(own.backbone)
        pooler = POOLERS.get(pooling)
        head: nn.Module | None = shipped_pooler(own.backbone) if pooler is not None and pooler.is_shipped else None
        behind = kept_behind(own.backbone, pooling)
        transformer = load_masked_lm(
            own.backbone,
            weights=self.below.base,
            lm_head=lm_head,
            decoder=pooler is not None and pooler.decodes,
            attention=own.attention,
            dropout=own.dropout,
            attention_dropout=own.attention_dropout,
            dtype=dtype_to_load(),
        )
        keep_layers(transformer, own.layers, own.backbone)
        check_first_token(transformer, pooling, own.backbone)
        tokenizer = load_tokenizer(own.backbone, ends=bool(own.append_end))
        check_vocabulary(transformer, tokenizer, own.backbone)
        set_attn_implementation(transformer, own.attn_implementation, own.backbone)
        forget_weights(transformer)
        if prepared:
            self.prepare(transformer)
        if head is None and behind.layers:
            width = int(transformer.config.hidden_size)
            head = read_head(folder_of(own.backbone), behind.layers, width, setting="backbone")
        encoder = SentenceEncoder(
            transformer,
            tokenizer,
            pooling=pooling,
            head=head,
            max_length=length_to_train(own.max_length, transformer.config, tokenizer, own.backbone),
            token_budget=own.token_budget,
            recompute=own.recompute,
            attn_implementation=own.attn_implementation,
            prompt_suffix=prompt,
            normalize=behind.normalize if own.normalize is None else own.normalize,
            prompts=read_prompts(folder_of(own.backbone), "backbone"),
            similarity_fn_name=read_similarity(folder_of(own.backbone)),
        )
        return encoder.train()  # from_pretrained leaves dropout off, and Lightning trains in the mode it finds
