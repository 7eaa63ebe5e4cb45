"""Small backbones with random weights, and a tokenizer that is trained on the data (``backbone=tiny``)."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.model_configs import TinySizes
from contrastive_encoders.io.atomic import atomic_directory

TOKENIZER_TEXTS = 20_000  # maximum number of texts that the tokenizer is trained on
TOKENIZER_CHARACTERS = 20_000_000
LONG_WORD = re.compile(r"\S{10000}")  # the training time is quadratic in the length of a token before splitting
# In the order of their ids
ROBERTA_SPECIALS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
T5_SPECIALS = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
SENTINELS = [f"<extra_id_{number}>" for number in range(100)]


def write_tiny_masked_lm(folder: Path, texts: Iterator[str], *, seed: int, **named: Any) -> None:
    """Write a RoBERTa with random weights and the sizes ``named`` (see `TinySizes`) to a transformers folder,
    atomically.

    Its tokenizer is a byte-level BPE trained on ``texts``.

    Raises:
        InputError: If the sizes do not fit each other, or if there is no text.
    """
    sizes = checked(named)
    with atomic_directory(folder) as draft:
        bpe = train_bpe(texts, ROBERTA_SPECIALS, sizes)
        ids = bpe.get_vocab()
        ends = ("</s>", ids["</s>"]), ("<s>", ids["<s>"])
        bpe.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=True)
        tokenizer = as_tokenizer(bpe, ROBERTA_SPECIALS, sizes.max_length, cls_token="<s>", sep_token="</s>")
        tokenizer.save_pretrained(draft)
        config = RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=sizes.hidden_size,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.intermediate_size,
            max_position_embeddings=sizes.max_length + tokenizer.pad_token_id + 1,  # positions start after the pad id
            type_vocab_size=1,
            hidden_dropout_prob=sizes.dropout,
            attention_probs_dropout_prob=0.0,  # the fast attention kernel on a CPU does not support dropout
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            RobertaForMaskedLM(config).save_pretrained(draft)


def write_tiny_t5(folder: Path, texts: Iterator[str], *, seed: int, **named: Any) -> None:
    """Write a T5 with random weights to a folder, with an LM head and ``layers`` layers each in the encoder and the
    decoder.

    It has the special tokens of T5, and its 100 sentinel tokens are added to ``vocab_size``. The rest is as in
    `write_tiny_masked_lm`.
    """
    sizes = checked(named)
    with atomic_directory(folder) as draft:
        bpe = train_bpe(texts, T5_SPECIALS, sizes)
        bpe.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", bpe.get_vocab()["</s>"])]
        )
        tokenizer = as_tokenizer(bpe, T5_SPECIALS, sizes.max_length, extra_special_tokens=SENTINELS)
        tokenizer.save_pretrained(draft)
        start: dict[str, Any] = {"decoder_start_token_id": tokenizer.pad_token_id}
        config = T5Config(
            vocab_size=len(tokenizer),
            d_model=sizes.hidden_size,
            d_kv=sizes.hidden_size // sizes.heads,
            d_ff=sizes.intermediate_size,
            num_layers=sizes.layers,
            num_decoder_layers=sizes.layers,
            num_heads=sizes.heads,
            dropout_rate=sizes.dropout,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            **start,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            T5ForConditionalGeneration(config).save_pretrained(draft)


def checked(named: dict[str, Any]) -> TinySizes:
    sizes = TinySizes(**named)
    if sizes.hidden_size % sizes.heads:
        raise InputError(
            key="tiny.hidden_size", value=sizes.hidden_size, expected=f"a multiple of tiny.heads={sizes.heads}"
        )
    return sizes


def train_bpe(texts: Iterator[str], special: dict[str, str], sizes: TinySizes) -> Tokenizer:
    """Train a byte-level BPE tokenizer like the tokenizer of RoBERTa.

    A WordPiece trainer would not be deterministic, because it breaks ties by hash order.
    """
    sample = [LONG_WORD.sub(r"\g<0> ", text) for text in _sample(texts)]
    if not any(text.strip() for text in sample):
        raise InputError(key="backbone", value="tiny", expected="training data with text, to train a tokenizer on")
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.normalizer = normalizers.Sequence([normalizers.NFC()] + [normalizers.Lowercase()] * sizes.lowercase)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        sample,
        trainers.BpeTrainer(
            vocab_size=sizes.vocab_size,
            special_tokens=list(special.values()),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return bpe


def as_tokenizer(bpe: Tokenizer, special: dict[str, str], max_length: int, **others: Any) -> PreTrainedTokenizerFast:
    roles = {f"{role}_token": token for role, token in special.items()}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=max_length, **roles, **others)


def _sample(texts: Iterator[str]) -> Iterator[str]:
    """Yield the first texts, up to `TOKENIZER_TEXTS` texts and about `TOKENIZER_CHARACTERS` characters, on which a
    tokenizer is trained.
    """
    characters = 0
    for text in islice(texts, TOKENIZER_TEXTS):
        yield text
        characters += len(text)
        if characters > TOKENIZER_CHARACTERS:
            return


TINY_BACKBONES = {"masked_lm": write_tiny_masked_lm, "t5": write_tiny_t5}  # by `TrainedModule.tiny_backbone`
