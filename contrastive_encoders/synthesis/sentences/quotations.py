"""Quotation marks inside of a text that stands between quotation marks in a prompt.

A straight mark ends what the model writes. So a prompt has typographic marks in place of those of its input, and what
the model writes gets straight ones again, as its input has them. A model that reads quotation marks of any kind may
write straight ones, so its texts are checked for a cut.
"""

import re

from contrastive_encoders.synthesis.task_spec import STOP

STRAIGHT = re.compile('["\uff02]')  # the second one becomes the first in tokenizers that normalize (NFKC)
OPENING = re.compile(r"(?:^|(?<=[\s(\[{/\u2013\u2014-]))[\"\uff02](?=\S)")
NEWLINES = re.compile(r"\s*[\r\n]\s*")
LEFT, RIGHT = "\u201c", "\u201d"
QUOTATION = re.compile("[\"\uff02\u201c-\u201f\u00ab\u00bb\u2018\u201a\u2039\u203a\u300c-\u300f]|(?<!\\w)'(?=\\w)")
CLOSING = {"\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u00bb": "\u00ab"}  # of each opening mark
UNFINISHED = re.compile(r"[\s,:;(\[{\u2013\u2014]\Z")  # what stands in front of an inner mark, and ends no text


def has_marks(text: str | None) -> bool:
    """Whether a text contains the mark that ends texts."""
    return text is not None and STRAIGHT.search(text) is not None


def has_quotation(text: str | None) -> bool:
    """Whether a text contains a quotation mark of any kind, apostrophes inside of words aside."""
    return text is not None and QUOTATION.search(text) is not None


def in_prompt(text: str) -> str:
    """Return a text as it stands between quotation marks in a prompt: on one line, with typographic marks inside."""
    return STRAIGHT.sub(RIGHT, OPENING.sub(LEFT, NEWLINES.sub(" ", text)))


def is_cut(text: str) -> bool:
    """Whether a text ended at a mark that belongs inside of it."""
    return UNFINISHED.search(text) is not None or _is_open(text)


def _is_open(text: str) -> bool:
    """Whether a quotation in English, German or French marks is open at the end; French ones may point either way."""
    opened: list[str] = []
    for mark in text:
        if opened and mark in CLOSING[opened[-1]]:
            opened.pop()
        elif mark in CLOSING:
            opened.append(mark)
    return bool(opened)


def as_in(source: str, text: str) -> str:
    """Return a text with straight marks if its source has no typographic ones."""
    if LEFT in source or RIGHT in source:
        return text
    return text.replace(LEFT, STOP).replace(RIGHT, STOP)
