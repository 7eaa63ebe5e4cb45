"""Check that prose uses the usual terms: ``python -m tests.wording``. With ``all``, every unusual phrase is listed.

Prose is what Markdown pages contain outside code, the comments of configs, and the comments, docstrings, and messages
of Python files. The exit code is 1 if an area has more than `LIMIT` such phrases per 1,000 words. A phrase that is
right in its place may stay: the limit is above zero for that.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT = 3.0  # phrases per 1,000 words
PHRASES = {  # regular expression of a phrase -> what documentation in this field says
    r"wanted": "expected",
    r"[Ss]ays? [\w.]+=\S*": "Set KEY=VALUE",
    r"(?:is|are|was|were) said": "is set; is reported",
    r"nobody|somebody|[Ww]hoever": "name the actor",
    r"behind|in front of": "after, before",
    r"besides?": "next to; in addition to",
    r"lies?|stands?": "is; is stored in",
    r"makes? of": "output; embeddings of",
    r"so (?:many|much|long)": "a number; that long",
    r"likewise": "repeat what is meant",
    r"but for|for want of": "except; because X is missing",
    r"(?:goes|go|went|going) on": "resumes; continues",
    r"anew|once more": "again; from scratch",
    r"begun": "started",
    r"whole": "complete; entire",
    r"breaks? off|broke off": "is interrupted",
    r"at work": "running",
    r"thrown? away": "deleted",
    r"told (?:apart|from)|tells? apart": "distinguish; inconclusive",
    r"passed over": "skipped",
    r"length 1": "unit length",
    r"first weights": "initial weights",
    r"(?:is|are) none": "does not exist",
    r"(?:is|are) no(?! longer| more)": "is not a",
    r"of the hub|of (?:its|one's|your) own": "from the hub; custom",
    r"by itself": "automatically",
    r"at once": "immediately; together",
    r"^(?:Of|What|Whether|Those|The same|As|Around|Inside,)": "a docstring starts with a verb or a noun phrase",
}
PATTERNS = [(re.compile(rf"\b(?:{phrase})(?!\w)"), usual) for phrase, usual in PHRASES.items()]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each piece of prose, without code in backticks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        outside = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        for number, line in enumerate(outside.splitlines(), 1):
            yield number, re.sub(r"`[^`]*`", "", line)
    elif path.suffix == ".yaml":
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.search(r"(?:^|\s)#\s?(.*)", line):
                yield number, match[1]
    else:
        strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("# ")
            elif token.type in strings and " " in token.string:
                yield token.start[0], re.sub(r"`[^`]*`", "", token.string.lstrip("rfbRFB").strip("\"'"))


def area_of(name: str) -> str | None:
    """Return the area in which a file is counted; None for files without prose of this project."""
    if name == "tests/wording.py" or not (name.endswith((".py", ".md")) or name.startswith("configs/")):
        return None
    if name.endswith(".md"):
        return "docs"
    first = name.split("/")[0]
    return first if first in ("tests", "benchmarks", "configs") else "code"


def main(list_all: bool) -> int:
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    words = Counter[str]()
    phrases: dict[str, list[str]] = {}  # area -> place and usual term of each phrase
    for name in files:
        area = area_of(name)
        if area is None or (ROOT / name).is_symlink():
            continue
        for number, text in prose_of(ROOT / name):
            words[area] += len(text.split())
            for pattern, usual in PATTERNS:
                for match in pattern.finditer(text):
                    line = number + text.count("\n", 0, match.start())
                    phrases.setdefault(area, []).append(f"{name}:{line}: {match[0]!r}: {usual}")
    shares = {area: 1000 * len(phrases.get(area, [])) / words[area] for area in words}
    for area, share in shares.items():
        if list_all or share > LIMIT:
            print(*phrases.get(area, []), sep="\n")
    for area, share in shares.items():
        print(f"{area}: {len(phrases.get(area, []))} unusual phrases in {words[area]:,} words, {share:.1f} per 1,000")
    return int(any(share > LIMIT for share in shares.values()))


if __name__ == "__main__":
    sys.exit(main(list_all="all" in sys.argv[1:]))
