"""Load any causal language model with its tokenizer, by hub id or folder, for decoding."""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer


class Generator(NamedTuple):
    """A language model ready to decode."""

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer
    device: torch.device
    context: int  # tokens, prompt and continuation together


def load_generator(
    name: str, *, precision: str = "fp32", device: str | torch.device | None = None, chat_template: bool = False
) -> Generator:
    """``precision``: fp32, bf16, fp16. ``device=None`` is the GPU where there is one.

    Raises:
        InputError: there is no such model, or it is none that continues text.
    """
    raise NotImplementedError
