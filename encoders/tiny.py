"""``backbone=tiny``: random weights and a tokenizer of the data at hand, written as an ordinary transformers folder."""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

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
    """A BERT of the given sizes and a WordPiece tokenizer trained on ``texts``; ``folder`` appears whole or not at all.

    Raises:
        InputError: the sizes do not fit each other, or there is no text.
    """
    if hidden_size % heads:
        raise InputError(f"tiny.hidden_size={hidden_size} does not split over tiny.heads={heads}; make it a multiple.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tokenizer = train_wordpiece(texts, vocab_size=vocab_size, max_length=max_length, lowercase=lowercase)
        tokenizer.save_pretrained(draft)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=intermediate_size,
            max_position_embeddings=max_length,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            BertForMaskedLM(config).save_pretrained(draft)
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def train_wordpiece(
    texts: Iterator[str], *, vocab_size: int, max_length: int, lowercase: bool
) -> PreTrainedTokenizerFast:
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    sample = list(_some(texts))
    if not any(text.strip() for text in sample):
        raise InputError("backbone=tiny: the training data holds no text to train a tokenizer on.")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(special.values()), show_progress=False
    )
    pieces.train_from_iterator(sample, trainer)
    pieces.post_processor = processors.BertProcessing(
        ("[SEP]", pieces.token_to_id("[SEP]")), ("[CLS]", pieces.token_to_id("[CLS]"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        model_max_length=max_length,
        **{f"{role}_token": token for role, token in special.items()},
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
