"""Generate the reference of all config keys, ``keys.md``, from config classes and the comments in ``configs/``.

``make docs`` runs this module.
"""

import re
from pathlib import Path

# They register the config classes
import contrastive_encoders.evaluation.evaluate_config
import contrastive_encoders.export.embed_config
import contrastive_encoders.training.run_config  # noqa: F401
from contrastive_encoders.composition.config_files import CONFIGS
from contrastive_encoders.composition.key_docs import TASK, Key, about, in_words, keys_with_settings

COMMANDS = {  # heading -> files and folders of files, in the order of the page
    "Train": ("train.yaml", "model", "data", "trainer", "logger", "experiment"),
    "Make data": ("generate.yaml", "recipe", "recipe_keys", "mine-negatives.yaml"),
    "Evaluate": ("evaluate.yaml", "task"),
    "Compare": ("compare.yaml", "race", "sweeps", "preview.yaml"),
    "Export": ("export.yaml", "embed.yaml"),
}
# A file of these is a recipe of other files' keys: what it is for is said, its values are one click away in configs/
RECIPES = ("experiment", "race", "sweeps")
SHARED = ("recipe_keys",)  # by files of a group, and no choices themselves
HEADER = """# Every key

This page is generated from the config classes and from the comments in `configs/`. Set a key with `KEY=VALUE` on the
command line.

"that of `seed`" means that a key follows another one until it is set itself.
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [HEADER]
    for heading, places in COMMANDS.items():
        parts.append(f"## {heading}\n")
        for place in places:
            path = CONFIGS / place
            if place in RECIPES:
                parts += [f"### {place}=\n", _table("name", *((one.stem, about(one)) for one in _files(path)))]
            elif path.is_dir():
                parts += [_section(one, place) for one in _files(path)]
            else:
                parts.append(_section(path, ""))
    return "\n".join(parts)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _section(path: Path, group: str) -> str:
    is_choice = group and group not in (*SHARED, TASK)
    title = f"{group}={path.stem}" if is_choice else str(path.relative_to(CONFIGS))
    parts, rows = [f"### {title}\n"], list[Key]()
    for one in keys_with_settings(path, group, group):
        if isinstance(one, Key):
            rows.append(one._replace(default=_default(one.default)))
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


def _default(written: str) -> str:
    """Return the cell of a value, a plain interpolation in words."""
    if written == "???":
        return "to be given"
    shown = re.sub(r"\s*(\s#.*)?\n\s*", " ", written.strip()).replace("|", r"\|")
    return in_words(written) or (f"`{shown}`" if shown else "")


def _escaped(text: str) -> str:
    """Return a comment as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_|<>\[\]$~])", r"\\\1", text)
