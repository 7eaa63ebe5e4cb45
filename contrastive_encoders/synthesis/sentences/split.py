"""Sentence splitting and cleaning.

A sentence ends at a mark that ends sentences, with the quotation marks and brackets that close behind it, where the
next one can begin: not with a small letter. Full stops of abbreviations, initials and numbered lists end none. Chinese
and Japanese marks need no blank behind them. A newline always ends a sentence, as paragraphs of web text are lines.

The rules are those that can be said in few words, and cheap: a web corpus has billions of sentences, and what is cut
wrongly is filtered later. Languages whose sentences have no mark (Thai) need a splitter of their own; give its output
as ``input_kind=sentences``.
"""

import re
import unicodedata
from collections.abc import Iterator

CLOSING = "\"'”’»)\\]}"
# A mark (or several) with what closes behind it, then a blank; or one that needs no blank
END = re.compile(rf"(?:[.!?…]+|[।؟۔።])[{CLOSING}]*(?=\s)|[。！？]+[{CLOSING}」』）]*")
OPENING = "\"'“‘«([{¿¡-–—"
# Of these a name or number follows, whatever its case
BEFORE_NAMES = frozenset(
    "mr mrs ms messrs mx dr prof st sen rep gov gen col lt capt sgt maj cmdr adm rev hon pres jr sr mt ft vs v "
    "fig figs eq eqs approx ca cf viz al e.g i.e u.s u.k u.n d.c a.k.a jan feb mar apr jun jul aug "
    "sep sept oct nov dec hr fr bzw z.b d.h u.a nr str bd abb m.e".split()
)
BEFORE_NUMBERS = frozenset("no nos vol sec ch p pp art".split())
NUMBERED = re.compile(r"\s*[(\[]?\d{1,3}")  # "3." at the beginning is the number of what follows
LETTER = re.compile(r"[^\W\d_]")
DROPPED = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphens, zero-width blanks, byte order marks
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


def split(document: str) -> Iterator[str]:
    """Sentences, in order, as they stand; together they hold every character but blanks."""
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
    if NUMBERED.fullmatch(before):
        return False
    word = before[before.rfind(" ") + 1 :].lstrip(OPENING)
    if len(word) == 1 and word.isupper() and word != "I":
        return False  # an initial
    word = word.lower()
    return word not in BEFORE_NAMES and not (follows.isdigit() and word in BEFORE_NUMBERS)


def clean(sentence: str) -> str:
    """Return the sentence as one line: composed characters (NFC), one blank between words, nothing invisible."""
    if not sentence.isascii():
        sentence = unicodedata.normalize("NFC", DROPPED.sub("", sentence))
    return " ".join(CONTROL.sub(" ", sentence).split())


def has_letters(sentence: str) -> bool:
    return LETTER.search(sentence) is not None
