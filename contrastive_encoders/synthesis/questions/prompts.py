"""Prompts for writing and judging questions: a template for each style, and the prompt of the judge."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import Discrimination, Generation, Prompts
from contrastive_encoders.synthesis.questions.passages import CorpusPassage

HEADING, PASSAGE = "{heading}", "{passage}"
PLACEHOLDERS = re.compile(r"\{heading\}|\{passage\}")
KEYS = ("styles", "judge")
IGNORED_KEYS = ("file",)


class QuestionPrompts(NamedTuple):
    """Prompts for writing and judging questions.

    ``styles`` maps the name of a style to its template. ``judge`` contains the texts around passage and question, and
    the two answers.
    """

    styles: dict[str, str]
    judge: Prompts

    @property
    def examples(self) -> str:
        """Return the example paragraphs in all templates, which are the paragraphs without a placeholder for heading or
        passage.
        """
        paragraphs = (part for template in self.styles.values() for part in template.split("\n\n"))
        return "\n\n".join(dict.fromkeys(part for part in paragraphs if not PLACEHOLDERS.search(part)))

    def asked(self, style: str, passage: CorpusPassage, text: str) -> str:
        """Return the prompt for a passage. ``text`` is the text of the passage, which may be truncated.

        If the passage has no heading, lines with the placeholder for the heading are left out.
        """
        lines = self.styles[style].splitlines(keepends=True)
        template = "".join(line for line in lines if passage.heading or HEADING not in line)
        values = {HEADING: passage.heading, PASSAGE: text}
        return PLACEHOLDERS.sub(lambda found: values[found[0]], template)


def parse_question_prompts(found: Mapping[str, Any]) -> QuestionPrompts:
    """Parse and check the prompts of a config or a file.

    Raises:
        InputError: A key is missing, unknown, or not a string, or a template does not contain the placeholder for the
            passage exactly once.
    """
    location = str(found["file"]) if "file" in found else None
    if unknown := [key for key in found if key not in (*KEYS, *IGNORED_KEYS)]:
        expected = f"one of the keys {', '.join(KEYS)}"
        raise InputError(key=f"prompts.{unknown[0]}", expected=expected, location=location)
    styles, judge = found.get("styles"), found.get("judge")
    if not isinstance(styles, Mapping) or not styles:
        expected = "a mapping of style names to templates"
        raise InputError(key="prompts.styles", value=styles, expected=expected, location=location)
    for style, template in styles.items():
        if not isinstance(template, str) or template.count(PASSAGE) != 1:
            raise InputError(
                key=f"prompts.styles.{style}",
                value=template,
                expected=f"a string that contains {PASSAGE} once",
                location=location,
            )
    wanted = Discrimination._fields
    if (
        not isinstance(judge, Mapping)
        or set(judge) != set(wanted)
        or not all(isinstance(judge[key], str) for key in wanted)
    ):
        raise InputError(
            key="prompts.judge",
            expected=f"a mapping from the keys {', '.join(wanted)} to strings",
            location=location,
            hint="Quote yes and no, which YAML reads as true and false.",
        )
    nothing = Generation("", "")
    asked = Prompts(nothing, nothing, Discrimination(**{key: judge[key] for key in wanted}))
    return QuestionPrompts({str(style): str(text).rstrip(" ") for style, text in styles.items()}, asked)


def cut_texts(tokenizer: Any, texts: Sequence[str], max_tokens: int) -> list[tuple[str, bool]]:
    """Truncate texts to ``max_tokens`` tokens. Return each text, and whether it was truncated.

    If ``tokenizer`` is None, as for a server, words are counted instead of tokens.
    """
    if tokenizer is None:
        rows = [text.split() for text in texts]
        return [
            (" ".join(row[:max_tokens]), True) if len(row) > max_tokens else (text, False)
            for row, text in zip(rows, texts, strict=True)
        ]
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [
        (tokenizer.decode(ids[:max_tokens]).strip(), True) if len(ids) > max_tokens else (text, False)
        for ids, text in zip(rows, texts, strict=True)
    ]
