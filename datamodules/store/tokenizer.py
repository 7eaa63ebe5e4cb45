"""Load tokenizers, and find their special tokens and word boundaries."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from transformers import AutoConfig, AutoTokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.io.hub import only_local
from contrastive_encoders.io.model_names import append_eos, apply_lower_case, mask_id, resolve_model_name

BYTE_LEVEL_SPACE = "Ġ"  # byte-level BPE's representation of the space before a word


def load_tokenizer(name: str, *, ends: bool = False) -> Any:
    """Load the tokenizer of a backbone, which may be a hub id, a directory, a run, or a GGUF file.

    With ``ends``, every text ends with an end-of-sequence token.

    Raises:
        InputError: The tokenizer does not exist.
    """
    tokenizer = _load(AutoTokenizer, "tokenizer", name)
    apply_lower_case(tokenizer, resolve_model_name(name).name)
    if ends:
        append_eos(tokenizer, name)
    return tokenizer


def load_config(name: str) -> Any:
    """Load the config of a backbone, which may be a hub id, a directory, a run, or a GGUF file.

    Raises:
        InputError: The config does not exist.
    """
    return _load(AutoConfig, "config", name)


def _load(factory: Any, what: str, name: str) -> Any:
    found = resolve_model_name(name)
    try:
        local = only_local(found.name, weights=False, gguf_file=found.gguf_file)
        # without trust_remote_code, transformers would prompt the user
        return factory.from_pretrained(found.name, trust_remote_code=False, local_files_only=local, **found.options)
    except (OSError, ValueError) as error:
        raise InputError(
            key="backbone",
            value=name,
            expected=f"a directory or hub id with a {what} that can be loaded ({str(error).splitlines()[0]})",
        ) from error


class SpecialTokens(NamedTuple):
    """Special tokens before and after a sequence, and the tokens that masking requires."""

    before: np.ndarray  # ids before a sequence, e.g. [CLS] or <s>
    after: np.ndarray  # ids after a sequence, e.g. [SEP] or </s>
    flags: np.ndarray  # (vocabulary,) bool: tokens that are never masked or predicted
    mask_id: int | None

    @property
    def number(self) -> int:
        return len(self.before) + len(self.after)


def special_tokens(tokenizer: Any, *, mask_token: str | None = None) -> SpecialTokens:
    """Determine the special tokens of a tokenizer by encoding a word with and without them. This works with every
    tokenizer.

    `mask_id` finds the mask token.

    Raises:
        InputError: One encoding does not contain the other, or ``mask_token`` is not a token of the tokenizer.
    """
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a", add_special_tokens=True)["input_ids"]
    places = [at for at in range(len(full) - len(plain) + 1) if full[at : at + len(plain)] == plain]
    if not plain or not places:
        raise InputError(
            key="backbone",
            value=type(tokenizer).__name__,
            expected=f"a tokenizer that encodes 'a' as {plain} between special tokens, but it returns {full}",
            hint="Choose another backbone.",
        )
    before, after = full[: places[0]], full[places[0] + len(plain) :]
    flags = np.zeros(len(tokenizer), dtype=bool)
    flags[tokenizer.all_special_ids] = True
    mask = mask_id(tokenizer, mask_token)
    if mask is not None:
        flags[mask] = True
    return SpecialTokens(np.array(before, np.int64), np.array(after, np.int64), flags, mask)


def word_start_table(tokenizer: Any) -> np.ndarray:
    """Return, for each token id, whether the token begins a word, (len(tokenizer),) bool. Added and special tokens
    begin a word.

    Punctuation marks begin a word in WordPiece vocabularies. Byte-level BPE and SentencePiece attach them to the
    preceding word, since there is no space between them.
    """
    begins = _word_start_rule(tokenizer)
    table = np.zeros(len(tokenizer), dtype=bool)
    for token, id in tokenizer.get_vocab().items():
        if id < len(table):
            table[id] = begins(token)
    table[list(tokenizer.all_special_ids) + list(tokenizer.added_tokens_decoder)] = True
    return table


def _word_start_rule(tokenizer: Any) -> Callable[[str], bool]:
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
        return lambda token: token.startswith("▁")  # SentencePiece BPE (Llama): the same as Metaspace
    raise InputError(
        key="backbone",
        value=type(tokenizer).__name__,
        expected=f"a WordPiece, byte-level, or SentencePiece tokenizer, whose word starts are known, but this is a "
        f"{model.get('type')} model with {sorted(parts) or 'no'} components",
        hint="Choose another backbone, or disable the option that works on complete words: data.align_to_words "
        "or data.deletion_ratio.",
    )


def _flat(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the components of a pre-tokenizer or decoder as a flat list, in which each sequence of components is
    replaced by its members.
    """
    if part is None:
        return []
    if part["type"] == "Sequence":
        inner = part.get("pretokenizers") or part.get("decoders") or []
        return [piece for nested in inner for piece in _flat(nested)]
    return [part]
