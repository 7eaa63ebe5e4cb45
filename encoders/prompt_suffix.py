"""Prompt suffix: a prompt that is appended to every text. Training, ``embed``, and exported folders append it
identically.

The ids of the prompt are inserted between those of the text and the closing special tokens. A text that is too long is
truncated; the prompt never is. The resulting ids always equal those of the concatenated string. A prompt whose tokens
merge with the preceding text under a tokenizer is rejected.

SentencePiece tokenizers such as those of Llama and Gemma merge adjacent spaces. With them, trailing spaces of a text
are removed. After a text that is empty or ends in a special token, the prompt is tokenized as after a word.

If the decoder of a T5 is pooled, its input must contain a single end-of-sequence token: ``</s>`` written out inside a
text is replaced by the unknown token ``<unk>``.
"""

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.encoders.kernels.chunks import on_device
from contrastive_encoders.encoders.pooling import Pooler

PROBES = ("a", "The end.", "7 (x)", "“Quoted”!", "naïve", "日本", "🙂", "x-", "a  ", " a", "a\n", " ", "")
ESCAPED_PROBES = ("{end}", "x{end}y {end}", "{end}{end} z")
BLANKS = " ▁"  # a space, and its SentencePiece symbol
_PLAIN = (
    "{{{{ {opening} }}}}{{% for message in messages %}}{{{{ message['content']{escape} }}}}{{% endfor %}}"
    "{{{{ {prompt} }}}}{{{{ {closing} }}}}"
)
_JOINING = (
    "{{% set text = (messages | map(attribute='content') | join).rstrip(' ▁') %}}{{{{ {opening} }}}}"
    "{{{{ {lead} if text and not text.startswith({starts}) else '' }}}}{{{{ text{escape} }}}}"
    "{{{{ {prompt} if text and not text.endswith({ends}) else {alone} }}}}{{{{ {closing} }}}}"
)
_STRING = r'"(?:[^"\\]|\\.)*"'
_STRINGS = rf"\((?:{_STRING}, )*\)"
_READ_AS = {"escape": rf"(?P<escape>(?: \| replace\({_STRING}, {_STRING}\))?)", "prompt": f"(?P<prompt>{_STRING})"}
_READ_AS |= dict.fromkeys(("opening", "closing", "lead", "alone"), _STRING)
_READ_AS |= dict.fromkeys(("starts", "ends"), _STRINGS)


def _read_by(form: str) -> re.Pattern[str]:
    marked = re.escape(form.format(**{name: f"<{name}>" for name in _READ_AS}))
    return re.compile(re.sub(r"<(\w+)>", lambda found: _READ_AS[found[1]], marked))


_TEMPLATES = [_read_by(form) for form in (_PLAIN, _JOINING)]


def prompt_ids_after_text(tokenizer: Any, prompt: str) -> list[int]:
    """Return the token ids that a prompt has if it follows a text."""
    letter, both = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "a" + prompt))
    return list(both[len(letter) :])


class PromptSuffix:
    """Callable that inserts a prompt between each text and its closing special tokens, and truncates the texts to fit.

    The input sequences already contain special tokens.

    Args:
        tokenizer: Tokenizer of the backbone.
        prompt: Text of the prompt.
        max_length: Maximum length in tokens, including prompt and special tokens. A call can set a lower one.
        escape_end: Whether to replace end-of-sequence tokens inside texts by the unknown token.

    Raises:
        InputError: If the prompt leaves no tokens for a text, or if its tokens merge with the preceding text.
    """

    def __init__(self, tokenizer: Any, prompt: str, max_length: int, *, escape_end: bool = False) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        self.end = int(tokenizer.eos_token_id) if escape_end else None
        self.unknown = tokenizer.unk_token_id
        self.keeps_end = tokenizer.truncation_side == "left"
        self.joins = False
        if escape_end and (self.unknown is None or self.unknown not in tokenizer.all_special_ids):
            raise InputError(
                key="pooling",
                value="first_decoder",
                expected=f"a tokenizer with an unknown token, which replaces </s> inside a text, but "
                f"{type(tokenizer).__name__} has none",
                hint="Choose another backbone.",
            )
        letter = self._plain("a")
        whole = self._ids("a")
        at = next(at for at in range(len(whole)) if whole[at : at + len(letter)] == letter)
        self.before, self.after = whole[:at], whole[at + len(letter) :]
        self.ids = prompt_ids_after_text(tokenizer, prompt)
        self.room = self.room_in(max_length)
        self._check_seam()

    def room_in(self, max_length: int) -> int:
        """Return the number of tokens that are left for a text if the prompt and the special tokens are included in
        ``max_length`` tokens.

        Raises:
            InputError: If no tokens are left.
        """
        others = len(self.before) + len(self.after)
        room = max_length - others - len(self.ids)
        if room < 1:
            raise InputError(
                key="max_length",
                value=max_length,
                expected=f"at least {max_length - room + 1} tokens, {len(self.ids)} of them for the prompt "
                f"{self.prompt!r} and {others} for special tokens",
            )
        return room

    def __call__(self, sequences: Ragged, *, keep_prompt: bool = True, max_length: int | None = None) -> Ragged:
        """Insert the prompt into each of N token sequences, and truncate the texts to fit.

        If ``keep_prompt`` is False, truncate text and prompt as one string, as the published training code did.
        """
        before, prompt, after = len(self.before), len(self.ids), len(self.after)
        room = self.room_in(max_length) if max_length else self.room
        text_N = sequences.lengths - before - after
        kept_N = np.minimum(text_N, room if keep_prompt else room + prompt)
        shown_N = np.full_like(kept_N, prompt) if keep_prompt else np.minimum(prompt, room + prompt - kept_N)
        head_N = before + kept_N
        lengths_N = head_N + shown_N + after
        first_N = np.cumsum(sequences.lengths) - sequences.lengths
        skipped_N = text_N - kept_N if self.keeps_end else np.zeros_like(kept_N)
        # A single gather from the concatenation of the texts, the prompt, and the closing tokens
        row_M = np.repeat(np.arange(len(lengths_N)), lengths_N)
        place_M = np.arange(len(row_M)) - (np.cumsum(lengths_N) - lengths_N)[row_M]
        behind_M = place_M - head_N[row_M]
        cut_M = np.where(behind_M < shown_N[row_M], 0, prompt - shown_N[row_M])
        text_M = first_N[row_M] + place_M + np.where(place_M < before, 0, skipped_N[row_M])
        index_M = np.where(behind_M < 0, text_M, len(sequences.ids) + behind_M + cut_M)
        ids = sequences.ids
        if self.end is not None:
            ids = ids.masked_fill(ids == self.end, self.unknown)
        pool = torch.cat([ids, on_device(np.array(self.ids + self.after, np.int64), ids.device)])
        return Ragged(pool[on_device(index_M, ids.device)], lengths_N)

    @functools.cached_property
    def blanks(self) -> list[int]:
        """Ids of all tokens that consist of one or more spaces."""
        return [place for token, place in self.tokenizer.get_vocab().items() if token and not token.strip(BLANKS)]

    def strip_text(self, text: str) -> str:
        """Return a text without its trailing spaces if the tokenizer would merge them with the prompt, otherwise
        unchanged.
        """
        return text.rstrip(BLANKS) if self.joins else text

    def strip_trailing_spaces(self, sequences: Ragged) -> Ragged:
        """Remove trailing spaces from token sequences, as `strip_text` does from texts.

        This runs on the host, because a device would require a synchronization.
        """
        if not self.joins:
            return sequences
        ends_N = sequences.lengths - len(self.after)
        row_M = np.repeat(np.arange(len(ends_N)), sequences.lengths)
        place_M = np.arange(len(row_M)) - (np.cumsum(sequences.lengths) - sequences.lengths)[row_M]
        solid_M = ~np.isin(sequences.ids.numpy(), self.blanks) & (place_M < ends_N[row_M])
        kept_N = np.full_like(ends_N, len(self.before))
        np.maximum.at(kept_N, row_M[solid_M], place_M[solid_M] + 1)
        kept_M = torch.from_numpy((place_M < kept_N[row_M]) | (place_M >= ends_N[row_M]))
        return Ragged(sequences.ids[kept_M], kept_N + len(self.after))

    @property
    def template(self) -> str:
        """Chat template for exported folders, with which sentence-transformers appends the same prompt tokens as this
        object.
        """
        opening, closing = ("".join(self.tokenizer.convert_ids_to_tokens(ids)) for ids in (self.before, self.after))
        parts = {"opening": _literal(opening), "prompt": _literal(self.prompt), "closing": _literal(closing)}
        if not self.joins:
            return _PLAIN.format(**parts, escape=self._escape)

        def read_as(wanted: list[int], text: str, *candidates: str) -> str:
            ids = [*self.before, *wanted]
            return next((one for one in candidates if self._plain(opening + one + text) == ids), candidates[0])

        lead = read_as(self._plain("a"), "a", "", " ")  # a space that the tokenizer adds only before the first word
        alone = read_as(self.ids, "", self.prompt, self.prompt.lstrip(" "))
        special = [str(token) for token in self.tokenizer.added_tokens_decoder.values()]
        starts = [*BLANKS, *special] if lead else []
        ends = [] if alone == self.prompt else special
        parts |= {"lead": _literal(lead), "alone": _literal(alone), "starts": _tuple(starts), "ends": _tuple(ends)}
        return _JOINING.format(**parts, escape=self._escape)

    @property
    def _escape(self) -> str:
        if self.end is None:
            return ""
        end, unknown = (self.tokenizer.convert_ids_to_tokens(one) for one in (self.end, self.unknown))
        return f" | replace({_literal(end)}, {_literal(unknown)})"

    def _plain(self, text: str) -> list[int]:
        return self._ids(text, add_special_tokens=False)

    def _ids(self, text: str, **options: Any) -> list[int]:
        return list(self.tokenizer(text, **options)["input_ids"])

    def _check_seam(self) -> None:
        """Check that text and prompt, tokenized separately, have the same token ids as their concatenation, which the
        chat template renders.
        """
        for self.joins in (False, True):
            text = self._misread()
            if text is None:
                return
        advice = "a punctuation mark, such as a colon" if self.prompt[:1] == " " else "a space"
        raise InputError(
            key="prompt",
            value=repr(self.prompt),
            expected=f"a prompt that does not merge with the tokens of the preceding text, but it merges with {text!r}",
            hint=f"Start the prompt with {advice}.",
        )

    def _misread(self) -> str | None:
        """Return a text whose token ids, followed by the prompt's ids, differ from the ids of the rendered template, or
        None if there is none.
        """
        end = self.tokenizer.convert_ids_to_tokens(self.end) if self.end is not None else ""
        template, after = self.template, len(self.after)
        for text in (*PROBES, *(probe.format(end=end) for probe in ESCAPED_PROBES if end)):
            rendered = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], chat_template=template, tokenize=False
            )
            whole = self._ids(text)
            stored = self.strip_trailing_spaces(Ragged(torch.tensor(whole), np.array([len(whole)]))).ids.tolist()
            for read in (stored, self._ids(self.strip_text(text))):
                plain = [self.unknown if one == self.end else one for one in read[len(self.before) : len(read) - after]]
                if self._plain(rendered) != [*self.before, *plain, *self.ids, *self.after]:
                    return text
        return None


def make_prompt_suffix(tokenizer: Any, prompt: str, max_length: int, pooler: Pooler) -> PromptSuffix | None:
    """Create the `PromptSuffix` of an encoder.

    Return None if there is neither a prompt nor a decoder that needs a single end-of-sequence token.
    """
    if not prompt and not pooler.decodes:
        return None
    return PromptSuffix(tokenizer, prompt, max_length, escape_end=pooler.decodes)


def _literal(text: str) -> str:
    """Return a string as a string literal for a Jinja template."""
    return json.dumps(text, ensure_ascii=False)


def _tuple(texts: Sequence[str]) -> str:
    return f"({''.join(f'{_literal(text)}, ' for text in texts)})"


def read_template(template: str) -> tuple[str, bool] | None:
    """Return the prompt that a template made by `PromptSuffix.template` contains, and whether the template replaces
    </s> inside texts.

    Return None for any other template.
    """
    found = next((found for form in _TEMPLATES if (found := form.fullmatch(template.strip()))), None)
    return (json.loads(found["prompt"]), bool(found["escape"])) if found else None
