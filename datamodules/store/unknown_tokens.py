"""Detection of texts that do not fit a tokenizer: unknown tokens, and characters that are split into several tokens."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.datamodules.store.token_store import TokenStore

MAX_ROWS = 10_000  # rows to count; larger data is sampled at even distances
MAX_UNKNOWN = 0.5  # share of the tokens of a text
MAX_PIECES = 1.5  # tokens per character


class UnknownTokens(NamedTuple):
    """Counts of unknown tokens in ``rows`` rows, which were sampled from the ``of`` rows that a run uses.

    A row is affected if more than half of the tokens of one of its texts are unknown. If the tokenizer falls back to
    bytes, a row is affected if one of its texts has more than 1.5 tokens per character.
    """

    of: int
    rows: int
    tokens: int
    unknown: int
    rows_with_unknown: int
    rows_affected: int
    bytes: bool  # the tokenizer has no unknown tokens, since it falls back to bytes


def count_unknown(
    store: TokenStore, tokenizer: Any, rows: np.ndarray, of: int, prompts: Sequence[int]
) -> UnknownTokens:
    """Count the unknown tokens in the texts of the N rows of the token store with the numbers ``rows``.

    Args:
        of: Number of rows that a run uses, from which ``rows`` were sampled.
        prompts: Number of prompt tokens at the beginning of each text of a row.
    """
    characters = characters_of_tokens(tokenizer)
    unknown = tokenizer.unk_token_id
    tokens = found = with_unknown = affected = 0
    for row in rows.tolist():
        unknown_here, is_affected = 0, False
        for column in range(store.width):
            ids = store.text(row, column)[prompts[column] :]
            tokens += len(ids)
            if characters is not None:
                is_affected |= len(ids) > MAX_PIECES * int(characters[ids].sum())
            elif unknown is not None:
                number = int(np.count_nonzero(ids == unknown))
                unknown_here += number
                is_affected |= number > MAX_UNKNOWN * len(ids)
        found += unknown_here
        with_unknown += unknown_here > 0
        affected += is_affected
    return UnknownTokens(of, len(rows), tokens, found, with_unknown, affected, characters is not None)


def sample_rows(number: int) -> np.ndarray:
    """Return the indices of at most `MAX_ROWS` of ``number`` rows, evenly spaced, so that every run selects the same
    rows.
    """
    return np.unique(np.linspace(0, max(0, number - 1), min(number, MAX_ROWS)).astype(np.int64))


def characters_of_tokens(tokenizer: Any) -> np.ndarray | None:
    """Return the number of characters, not counting whitespace, that begin in each token.

    A character begins with a UTF-8 byte other than 10xxxxxx.

    Returns:
        Counts of shape (vocabulary,), or None if the tokenizer has unknown tokens because it does not fall back to
        bytes.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"].get("byte_fallback"):
        count = _characters_with_byte_tokens
    elif '"ByteLevel"' in json.dumps([state["pre_tokenizer"], state["normalizer"]]):
        count = _characters_in_byte_level
    else:
        return None
    table = np.zeros(len(tokenizer), np.int64)
    for token, id in tokenizer.get_vocab().items():
        if id < len(table):
            table[id] = count(token)
    for id, added in tokenizer.added_tokens_decoder.items():
        table[id] = len("".join(added.content.split()))
    return table


def _characters_with_byte_tokens(token: str) -> int:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        byte = int(token[3:5], 16)
        return int(byte & 0xC0 != 0x80 and not chr(byte).isspace())
    return len("".join(token.replace("▁", " ").split()))


def _characters_in_byte_level(token: str) -> int:
    """Count the characters that begin in a token of a byte-level tokenizer.

    Printable bytes represent themselves; the other bytes are represented by the characters from U+0100 on, in order.
    """
    found = bytes(_BYTES[character] for character in token if character in _BYTES)
    return sum(byte & 0xC0 != 0x80 and byte not in b" \t\n\r\v\f" for byte in found)


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}
