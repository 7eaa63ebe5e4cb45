"""Quotation marks inside a text that is quoted in a prompt.

A straight mark ends the text that the model writes. Prompts therefore contain typographic marks instead of those of
their input, and written texts get straight marks again if their input has them. A model that reads any quotation marks
may write straight ones, so its texts are checked for truncation.
"""

import re

from contrastive_encoders.synthesis.task_spec import STOP

STRAIGHT = re.compile('["\uff02]')  # tokenizers that normalize (NFKC) turn the second one into the first
OPENING = re.compile(r"(?:^|(?<=[\s(\[{/\u2013\u2014-]))[\"\uff02](?=\S)")
NEWLINES = re.compile(r"\s*[\r\n]\s*")
LEFT, RIGHT = "\u201c", "\u201d"
QUOTATION = re.compile("[\"\uff02\u201c-\u201f\u00ab\u00bb\u2018\u201a\u2039\u203a\u300c-\u300f]|(?<!\\w)'(?=\\w)")
CLOSING = {"\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u00bb": "\u00ab"}  # by opening mark
UNFINISHED = re.compile(r"[\s,:;(\[{\u2013\u2014]\Z")  # text before an inner mark that does not end a text


def has_marks(text: str | None) -> bool:
    """Return whether a text contains the mark that ends texts."""
    return text is not None and STRAIGHT.search(text) is not None


def has_quotation(text: str | None) -> bool:
    """Return whether a text contains any quotation mark, apart from apostrophes inside words."""
    return text is not None and QUOTATION.search(text) is not None


def quote_for_prompt(text: str) -> str:
    """Return a text in its quoted form in a prompt: on one line, with typographic marks inside."""
    return STRAIGHT.sub(RIGHT, OPENING.sub(LEFT, NEWLINES.sub(" ", text)))


def is_cut(text: str) -> bool:
    """Return whether a text ended at a mark that is part of it."""
    return UNFINISHED.search(text) is not None or _is_open(text)


def _is_open(text: str) -> bool:
    """Return whether a quotation in English, German, or French marks is open at the end.

    French marks may point either way.
    """
    opened: list[str] = []
    for mark in text:
        if opened and mark in CLOSING[opened[-1]]:
            opened.pop()
        elif mark in CLOSING:
            opened.append(mark)
    return bool(opened)


def restore_marks(source: str, text: str) -> str:
    """Return a text with straight marks if its source has no typographic ones."""
    if LEFT in source or RIGHT in source:
        return text
    return text.replace(LEFT, STOP).replace(RIGHT, STOP)
