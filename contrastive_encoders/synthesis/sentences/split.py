"""Split documents into sentences, and clean sentences.

A sentence ends at a sentence-final mark, including closing quotation marks and brackets after the mark, unless the next
character is a lowercase letter. Full stops of abbreviations, initials, and numbered lists do not end a
sentence. Chinese and Japanese marks need no space after them. A newline always ends a sentence, since paragraphs of web
text are lines.

The rules are simple and cheap on purpose: a web corpus has billions of sentences, and wrongly split sentences are
filtered later. Languages without sentence-final marks (Thai) need a dedicated splitter, whose output can be used with
``input_kind=sentences``.
"""

import re
import unicodedata
from collections.abc import Iterator

CLOSING = "\"'”’»)\\]}"
# One or more marks with closing characters after them, then a blank; or a mark that needs no blank. The lookbehind
# keeps the time for a long row of dots linear.
END = re.compile(rf"(?:(?<![.!?…])[.!?…]++|[।؟۔።])[{CLOSING}]*+(?=\s)|[。！？]+[{CLOSING}」』）]*")
OPENING = "\"'“‘«([{¿¡-–—"
# A name or number follows these, regardless of its case
NAME_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs mx dr prof st sen rep gov gen col lt capt sgt maj cmdr adm rev hon pres jr sr mt ft vs v "
    "fig figs eq eqs approx ca cf viz al e.g i.e u.s u.k u.n d.c a.k.a jan feb mar apr jun jul aug "
    "sep sept oct nov dec hr fr bzw z.b d.h u.a nr str bd abb m.e".split()
)
NUMBER_ABBREVIATIONS = frozenset("no nos vol sec ch p pp art".split())
LIST_NUMBER = re.compile(r"\s*[(\[]?\d{1,3}")  # "3." at the beginning numbers the text after it
LETTER = re.compile(r"[^\W\d_]")
INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphens, zero-width blanks, byte order marks
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


def split(document: str) -> Iterator[str]:
    """Yield the sentences of a document, in order and unchanged. Only whitespace between sentences is dropped."""
    for line in document.splitlines():
        begin = 0
        for mark in END.finditer(line):
            if _ends(line, begin, mark):
                yield line[begin : mark.end()].strip()
                begin = mark.end()
        if rest := line[begin:].strip():
            yield rest


def _ends(line: str, begin: int, mark: re.Match[str]) -> bool:
    follows = line[mark.end() :].lstrip().lstrip(OPENING)[:1]
    if not follows or mark[0][0] in "。！？":
        return True
    if follows.islower():
        return False
    if mark[0][0] != "." or mark[0].startswith(".."):
        return True
    before = line[begin : mark.start()]
    if LIST_NUMBER.fullmatch(before):
        return False
    word = before[before.rfind(" ") + 1 :].lstrip(OPENING)
    if len(word) == 1 and word.isupper() and word != "I":
        return False  # an initial
    word = word.lower()
    return word not in NAME_ABBREVIATIONS and not (follows.isdigit() and word in NUMBER_ABBREVIATIONS)


def clean(sentence: str) -> str:
    """Clean a sentence: one line, composed characters (NFC), single spaces, no invisible characters."""
    if not sentence.isascii():
        sentence = unicodedata.normalize("NFC", INVISIBLE.sub("", sentence))
    return " ".join(CONTROL.sub(" ", sentence).split())


def has_letters(sentence: str) -> bool:
    return LETTER.search(sentence) is not None
