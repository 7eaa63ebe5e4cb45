"""The text form of SentEval's MR, CR, SUBJ, MPQA and SNLI: ``cat -v``, then the Penn Treebank tokenisation of 1995.

The rules are those of Robert MacIntyre's published sed script, in its order: each is one substitution over the whole
line, so that a later one sees what an earlier one made (``"conan "`` ends up between two opening quotes: ```` `` ````).
"""

import re
from collections.abc import Callable

_Rule = Callable[[str], str]


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
    """One line, tokens separated by single blanks; blanks at the end are gone as well."""
    for rule in _RULES:
        line = rule(line)
    return line.rstrip(" ")


def visible(line: bytes) -> str:
    """The line as ``cat -v`` prints it, in ASCII: byte 0xE9 is ``M-i``, 0x01 is ``^A``; tabs stay."""
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
