"""Extract the visible text of HTML in the cells of a table.

Only the tags of HTML elements are removed. ``a < b``, ``x <- 3``, ``List<String>`` and ``<me@example.com>`` are text,
although a lenient parser such as `html.parser` would read some of them as tags.
"""

import html
import re

# Elements that begin neither a new word nor a new line.
INLINE = """a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q s samp small span
strike strong sub sup time tt u var wbr o:p""".split()
# separated from adjacent text by a space
WORDS = "audio button canvas iframe input label object select svg td textarea th video".split()
LINES = """address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt fieldset
figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html legend li link main menu meta nav noscript ol
optgroup option p picture pre section source summary table tbody template tfoot thead title tr ul""".split()
BOOLEAN = """allowfullscreen async autofocus autoplay checked controls default defer disabled hidden loop multiple muted
nowrap noshade novalidate open readonly required reversed selected""".split()  # attributes without a value

_VALUE = r"""[^\s"'<>/=]++\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>`]++)"""
_FLAG = rf"(?:(?i:{'|'.join(BOOLEAN)})|\w++(?:-\w++)++)(?=[\s/>])"
_END = rf"""(?:(?:[\s/]++|(?<=["']))(?:{_VALUE}|{_FLAG}))*+[\s/]*+>"""
_NAMES = "|".join(sorted((name for one in (INLINE, WORDS, LINES) for name in one), key=len, reverse=True))
# A name is all lowercase or all uppercase: <Object> is a Java type.
_TAG = rf"</?+(?P<name>{_NAMES}|{_NAMES.upper()})(?=[\s/>]){_END}"
TAG = re.compile(_TAG)
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
HIDDEN = (  # begin and end
    (re.compile("<!--"), re.compile("-->")),
    (re.compile(r"<!(?i:doctype)\b"), re.compile(">")),
    (re.compile(rf"<(?i:script)(?=[\s/>]){_END}"), re.compile(r"</(?i:script)\s*+>")),
    (re.compile(rf"<(?i:style)(?=[\s/>]){_END}"), re.compile(r"</(?i:style)\s*+>")),
)


def has_tags(text: str) -> bool:
    """Return whether a text contains the tag of an HTML element."""
    return "<" in text and TAG.search(text) is not None


def visible_text(text: str) -> str:
    """Return the visible text of HTML: without tags, comments, scripts, and styles, and with entities decoded.

    A block is a line. Whitespace is kept if the text has no tags.
    """
    seen = text
    for begin, end in HIDDEN if "<" in text else ():
        seen = _remove_sections(seen, begin, end)
    if seen != text or has_tags(text):
        pieces = TAG.split(" ".join(seen.split()))  # texts and tag names alternate
        pieces[1::2] = [_separator(name.lower()) for name in pieces[1::2]]
        lines = (" ".join(_decode_entities(line).split()) for line in "".join(pieces).split("\n"))
        return "\n".join(line for line in lines if line)
    return _decode_entities(text)


def _remove_sections(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> str:
    kept, place = list[str](), 0
    while (first := begin.search(text, place)) and (last := end.search(text, first.end())):
        kept.append(text[place : first.start()])
        place = last.end()
    return "".join([*kept, text[place:]])


def _separator(name: str) -> str:
    return "" if name in INLINE else " " if name in WORDS else "\n"


def _decode_entities(text: str) -> str:
    """Decode HTML entities that end with a semicolon. Others are kept, since ``?a=1&copy=2`` is part of a URL."""
    return ENTITY.sub(lambda found: html.unescape(found[0]).replace("\xa0", " "), text) if "&" in text else text
