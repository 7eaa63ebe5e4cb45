"""A prompt behind every text, as token ids: one rule for training batches, `embed` and the exported folder.

The ids of the prompt stand between those of the text and the closing special tokens; a text that is too long loses its
own end, never the prompt. For all texts these are the ids of the joined string: a prompt of which that is not so with a
tokenizer, because it grows together with what stands before it, is refused.

A T5 that is read by its decoder must see one end of sequence: written out inside a text, ``</s>`` counts as the unknown
token ``<unk>``.
"""

import json
import re
from typing import Any

import numpy as np
import torch

from contracts import InputError, Ragged
from encoders.chunks import on_device

PROBES = ("a", "The end.", "7 (x)", "“Quoted”!", "naïve", "日本", "🙂", "x-", "a  ", "a\n", "")
ESCAPED_PROBES = ("{end}", "x{end}y {end}", "{end}{end} z")
_STRING = r'"(?:[^"\\]|\\.)*"'
_REPLACE = rf"(?: \| replace\({_STRING}, {_STRING}\))?"
_TEMPLATE = re.compile(
    rf"\{{\{{ {_STRING} \}}\}}\{{% for message in messages %\}}\{{\{{ message\['content'\](?P<escape>{_REPLACE}) \}}\}}"
    rf"\{{% endfor %\}}\{{\{{ (?P<prompt>{_STRING}) \}}\}}\{{\{{ {_STRING} \}}\}}"
)


class AppendedPrompt:
    """``appended(sequences)``: (N) sequences with special tokens -> the same with the prompt, cut at ``max_length``, or
    at fewer tokens where the call says so. ``escape_end`` turns ends of sequence inside texts into the unknown token.

    Raises:
        InputError: the prompt leaves no room for a text, or grows together with what stands before it.
    """

    def __init__(self, tokenizer: Any, prompt: str, max_length: int, *, escape_end: bool = False) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        self.end = int(tokenizer.eos_token_id) if escape_end else None
        self.unknown = tokenizer.unk_token_id
        self.keeps_end = tokenizer.truncation_side == "left"
        if escape_end and (self.unknown is None or self.unknown not in tokenizer.all_special_ids):
            raise InputError(
                f"pooling=first_decoder: {type(tokenizer).__name__} has no unknown token, which stands for an end of "
                "sequence that is written out inside a text. Take another backbone."
            )
        letter = self._plain("a")
        whole = self._ids("a")
        at = next(at for at in range(len(whole)) if whole[at : at + len(letter)] == letter)
        self.before, self.after = whole[:at], whole[at + len(letter) :]
        self.ids = self._plain("a" + prompt)[len(letter) :]
        self.room = self.room_in(max_length)
        self._check_seam()

    def room_in(self, max_length: int) -> int:
        """Return the tokens that are left for a text. Raises InputError where there are none."""
        others = len(self.before) + len(self.after)
        room = max_length - others - len(self.ids)
        if room < 1:
            raise InputError(
                f"max_length={max_length}: {len(self.ids)} tokens of the prompt {self.prompt!r} and {others} special "
                f"ones leave no room for a text. Wanted {max_length - room + 1} or more."
            )
        return room

    def __call__(self, sequences: Ragged, *, keep_prompt: bool = True, max_length: int | None = None) -> Ragged:
        """``keep_prompt=False`` cuts text and prompt as one string, as the published training code did."""
        before, prompt, after = len(self.before), len(self.ids), len(self.after)
        room = self.room_in(max_length) if max_length else self.room
        text_N = sequences.lengths - before - after
        kept_N = np.minimum(text_N, room if keep_prompt else room + prompt)
        shown_N = np.full_like(kept_N, prompt) if keep_prompt else np.minimum(prompt, room + prompt - kept_N)
        head_N = before + kept_N
        lengths_N = head_N + shown_N + after
        first_N = np.cumsum(sequences.lengths) - sequences.lengths
        skipped_N = text_N - kept_N if self.keeps_end else np.zeros_like(kept_N)
        # One gather out of the texts, the prompt and the closing tokens, laid one behind the other
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

    @property
    def template(self) -> str:
        """The same rule as a chat template, which is how a folder tells it to sentence-transformers."""
        opening, closing = ("".join(self.tokenizer.convert_ids_to_tokens(ids)) for ids in (self.before, self.after))
        return (
            f"{{{{ {_literal(opening)} }}}}{{% for message in messages %}}{{{{ message['content']{self._escape} }}}}"
            f"{{% endfor %}}{{{{ {_literal(self.prompt)} }}}}{{{{ {_literal(closing)} }}}}"
        )

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
        """Against the joined string, its special tokens written out, as the template renders it."""
        end = self.tokenizer.convert_ids_to_tokens(self.end) if self.end is not None else ""
        for text in (*PROBES, *(probe.format(end=end) for probe in ESCAPED_PROBES if end)):
            rendered = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], chat_template=self.template, tokenize=False
            )
            plain = [self.unknown if one == self.end else one for one in self._plain(text)]
            if self._plain(rendered) != [*self.before, *plain, *self.ids, *self.after]:
                advice = "a mark, such as a colon: this tokenizer joins blanks" if self.prompt[:1] == " " else "a blank"
                raise InputError(
                    f"the prompt {self.prompt!r}: behind a text such as {text!r} its tokens, or those of the text, are "
                    f"others than by themselves. Begin the prompt with {advice}."
                )


def _literal(text: str) -> str:
    """A string of the template language."""
    return json.dumps(text, ensure_ascii=False)


def read_template(template: str) -> tuple[str, bool] | None:
    """The prompt of a template of ours, and whether ends of sequence are escaped; None: it is another one."""
    found = _TEMPLATE.fullmatch(template.strip())
    return (json.loads(found["prompt"]), bool(found["escape"])) if found else None
