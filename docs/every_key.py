"""The page of every key: names, defaults and meanings as they stand in ``configs/``, comments included.

``make docs`` writes it as ``keys.md`` beside the other pages. Nothing of it is written by hand.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
COMMANDS = {  # heading -> files and folders of files, in the order of the page
    "Train": ("train.yaml", "model", "model_keys", "data", "trainer", "logger", "experiment"),
    "Make data": ("synthesis.yaml", "recipe", "recipe_keys", "mine.yaml"),
    "Evaluate": ("evaluation.yaml", "task"),
    "Compare": ("comparison.yaml", "race", "sweeps", "preview.yaml"),
    "Export": ("export.yaml", "export.embed.yaml"),
}
# A file of these is a recipe of other files' keys: what it is for is said, its values are one click away in configs/
RECIPES = ("experiment", "race", "sweeps")
SHARED = ("model_keys", "recipe_keys")  # by files of a group, and no choices themselves
TASK = "task"  # keys of a task in a YAML file of the reader's
NOT_KEYS = ("_target_", "defaults", "hydra")
HEADER = """# Every key

This page is made from the comments in `configs/`. A key is set by `KEY=VALUE` on the command line.

"that of `seed`" means that a key follows another one until it is set itself.
"""


class Key(NamedTuple):
    """A row of a table: dotted name, default as it is written, what the comment beside it says."""

    name: str
    default: str
    meaning: str


def page() -> str:
    """Return the page in Markdown."""
    parts = [HEADER]
    for heading, places in COMMANDS.items():
        parts.append(f"## {heading}\n")
        for place in places:
            path = CONFIGS / place
            if not path.exists():
                continue
            if place in RECIPES:
                parts += [f"### {place}=\n", _table("name", *((one.stem, _about(one)) for one in _files(path)))]
            elif path.is_dir():
                parts += [_section(one, place) for one in _files(path)]
            else:
                parts.append(_section(path, ""))
    return "\n".join(parts)


def keys_of(path: Path) -> list[Key | str]:
    """Return what a file holds, from top to bottom: its keys by their full names, and as texts the comments that stand
    on lines of their own."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    root = yaml.compose(source)
    found: list[tuple[int, Key | str]] = []
    if isinstance(root, yaml.MappingNode):
        of_a_group = path.parent not in (CONFIGS, CONFIGS / TASK) and "@package _global_" not in source
        found += _keys(root, f"{path.parent.name}." if of_a_group else "", lines, source)
    return [one for _, one in sorted([*found, *_comments(lines)], key=lambda pair: pair[0])]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _section(path: Path, group: str) -> str:
    is_choice = group and group not in (*SHARED, TASK)
    title = f"{group}={path.stem}" if is_choice else str(path.relative_to(CONFIGS))
    parts, rows = [f"### {title}\n"], list[Key]()
    for one in keys_of(path):
        if isinstance(one, Key):
            rows.append(one)
            continue
        parts += [_table("key", *rows)] if rows else []
        parts.append(f"{_escaped(one)}\n")
        rows = []
    return "\n".join([*parts, *([_table("key", *rows)] if rows else [])])


def _table(first: str, *rows: tuple[str, ...]) -> str:
    headings = (first, "default", "meaning") if len(rows[0]) == 3 else (first, "meaning")
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for name, *middle, meaning in rows:
        lines.append(f"| {' | '.join([f'`{name}`', *middle, _escaped(meaning)])} |")
    return "\n".join(lines) + "\n"


def _about(path: Path) -> str:
    """Return the comment that a file begins with."""
    texts = [one for one in keys_of(path) if isinstance(one, str)]
    return texts[0] if texts else ""


def _keys(node: yaml.MappingNode, prefix: str, lines: list[str], source: str) -> Iterator[tuple[int, Key]]:
    """Yield the line of each key below, and the key."""
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if key.value in NOT_KEYS:
            continue
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if said := _behind(lines[key.end_mark.line], key.end_mark.column + 1):
                yield key.start_mark.line, Key(name, "", said)
            yield from _keys(value, f"{name}.", lines, source)
            continue
        written = source[value.start_mark.index : value.end_mark.index]
        several = value.start_mark.line != value.end_mark.line  # a block of text or a list, whose comment is above it
        said = "" if several else _behind(lines[value.end_mark.line], value.end_mark.column)
        yield key.start_mark.line, Key(name, _default(written), said)


def _behind(line: str, column: int) -> str:
    match = re.match(r"\s*# ?(.*)", line[column:])
    return match.group(1) if match else ""


def _comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield blocks of whole comment lines, each with the number of its first line."""
    block: list[str] = []
    for number, line in enumerate([*lines, ""]):
        if line.lstrip().startswith("#"):
            block += [line.lstrip("# ")] if "@package" not in line else []
        elif block:
            yield number - len(block), " ".join(block)
            block = []


def _default(written: str) -> str:
    """Return the cell of a value, a plain interpolation in words."""
    if written == "???":
        return "to be given"
    if plain := re.fullmatch(r"\$\{([\w.]+)\}", written):
        return f"that of `{plain.group(1)}`"
    if either := re.fullmatch(r"\$\{oc\.select:([\w.]+),([\w.]+)\}", written):
        return f"that of `{either.group(1)}`, else `{either.group(2)}`"
    shown = re.sub(r"\s*(\s#.*)?\n\s*", " ", written.strip()).replace("|", r"\|")
    return f"`{shown}`" if shown else ""


def _escaped(text: str) -> str:
    """Return a comment as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_|<>\[\]$~])", r"\\\1", text)
