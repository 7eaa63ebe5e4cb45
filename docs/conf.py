"""The site: ``make docs`` builds it from these pages, offline; a link that leads nowhere is an error."""

import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from config_reference import page  # noqa: E402

from contrastive_encoders.core.config_schema import keys_of  # noqa: E402

(HERE / "keys.md").write_text(page(), encoding="utf-8")

project = html_title = "Contrastive Encoders"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4  # links to a heading as on GitHub
autodoc_typehints = "none"  # the signature of a config class is the table of its keys, others are in the docstring
autodoc_member_order = "bysource"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = html_copy_source = False
html_use_index = False  # the API reference is one page
highlight_language = "none"  # a block without a language is output, not Python
pygments_style, pygments_dark_style = "friendly", "native"


def is_config(kind: Any) -> bool:
    return is_dataclass(kind) and kind.__name__.endswith("Config")


def remove_signature(app: Any, what: str, name: str, kind: Any, *_: Any) -> tuple[str, None] | None:
    """Config classes take keyword arguments alone, which `add_keys` lists."""
    return ("", None) if is_config(kind) else None


def add_keys(app: Any, what: str, name: str, kind: Any, options: Any, lines: list[str]) -> None:
    """Append the fields of a config class to its docstring: name, default, and meaning."""
    if is_config(kind):
        lines += ["", "Args:", *(f"    {line}" for line in key_lines(kind))]


def key_lines(kind: Any, prefix: str = "") -> list[str]:
    """Return a line for each key; the keys below a nested config are named with their prefix."""
    lines = list[str]()
    for key in keys_of(kind):
        if is_dataclass(key.default):
            lines += key_lines(type(key.default), f"{prefix}{key.name}.")
            continue
        meaning = re.sub(r"([*|])", r"\\\1", key.meaning)  # no emphasis and no substitution
        default = "" if key.written == "???" else f" Default: ``{key.written}``."
        lines.append(f"{prefix}{key.name}: {meaning}.{default}")
    return lines


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", remove_signature)
    app.connect("autodoc-process-docstring", add_keys, priority=100)  # before napoleon reads the sections
