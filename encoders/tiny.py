"""``backbone=tiny``: random weights and a tokenizer of the data at hand, written as an ordinary transformers folder."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from contracts import InputError

TOKENIZER_TEXTS = 20_000  # texts that the vocabulary is counted on
TOKENIZER_CHARACTERS = 20_000_000


def write_tiny_masked_lm(
    folder: Path,
    texts: Iterator[str],
    *,
    seed: int,
    vocab_size: int,
    hidden_size: int,
    layers: int,
    heads: int,
    intermediate_size: int,
    max_length: int,
    dropout: float,
    lowercase: bool,
) -> None:
    """A RoBERTa of the given sizes and a byte-level BPE trained on ``texts``; ``folder`` appears whole or not at all.

    Raises:
        InputError: the sizes do not fit each other, or there is no text.
    """
    if hidden_size % heads:
        raise InputError(f"tiny.hidden_size={hidden_size} does not split over tiny.heads={heads}; make it a multiple.")
    draft = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        tokenizer = train_bpe(texts, vocab_size=vocab_size, max_length=max_length, lowercase=lowercase)
        tokenizer.save_pretrained(draft)
        config = RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=intermediate_size,
            max_position_embeddings=max_length + tokenizer.pad_token_id + 1,  # positions start behind the pad id
            type_vocab_size=1,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=0.0,  # any would take the fast attention kernel of a CPU away
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            RobertaForMaskedLM(config).save_pretrained(draft)
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def train_bpe(texts: Iterator[str], *, vocab_size: int, max_length: int, lowercase: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as RoBERTa has it; a WordPiece trainer breaks ties by hash order, differently at every start."""
    special = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    sample = list(_some(texts))
    if not any(text.strip() for text in sample):
        raise InputError("backbone=tiny: the training data holds no text to train a tokenizer on.")
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.normalizer = normalizers.Sequence([normalizers.NFC()] + [normalizers.Lowercase()] * lowercase)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        sample,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(special.values()),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    ids = bpe.get_vocab()
    bpe.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]), add_prefix_space=True)
    roles = {f"{role}_token": token for role, token in special.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, model_max_length=max_length, cls_token="<s>", sep_token="</s>", **roles
    )


def _some(texts: Iterator[str]) -> Iterator[str]:
    """The first texts, up to a number of characters: a vocabulary changes little beyond."""
    characters = 0
    for text in islice(texts, TOKENIZER_TEXTS):
        yield text
        characters += len(text)
        if characters > TOKENIZER_CHARACTERS:
            return


TINY_BACKBONES = {"masked_lm": write_tiny_masked_lm}  # by the family that a model class names
