"""Text normalization of SentEval's download script.

STS sets: Moses' ``tokenizer.perl -l en -no-escape``, here with the library sacremoses. MR, CR, SUBJ, MPQA, and SNLI:
``cat -v`` on bytes in Windows-1252 (SNLI has no such bytes), then the Penn Treebank tokenization of 1995. Its rules are
those of Robert MacIntyre's published sed script, in its order. Each rule is one substitution over the full line, so
that it applies to the output of earlier rules (``"conan "`` ends up between two opening quotes: ```` `` ````). TREC:
backticks and apostrophes deleted.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from contrastive_encoders.io.archives import InvalidArchiveError

_Rule = Callable[[str], str]

# The Perl script splits the full stop off the last word even if it would keep it inside a sentence ("in the U.S."
# becomes "in the u.s ."). The library does so only for words that are not abbreviations.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.\Z")


@cache
def _moses_tokenizer() -> Any:
    from sacremoses import MosesTokenizer  # reads its lists of abbreviations when imported

    return MosesTokenizer(lang="en")


def moses(text: str) -> str:
    """Tokenize a text as Moses does: tokens are separated by single spaces, in their original case."""
    return _LAST_STOP.sub(" .", _moses_tokenizer().tokenize(text, escape=False, return_str=True))


def moses_lower(text: str) -> str:
    return moses(text).lower()


def remove_quotes(text: str) -> str:
    return text.translate(str.maketrans("", "", "`'"))


def _rule(pattern: str, replacement: str) -> _Rule:
    compiled = re.compile(pattern)
    return lambda line: compiled.sub(replacement, line)


_RULES: tuple[_Rule, ...] = (
    _rule(r'^"', "`` "),
    _rule(r'([ (\[{<])"', r"\1 `` "),
    _rule(r"\.\.\.", " ... "),
    _rule(r"[,;:@#$%&]", r" \g<0> "),
    _rule(r"([^.])(\.)([\])}>\"']*)[ \t]*\Z", r"\1 \2\3 "),  # the final full stop only: inner ones may be abbreviations
    _rule(r"[?!]", r" \g<0> "),
    _rule(r"[\]\[(){}<>]", r" \g<0> "),
    _rule(r"--", " -- "),
    lambda line: f" {line} ",
    _rule(r'"', " '' "),
    _rule(r"([^'])' ", r"\1 ' "),
    _rule(r"'([sSmMdD]) ", r" '\1 "),
    *(_rule(f"{ending} ", f" {ending} ") for ending in ("'ll", "'re", "'ve", "n't", "'LL", "'RE", "'VE", "N'T")),
    _rule(r" ([Cc])annot ", r" \1an not "),
    _rule(r" ([Dd])'ye ", r" \1' ye "),
    _rule(r" ([Gg])imme ", r" \1im me "),
    _rule(r" ([Gg])onna ", r" \1on na "),
    _rule(r" ([Gg])otta ", r" \1ot ta "),
    _rule(r" ([Ll])emme ", r" \1em me "),
    _rule(r" ([Mm])ore'n ", r" \1ore 'n "),
    _rule(r" '([Tt])is ", r" '\1 is "),
    _rule(r" '([Tt])was ", r" '\1 was "),
    _rule(r" ([Ww])anna ", r" \1an na "),
    _rule(r" +", " "),
    lambda line: line.lstrip(" "),
)


def treebank(line: str) -> str:
    """Tokenize one line by Treebank rules. Tokens are separated by single spaces, and trailing spaces are removed."""
    for rule in _RULES:
        line = rule(line)
    return line.rstrip(" ")


def show_control_bytes(line: bytes) -> str:
    """Return the line as ``cat -v`` prints it, in ASCII: byte 0xE9 is ``M-i``, 0x01 is ``^A``. Tabs are unchanged."""
    return "".join(_VISIBLE[byte] for byte in line)


def _name(byte: int) -> str:
    if byte == ord("\t"):
        return "\t"
    if byte >= 128:
        low = byte - 128
        return "M-" + ("^I" if low == ord("\t") else "^J" if low == ord("\n") else _name(low))
    if byte < 32:
        return "^" + chr(byte + 64)
    return "^?" if byte == 127 else chr(byte)


_VISIBLE = [_name(byte) for byte in range(256)]

_UNDEFINED = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}  # undefined in Windows-1252; unchanged
_WINDOWS = [_UNDEFINED.get(byte) or bytes([byte]).decode("cp1252") for byte in range(256)]
_BYTE = {letter: byte for byte, letter in enumerate(_WINDOWS)}


def decode_windows(line: bytes) -> str:
    """Decode a line from Windows-1252, and strip leading and trailing whitespace."""
    return "".join(_WINDOWS[byte] for byte in line).strip()


def visible_treebank(text: str) -> str:
    """Encode a text in Windows-1252, convert the bytes as ``cat -v`` does, and tokenize the result with
    ``treebank``.
    """
    unknown = sorted({letter for letter in text if letter not in _BYTE})
    if unknown:
        raise InvalidArchiveError(
            f"{', '.join(map(repr, unknown[:5]))} in {text[:40]!r} cannot occur in a Windows-1252 file"
        )
    return treebank(show_control_bytes(bytes(_BYTE[letter] for letter in text)))
