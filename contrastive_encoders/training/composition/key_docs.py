"""Descriptions of config keys for ``--help``, for completion, and for the reference page."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.core.config_schema import keys_of as settings_keys
from contrastive_encoders.training.composition.config_files import CONFIGS, MEANINGS
from contrastive_encoders.training.composition.config_store import FOLDER, REGISTERED, dotted

FIRST_GROUPS, LAST_GROUPS = ("model", "data", "recipe", "race"), ("experiment",)  # in --help
COLUMNS, MEANING_COLUMN = 100, 36  # of --help
MAX_VALUE_CHARS = 60  # in --help


class KeyDoc(NamedTuple):
    """Documentation of a config key: its dotted name, its value or default, and its meaning. The value of a group of
    keys is None.
    """

    name: str
    value: Any
    meaning: str = ""
    is_group: bool = False


class ConfigFile(NamedTuple):
    """A file in ``configs/``, and the prefix of its keys, such as ``data``, or ``data.parts.NAME`` for a data source of
    a mixture.
    """

    path: Path
    package: str
    title: str = ""  # GROUP=CHOICE

    @property
    def about(self) -> str:
        """The comment at the beginning of the file, joined to one line."""
        comment = re.match(r"(#.*\n)*", self.path.read_text(encoding="utf-8"))
        lines = comment[0].splitlines() if comment else []
        return " ".join(line.lstrip("# ") for line in lines if "@package" not in line)

    def content(self) -> dict[str, Any]:
        return yaml.safe_load(self.path.read_text(encoding="utf-8")) or {}

    def included(self) -> Iterator["ConfigFile"]:
        """Yield the files that this file's defaults list includes, except the chosen files of config groups."""
        for entry in self._defaults():
            if not entry.startswith(f"/{FOLDER}/") and entry != "_self_":
                folder = CONFIGS if entry.startswith("/") else self.path.parent
                yield ConfigFile(folder / f"{entry.removeprefix('/')}.yaml", self.package)

    def all_keys(self) -> Iterator[KeyDoc]:
        """Yield the keys of the config dataclasses in this file's defaults list, then the other keys that the file
        sets.

        The value of a key is that of the file, or else its default.
        """
        content = {name: value for name, value in self.content().items() if name not in ("defaults", "hydra")}
        values = {_join(self.package, name): value for name, value in dotted(content).items()}
        for group, choice in self._chosen().items():
            values.setdefault(group.partition("@_global_.")[2], choice)
        known = set[str]()
        for entry in self._defaults():
            if entry.startswith(f"/{FOLDER}/"):
                name, _, place = entry.removeprefix(f"/{FOLDER}/").partition("@")
                for key in keys_of_settings(REGISTERED[name], self.package if place == "_here_" else place):
                    known.add(key.name)
                    yield key._replace(value=values.get(key.name, key.value))
        meanings = {_join(self.package, name): text for name, text in content.get(MEANINGS, {}).items()}
        for file in self.included():
            meanings |= {key.name: key.meaning for key in file.all_keys()}
        for name, value in values.items():
            own = name.removeprefix(f"{self.package}.")
            if not _is_among(name, known) and not own.startswith(("_", f"{MEANINGS}.")):
                yield KeyDoc(name, value, meanings.get(name, ""))

    def _chosen(self) -> dict[str, str]:
        """Return a mapping of groups to choices for the groups in this file's defaults list that set a top-level key,
        such as ``/prompts@_global_.prompts``.
        """
        entries = (entry for entry in self.content().get("defaults", []) if isinstance(entry, dict))
        return {group: choice for entry in entries for group, choice in entry.items() if "@_global_." in group}

    def _defaults(self) -> list[str]:
        return [entry for entry in self.content().get("defaults", []) if isinstance(entry, str)]


def files_of_help(config: str, choices: Mapping[str, Any]) -> Iterator[ConfigFile]:
    """Yield the files in ``configs/`` whose keys ``--help`` lists for a command: the command's own file, and the files
    of the chosen config groups. Files that set keys of other files, such as experiments, come last.

    Args:
        config: name of a file in ``configs/``.
        choices: the choice of each group.
    """
    yield ConfigFile(CONFIGS / f"{config}.yaml", "")
    first, last = ([group for group in groups if group in choices] for groups in (FIRST_GROUPS, LAST_GROUPS))
    between = [group for group in choices if group not in (*first, *last) and not group.startswith("hydra")]
    for chosen in [*first, *between, *last]:
        group, _, part = chosen.partition("@")
        file = choice_file(group, str(choices[chosen]), part)
        if file.path.is_file():
            yield file._replace(title=f"{chosen}={choices[chosen]}")
            yield from _all_included(file)


def choice_file(group: str, name: str, package: str = "") -> ConfigFile:
    """Return the file of a group's choice, ``configs/GROUP/NAME.yaml``."""
    path = CONFIGS / group / f"{name}.yaml"
    is_global = path.is_file() and "@package _global_" in path.read_text(encoding="utf-8")
    return ConfigFile(path, "" if is_global else package or group)


def _all_included(file: ConfigFile) -> Iterator[ConfigFile]:
    for other in file.included():
        yield other
        yield from _all_included(other)


def keys_of_settings(kind: Any, package: str = "") -> Iterator[KeyDoc]:
    """Yield the keys of a config dataclass with their full dotted names. A group precedes its keys."""
    for one in settings_keys(kind):
        name = _join(package, one.name)
        if dataclasses.is_dataclass(one.type):
            yield KeyDoc(name, None, one.meaning, is_group=True)
            yield from keys_of_settings(one.type, name)
        else:
            yield KeyDoc(name, one.written, "; ".join(filter(None, [", ".join(one.choices), one.meaning])))


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def interpolation_in_words(value: Any) -> str | None:
    """Describe an interpolation of other keys, as in ``value of `seed```. Return None for any other value."""
    if plain := re.fullmatch(r"\$\{([\w.]+)\}", str(value)):
        return f"value of `{plain.group(1)}`"
    if several := re.fullmatch(r"\$\{first_of:([\w.,]+)\}", str(value)):
        *keys, default = several.group(1).split(",")
        return f"value of {', else '.join(f'`{name}`' for name in keys)}, else `{default}`"
    return None


def _join(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _is_among(name: str, known: set[str]) -> bool:
    """Return whether a dotted name or one of its prefixes is a known key."""
    parts = name.split(".")
    return any(".".join(parts[:size]) in known for size in range(1, len(parts) + 1))


# ------------------------------------------------------------------------------------------ --help


def _keys_and_meanings(*, _root_: DictConfig) -> str:
    """Resolver for Hydra's help template that lists all keys of a composed config, with their values and meanings."""
    values: Any = OmegaConf.to_container(_root_, resolve=False)
    hydra = values.pop("hydra")
    choices, printed, known = hydra["runtime"]["choices"], set[str](), set[str]()
    pages = []
    for file in files_of_help(hydra["job"]["config_name"], choices):
        rows = [file.title] if file.title else []
        rows += [wrap_text(f"# {file.about}", "# ")] if file.about else []
        for key in file.all_keys():
            value = _value(values, key.name)
            if key.name in printed or value is _MISSING:
                continue
            printed.add(key.name)
            is_group = key.is_group or (
                isinstance(value, dict) and any(isinstance(one, dict) for one in value.values())
            )
            known |= set() if is_group else {key.name}
            if key.name == "output" and hydra["help"]["app_name"].endswith("adapt"):
                key = key._replace(name="output_dir")
            rows.append(row(key._replace(value=value, is_group=is_group)))
        pages.append("\n".join(rows))
    names = known | choices.keys() | {f"race.{MEANINGS}"}
    others = [row(KeyDoc(name, value)) for name, value in _leaves(values, "") if not _is_among(name, names)]
    if others:
        pages.append("\n".join(["others", *others]))
    return "\n\n".join(pages).replace("$", "$$")


_MISSING = object()


def _value(values: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(values, dict) or part not in values:
            return _MISSING
        values = values[part]
    return values


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            if key != "_target_":
                yield from _leaves(value, _join(name, str(key)))
    else:
        yield name, node


def row(key: KeyDoc) -> str:
    """Format a key as ``name=value`` with its meaning in a second column. A group, whose keys follow, has no value."""
    start = f"{key.name}." if key.is_group else f"{key.name}={_shown(key.value)}"
    if not key.meaning:
        return start
    lines = textwrap.wrap(key.meaning, COLUMNS - MEANING_COLUMN, break_on_hyphens=False)
    first = f"{start:<{MEANING_COLUMN - 2}}  {lines.pop(0)}" if len(start) <= MEANING_COLUMN - 2 else start
    return "\n".join([first, *(f"{' ' * MEANING_COLUMN}{line}" for line in lines)])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        words = "required" if value == "???" else interpolation_in_words(value)
        text = f"({words.replace('`', '')})" if words else " ".join(value.split()) or "''"
    else:
        text = flow(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 4]} ..."


def wrap_text(line: str, indent: str = "    ") -> str:
    """Wrap a line of ``--help`` to the width of the page."""
    return textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


OmegaConf.register_new_resolver("keys_and_meanings", _keys_and_meanings, replace=True)
