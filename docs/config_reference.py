"""Generate the reference of all config keys, ``keys.md``, from config classes and the files in ``configs/``.

``make docs`` runs this module.
"""

import importlib
import re
from collections.abc import Iterable
from typing import Any

from contrastive_encoders.cli.download_data import DownloadConfig
from contrastive_encoders.cli.main import COMMANDS
from contrastive_encoders.cli.preview import PreviewConfig
from contrastive_encoders.evaluation.custom_tasks.task_types import KINDS
from contrastive_encoders.synthesis.recipe_configs import GenerateConfig
from contrastive_encoders.training.composition.config_files import CONFIGS, choices
from contrastive_encoders.training.composition.key_docs import (
    ConfigFile,
    KeyDoc,
    choice_file,
    flow,
    interpolation_in_words,
    keys_of_settings,
)

# Heading -> commands, classes of keys, and groups of files, in the order of the page
SECTIONS: dict[str, tuple[Any, ...]] = {
    "Train": ("train", "model", "data", "trainer", "logger", "experiment"),
    "Make data": ("generate", "recipe", "mine-negatives", ("download-data", DownloadConfig)),
    "Evaluate": ("evaluate", *((f"tasks of kind={name}", kind) for name, kind in KINDS.items())),
    "Compare": ("compare", "race", "sweeps", ("preview", PreviewConfig)),
    "Export": ("export", "embed"),
}
# A file of these sets keys of other files: the page says what it is for, its values are in configs/
RECIPES = ("experiment", "race", "sweeps")
HEADER = """# Every key

This page is generated from the config classes and from the files in `configs/`. Set a key with `KEY=VALUE` on the
command line.

"value of `seed`" means that a key inherits the value of another key until it is set itself.
"""


def page() -> str:
    """Return the page in Markdown."""
    for command in ("train", "generate", "mine-negatives", "evaluate", "compare", "export", "embed"):
        importlib.import_module(f"contrastive_encoders.cli.{COMMANDS[command][0]}")  # which registers the config class
    parts = [HEADER]
    for heading, places in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for place in places:
            if isinstance(place, tuple):
                name, kind = place
                parts.append(_section(name, "", keys_of_settings(kind)))
            elif place in RECIPES:
                rows = ((f"`{name}`", _escaped(choice_file(place, name).about)) for name in choices(place))
                parts += [f"### {place}=\n", _table("name", "meaning", rows=rows)]
            elif (CONFIGS / place).is_dir():
                common = {key.name for key in keys_of_settings(GenerateConfig) if place == "recipe"}
                for name in choices(place):
                    file = choice_file(place, name)
                    keys = (key for key in file.all_keys() if key.name not in common)
                    parts.append(_section(f"{place}={name}", file.about, keys))
            else:
                file = ConfigFile(CONFIGS / f"{place}.yaml", "")
                parts.append(_section(place, file.about, file.all_keys()))
    return "\n".join(parts)


def _section(title: str, about: str, keys: Iterable[KeyDoc]) -> str:
    rows = [(f"`{key.name}`", _default(key), _escaped(key.meaning)) for key in keys]
    table = [_table("key", "default", "meaning", rows=rows)] if rows else []
    return "\n".join([f"### {title}\n", *([f"{_escaped(about)}\n"] if about else []), *table])


def _table(*headings: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


def _default(key: KeyDoc) -> str:
    """Return the cell of a value, an interpolation of other keys in words."""
    if key.is_group:
        return ""
    value: Any = key.value
    if value == "???":
        return "required"
    shown = (value if isinstance(value, str) and value else flow(value)).replace("\n", " ").replace("|", r"\|")
    return interpolation_in_words(value) or f"`{shown}`"


def _escaped(text: str) -> str:
    """Return a text as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_|<>\[\]$~])", r"\\\1", text)
