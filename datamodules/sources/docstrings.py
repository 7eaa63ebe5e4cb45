"""Docstrings of installed Python modules, read from source files without importing them."""

import ast
import gc
import hashlib
import logging
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SKIPPED_FOLDERS = {
    *("test", "tests", "testing", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"),
    *("_vendor", "_vendored", "vendor", "vendored", "third_party", "externals", "__pycache__"),
}
QUOTED = re.compile(rb'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
LEAST_SHARE = 0.28  # minimum share of docstrings in a file; other files are slow to parse and have little text

log = logging.getLogger(__name__)


class Module(NamedTuple):
    name: str  # dotted name
    docstrings: list[str]  # cleaned, in source order


def roots() -> list[Path]:
    """Return the folders that contain the installed packages and the standard library."""
    paths = sysconfig.get_paths()
    return [Path(path) for path in dict.fromkeys(paths[name] for name in ("purelib", "platlib", "stdlib"))]


def installed() -> list[str]:
    """Return ``name-version`` of every installed distribution, sorted. Reads folder names only."""
    folders = {root for root in roots() if root.is_dir()}
    return sorted({entry.stem for root in folders for entry in root.glob("*.*-info")})


def documented_modules(min_words: int) -> Iterator[Module]:
    """Yield the modules whose docstrings have at least ``min_words`` words in total, sorted by path, with packages
    first.
    """
    seen: set[bytes] = set()
    was_enabled = gc.isenabled()
    gc.disable()  # a syntax tree has millions of objects without cycles; collection would take half of the time
    try:
        for root in roots():
            for path in _python_files(root):
                source = path.read_bytes()
                digest = hashlib.sha256(source).digest()
                if digest in seen or not _promising(source, min_words):
                    continue
                seen.add(digest)
                docstrings = docstrings_of(source, str(path))
                if sum(len(text.split()) for text in docstrings) >= min_words:
                    yield Module(_module_name(path.relative_to(root)), docstrings)
    finally:
        if was_enabled:
            gc.enable()


def _python_files(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                yield Path(folder, name)


def _promising(source: bytes, min_words: int) -> bool:
    """Return whether the text between triple quotes is long enough, and a large enough fraction of the file.

    The check is cheap and permissive.
    """
    if len(source) < 4 * min_words:
        return False
    quoted = [first or second for first, second in QUOTED.findall(source)]
    long_enough = sum(len(text.split()) for text in quoted) >= min_words
    return long_enough and sum(map(len, quoted)) >= LEAST_SHARE * len(source)


def docstrings_of(source: bytes, path: str = "<source>") -> list[str]:
    """Return the nonempty docstrings of the module, its classes, and its functions, in source order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences in third-party code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:  # templates, Python 2 code, or null bytes
        log.debug("%s: not read (%s)", path, error)
        return []
    return [text for text in _walk(tree) if text.strip() and _encodable(text)]


def _walk(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a node and of all definitions inside it, by visiting statements only. Expressions contain
    no docstrings and are most of the tree.
    """
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text:
            yield text
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, field, None)
        if isinstance(children, list):
            for child in children:
                yield from _walk(child)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else True


def _module_name(relative: Path) -> str:
    parts = list(relative.with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)
