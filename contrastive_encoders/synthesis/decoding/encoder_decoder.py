"""Encoder-decoder generators: the encoder reads a prompt once, and each answer begins with the start token.

Tokens with different positions share a cache column during decoding (see `caches`). This is correct for decoders that
use only the distance between tokens, such as T5's relative bias. It would be wrong for learned absolute positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.generative import t5_problem
from contrastive_encoders.synthesis.decoding.caches import (
    CrossAttentionStates,
    EncoderDecoderRowCache,
    PrefillOutput,
    RowCache,
)
from contrastive_encoders.synthesis.decoding.generator import (
    UNLIMITED_CONTEXT,
    Generator,
    left_pad,
    load_parts,
    zero_padding,
)


@dataclass(frozen=True)
class EncoderDecoder(Generator):
    """T5-like model and tokenizer, loaded for decoding. Prompts have no length limit, since positions are relative."""

    writes_alone: ClassVar[bool] = False

    start: int = field(init=False)  # the decoder's first token

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "context", UNLIMITED_CONTEXT)
        config = self.model.config
        start = config.decoder_start_token_id
        object.__setattr__(self, "start", config.pad_token_id if start is None else start)

    def new_cache(self) -> EncoderDecoderRowCache:
        return EncoderDecoderRowCache()

    def decode(self, before: int, ids: Sequence[int]) -> str:
        """Convert the decoder's token ids to text. ``before`` is ignored, since the prompt is read by the encoder."""
        plain: dict[str, Any] = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return cast(str, self.tokenizer.decode(list(ids), **plain))

    def begin(self, ids: Sequence[list[int]]) -> PrefillOutput:
        lengths_R, ids_RT, real_RT = left_pad(ids, self.device)
        own, read = DynamicCache(), DynamicCache()
        logits_RV = self._first(ids_RT, real_RT, EncoderDecoderCache(own, read))
        started_R1 = torch.ones(len(ids), 1, dtype=torch.bool, device=self.device)
        return PrefillOutput(
            zero_padding(own, started_R1),
            started_R1[:, 0].long().cpu().numpy(),
            logits_RV,
            CrossAttentionStates(zero_padding(read, real_RT), lengths_R),
        )

    def first_logits(self, ids: Sequence[list[int]]) -> Tensor:
        """Return the logits of the decoder's first token for R prompts and V vocabulary entries, (R, V)."""
        _, ids_RT, real_RT = left_pad(ids, self.device)
        return self._first(ids_RT, real_RT, None)

    def step(self, last_R: Tensor, cache: RowCache) -> Tensor:
        assert isinstance(cache, EncoderDecoderRowCache)
        real_RS = cache.read.real()
        # The encoder states are in the cache; the model uses this tensor only for its shape
        states_RSD = torch.zeros(1, 1, 1, dtype=self.model.dtype, device=self.device).expand(*real_RS.shape, 1)
        outcome = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states_RSD),
            attention_mask=real_RS.long(),
            decoder_input_ids=last_R[:, None],
            decoder_attention_mask=cache.real(1).long(),
            past_key_values=EncoderDecoderCache(cache, cache.read.window()),
            use_cache=True,
        )
        logits: Tensor = outcome.logits[:, -1]
        return logits

    def _first(self, ids_RT: Tensor, real_RT: Tensor, cache: EncoderDecoderCache | None) -> Tensor:
        start_R1 = torch.full((len(ids_RT), 1), self.start, device=self.device)
        outcome = self.model(
            input_ids=ids_RT,
            attention_mask=real_RT.long(),
            decoder_input_ids=start_R1,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        logits: Tensor = outcome.logits[:, -1]
        return logits


def load_encoder_decoder(
    name: str, *, precision: str = "fp32", device: str = "auto", revision: str | None = None
) -> EncoderDecoder:
    """Load an encoder-decoder generator.

    Args:
        precision: fp32, bf16, or fp16.
        device: auto, cpu, cuda, or cuda:N.

    Raises:
        InputError: The model does not exist, or it is not a T5-like encoder-decoder with a language-model head.
    """
    model, tokenizer = load_parts(
        AutoModelForSeq2SeqLM, name, t5_problem, partial(_no_writer, name), precision, device, revision
    )
    return EncoderDecoder(name, model, tokenizer)


def _no_writer(name: str, why: str) -> InputError:
    return InputError(
        key="generator",
        value=name,
        expected=f"an encoder-decoder such as T5, Flan-T5, or mT5, or the run of a generator ({why})",
    )
