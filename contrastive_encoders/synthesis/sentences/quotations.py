"""Handle quotation marks inside texts that are quoted in a prompt.

A straight quotation mark ends the text that the model writes. In prompts, straight marks of the input are therefore
replaced by typographic marks, and in generated texts, typographic marks are replaced by straight marks if the input has
straight marks. A model that reads any quotation marks may write straight marks, so texts that it writes are checked for
truncation.
"""

import re

from contrastive_encoders.synthesis.task_spec import STOP

STRAIGHT = re.compile('["\uff02]')  # tokenizers that normalize (NFKC) turn the second one into the first
OPENING = re.compile(r"(?:^|(?<=[\s(\[{/\u2013\u2014-]))[\"\uff02](?=\S)")
NEWLINES = re.compile(r"(?<!\s)\s*[\r\n]\s*")  # the lookbehind keeps the time for long blanks linear
LEFT, RIGHT = "\u201c", "\u201d"
QUOTATION = re.compile("[\"\uff02\u201c-\u201f\u00ab\u00bb\u2018\u201a\u2039\u203a\u300c-\u300f]|(?<!\\w)'(?=\\w)")
CLOSING = {"\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u00bb": "\u00ab"}  # by opening mark
UNFINISHED = re.compile(r"[\s,:;(\[{\u2013\u2014]\Z")  # text before an inner mark that does not end a text


def has_marks(text: str | None) -> bool:
    """Return whether a text contains a straight quotation mark, which would end a generated text."""
    return text is not None and STRAIGHT.search(text) is not None


def has_quotation(text: str | None) -> bool:
    """Return whether a text contains any quotation mark, apart from apostrophes inside words."""
    return text is not None and QUOTATION.search(text) is not None


def quote_for_prompt(text: str) -> str:
    """Convert a text for quotation in a prompt: join its lines, and replace straight quotation marks by typographic
    ones.
    """
    return STRAIGHT.sub(RIGHT, OPENING.sub(LEFT, NEWLINES.sub(" ", text)))


def is_cut(text: str) -> bool:
    """Return whether a generated text was truncated at a quotation mark that belongs to the text."""
    return UNFINISHED.search(text) is not None or _is_open(text)


def _is_open(text: str) -> bool:
    """Return whether the text ends inside a quotation in English, German, or French quotation marks.

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
    """Replace typographic quotation marks in a generated text by straight ones, unless its source contains typographic
    ones.
    """
    if LEFT in source or RIGHT in source:
        return text
    return text.replace(LEFT, STOP).replace(RIGHT, STOP)
