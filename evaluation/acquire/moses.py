"""The text form of SentEval's STS sets: Moses' ``tokenizer.perl -l en -no-escape``, here by the library sacremoses."""

import re
from collections.abc import Callable

# The Perl script takes the last word's full stop off even where the same word inside a sentence would keep it
# ("in the U.S." ends in "u.s ."); the library does so only for words that are no abbreviation.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.\Z")


def moses_tokeniser() -> Callable[[str], str]:
    """A function from a text to its tokens, separated by single blanks, case kept."""
    from sacremoses import MosesTokenizer  # reads its lists of abbreviations when imported

    tokenise = MosesTokenizer(lang="en").tokenize

    def tokens(text: str) -> str:
        return _LAST_STOP.sub(" .", tokenise(text, escape=False, return_str=True))

    return tokens
