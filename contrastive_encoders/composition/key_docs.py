"""Descriptions of config keys for ``--help`` and for the reference page."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.composition.config_files import CONFIGS
from contrastive_encoders.composition.config_store import FOLDER, REGISTERED
from contrastive_encoders.core.config_schema import keys_of as settings_keys

TASK = "task"  # keys of a task in a YAML file of the reader's
NOT_KEYS = ("_target_", "defaults", "hydra")
FIRST, RECIPES = ("model", "data", "recipe", "race"), ("experiment",)  # groups in --help; the latter set others' keys
COLUMNS, MEANING = 100, 36  # of --help: all, and where a meaning begins
MOST = 60  # characters of a value there


class Key(NamedTuple):
    """Dotted name, default as it is written, what the comment beside it says."""

    name: str
    default: str
    meaning: str


def keys_of(path: Path) -> list[Key | str]:
    """What a file holds, from top to bottom: its keys by their full names, and as texts the comments that stand on
    lines of their own."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    root = yaml.compose(source)
    found: list[tuple[int, Key | str]] = []
    if isinstance(root, yaml.MappingNode):
        of_a_group = path.parent not in (CONFIGS, CONFIGS / TASK) and "@package _global_" not in source
        found += _keys(root, f"{path.parent.name}." if of_a_group else "", lines, source)
    return [one for _, one in sorted([*found, *_comments(lines)], key=lambda pair: pair[0])]


def keys_of_settings(kind: Any, prefix: str) -> Iterator[Key]:
    """The keys of a class of settings by their full names, those below a key behind it."""
    for one in settings_keys(kind):
        name = f"{prefix}{one.name}"
        if dataclasses.is_dataclass(one.type):
            yield Key(name, "", one.meaning)
            yield from keys_of_settings(one.type, f"{name}.")
        else:
            written = one.written
            plain = written if isinstance(written, str) and written else flow(written)
            yield Key(name, plain, "; ".join(filter(None, [", ".join(one.choices), one.meaning])))


def keys_with_settings(path: Path, group: str, package: str) -> list[Key | str]:
    """The keys of a file and of the classes of settings that it names, with the file's defaults where it has some.

    ``package`` is where its keys stand: ``data``, or ``data.parts.NAME`` of a part of a mixture.
    """
    keys = keys_of(path)
    if package != group:
        keys = [one._replace(name=one.name.replace(group, package, 1)) if isinstance(one, Key) else one for one in keys]
    written = {one.name: one.default for one in keys if isinstance(one, Key)}
    fields = list[Key]()
    for name in _made_of(path):
        if name.startswith(f"/{FOLDER}/"):
            settings, _, place = name.removeprefix(f"/{FOLDER}/").partition("@")
            place = package if place == "_here_" else place
            fields += keys_of_settings(REGISTERED[settings], f"{place}." if place else "")
    known = {one.name for one in fields}
    others = [one for one in keys if isinstance(one, str) or one.name not in known]
    return [*others, *(one._replace(default=written.get(one.name, one.default)) for one in fields)]


def _made_of(path: Path) -> list[str]:
    """What stands in the defaults list of a file, but for choices."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")).get("defaults", [])
    return [entry for entry in entries if isinstance(entry, str) and entry != "_self_"]


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("...\n").strip()


def about(path: Path) -> str:
    """The comment that a file begins with."""
    texts = [one for one in keys_of(path) if isinstance(one, str)]
    return texts[0] if texts else ""


def in_words(written: str) -> str | None:
    """A plain interpolation as what it means; None of any other value."""
    if plain := re.fullmatch(r"\$\{([\w.]+)\}", written):
        return f"that of `{plain.group(1)}`"
    if several := re.fullmatch(r"\$\{first_of:([\w.,]+)\}", written):
        *keys, otherwise = several.group(1).split(",")
        return f"that of {', else of '.join(f'`{name}`' for name in keys)}, else `{otherwise}`"
    return None


def _keys(node: yaml.MappingNode, prefix: str, lines: list[str], source: str) -> Iterator[tuple[int, Key]]:
    """Yield the line of each key below, and the key."""
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if key.value in NOT_KEYS:
            continue
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if meaning := _behind(lines[key.end_mark.line], key.end_mark.column + 1):
                yield key.start_mark.line, Key(name, "", meaning)
            yield from _keys(value, f"{name}.", lines, source)
            continue
        written = source[value.start_mark.index : value.end_mark.index]
        several = value.start_mark.line != value.end_mark.line  # a block of text or a list, whose comment is above it
        meaning = "" if several else _behind(lines[value.end_mark.line], value.end_mark.column)
        yield key.start_mark.line, Key(name, written, meaning)


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


# ------------------------------------------------------------------------------------------ --help


def _keys_and_meanings(*, _root_: DictConfig) -> str:
    """All keys of a composed config with their values of now, file by file, for a template of Hydra's help."""
    values: Any = OmegaConf.to_container(_root_, resolve=False)
    hydra = values.pop("hydra")
    choices, known = hydra["runtime"]["choices"], set[str]()
    pages = []
    for title, place, keys in sources(hydra["job"]["config_name"], choices):
        rows = [title] if title else []
        for one in keys:
            if isinstance(one, str):
                rows += [*([""] if len(rows) > bool(title) else []), filled(f"# {one}", "# ")]
                continue
            if (value := _value(values, one.name)) is not _MISSING:
                if isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values()):
                    one = one._replace(default="")  # parts, whose keys follow
                if one.name not in known or (one.meaning and place not in RECIPES):
                    is_renamed = one.name == "output" and hydra["help"]["app_name"].endswith("adapt")
                    rows.append(_row("output_dir" if is_renamed else one.name, value, one))
                if one.default:
                    known.add(one.name)
        pages.append("\n".join(rows))
    others = [_row(name, value) for name, value in _leaves(values, "") if not _is_among(name, known | choices.keys())]
    if others:
        pages.append("\n".join(["others", *others]))
    return "\n\n".join(pages).replace("$", "$$")


_MISSING = object()


def sources(config: str, choices: dict[str, Any]) -> Iterator[tuple[str, str, list[Key | str]]]:
    """Yield the title, the group, and the keys of each file that a config consists of; recipes of others' keys last.

    Args:
        config: name of a file in ``configs/``.
        choices: the choice of each group.
    """
    yield from _included("", "", CONFIGS / f"{config}.yaml", "")
    first, last = ([group for group in groups if group in choices] for groups in (FIRST, RECIPES))
    between = [group for group in choices if group not in (*first, *last) and not group.startswith("hydra")]
    for chosen in [*first, *between, *last]:
        group, _, part = chosen.partition("@")
        path = CONFIGS / group / f"{choices[chosen]}.yaml"
        yield from _included(f"{chosen}={choices[chosen]}", group, path, part or group)


def _included(title: str, group: str, path: Path, package: str) -> Iterator[tuple[str, str, list[Key | str]]]:
    """A file, and what it is made of: classes of settings, whose keys are its own, and other files.

    ``package`` is where its keys stand: ``data``, or ``data.parts.NAME`` of a part of a mixture.
    """
    if not path.is_file():
        return
    yield title, group, keys_with_settings(path, group, package)
    for name in _made_of(path):
        if not name.startswith(f"/{FOLDER}/"):
            folder = CONFIGS if name.startswith("/") else path.parent
            yield from _included("", group, folder / f"{name.removeprefix('/')}.yaml", package)


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(values, dict) or part not in values:
            return _MISSING
        values = values[part]
    return values


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            if key not in NOT_KEYS:
                yield from _leaves(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, node


def _is_among(name: str, known: set[str]) -> bool:
    """Whether it is a key that was shown, or lies below one whose value was."""
    parts = name.split(".")
    return any(".".join(parts[:size]) in known for size in range(1, len(parts) + 1))


def _row(name: str, value: Any, documented: Key | None = None) -> str:
    """``name=value`` and what it means; of a group of keys, which follow, its name alone."""
    key = f"{name}={_shown(value)}" if documented is None or documented.default else f"{name}."
    if documented is None or not documented.meaning:
        return key
    lines = textwrap.wrap(documented.meaning, COLUMNS - MEANING, break_on_hyphens=False)
    first = f"{key:<{MEANING - 2}}  {lines.pop(0)}" if len(key) <= MEANING - 2 else key
    return "\n".join([first, *(f"{' ' * MEANING}{line}" for line in lines)])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        words = "to be given" if value == "???" else in_words(value)
        text = f"({words.replace('`', '')})" if words else " ".join(value.split()) or "''"
    elif isinstance(value, dict | list):
        text = flow(value)
    else:
        text = yaml.safe_dump(value).partition("\n")[0]
    return text if len(text) <= MOST else f"{text[: MOST - 4]} ..."


def filled(line: str, indent: str = "    ") -> str:
    """A line of ``--help``, broken where it is too long."""
    return textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


OmegaConf.register_new_resolver("keys_and_meanings", _keys_and_meanings, replace=True)
