"""Which token ids begin a word: what whole-word masking needs to know of a tokenizer."""

import json
from typing import Any

import numpy as np

from contracts import InputError

BYTE_LEVEL_SPACE = "Ġ"  # how byte-level BPE spells the space in front of a word


def word_start_table(tokenizer: Any) -> np.ndarray:
    """(len(tokenizer),) bool: whether the id begins a word. Added and special tokens do.

    A punctuation mark of a WordPiece vocabulary begins one; byte-level BPE and SentencePiece glue it to the word
    before, as they write no space there.
    """
    begins = _rule(tokenizer)
    vocabulary = tokenizer.get_vocab()
    table = np.zeros(len(tokenizer), dtype=bool)
    for token, id in vocabulary.items():
        if id < len(table):
            table[id] = begins(token)
    table[list(tokenizer.all_special_ids) + list(tokenizer.added_tokens_decoder)] = True
    return table


def _rule(tokenizer: Any) -> Any:
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {part["type"]: part for name in ("decoder", "pre_tokenizer") for part in _flat(state[name])}
    model = state["model"]
    if model.get("type") == "WordPiece" or "WordPiece" in parts:
        continuation = model.get("continuing_subword_prefix") or "##"
        return lambda token: not token.startswith(continuation)
    if "ByteLevel" in parts:
        return lambda token: token.startswith(BYTE_LEVEL_SPACE)
    if "Metaspace" in parts:
        space = parts["Metaspace"]["replacement"]
        return lambda token: token.startswith(space)
    if any(part["type"] == "Replace" and part.get("content") == " " for part in _flat(state["decoder"])):
        return lambda token: token.startswith("▁")  # SentencePiece BPE, as Llama's, spells out what Metaspace does
    raise InputError(
        f"{type(tokenizer).__name__}: cannot tell where its words begin: wanted a WordPiece, byte-level or "
        f"SentencePiece tokenizer, got a {model.get('type')} model with {sorted(parts) or 'no'} parts. Switch "
        "whole-word masking off."
    )


def _flat(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A pre-tokenizer or decoder, taken apart if it is a sequence."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        inner = part.get("pretokenizers") or part.get("decoders") or []
        return [piece for nested in inner for piece in _flat(nested)]
    return [part]
