"""Quotation marks inside of a text that stands between quotation marks in a prompt.

A straight mark ends what the model writes. So a prompt has typographic marks in place of those of its input, and what
the model writes gets straight ones again, as its input has them.
"""

import re

from synthesis.task_spec import STOP

STRAIGHT = re.compile('["\uff02]')  # the second one becomes the first in tokenizers that normalize (NFKC)
OPENING = re.compile(r"(?:^|(?<=[\s(\[{/\u2013\u2014-]))[\"\uff02](?=\S)")
NEWLINES = re.compile(r"\s*[\r\n]\s*")
LEFT, RIGHT = "\u201c", "\u201d"
UNFINISHED = re.compile(r"[\s,:;(\[{\u2013\u2014]\Z")  # what stands in front of an inner mark, and ends no text


def has_marks(text: str | None) -> bool:
    """Whether a text contains the mark that ends texts."""
    return text is not None and STRAIGHT.search(text) is not None


def in_prompt(text: str) -> str:
    """Return a text as it stands between quotation marks in a prompt: on one line, with typographic marks inside."""
    return STRAIGHT.sub(RIGHT, OPENING.sub(LEFT, NEWLINES.sub(" ", text)))


def is_cut(text: str) -> bool:
    """Whether a text ended at a mark that belongs inside of it."""
    return UNFINISHED.search(text) is not None or text.count(LEFT) > text.count(RIGHT)


def as_in(source: str, text: str) -> str:
    """Return a text with straight marks if its source has no typographic ones."""
    if LEFT in source or RIGHT in source:
        return text
    return text.replace(LEFT, STOP).replace(RIGHT, STOP)
