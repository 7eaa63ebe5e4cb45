"""Rows whose positives and negatives are lists of texts, as in the formats of FlagEmbedding and Tevatron.

FlagEmbedding: {"query": "...", "pos": ["...", ...], "neg": ["...", ...]}
Tevatron:      {"query": "...", "positive_passages": [{"docid", "title", "text"}, ...], "negative_passages": [...]}
"""

import ast
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from contrastive_encoders.datamodules.sources.row_schemas import SkippedRow
from contrastive_encoders.io.nested_columns import MISSING, value_in
from contrastive_encoders.io.rows import MAX_QUOTE_CHARS, text_in
from contrastive_encoders.io.text_files import BadRow, ParsedRow


class TextLists(NamedTuple):
    """The distinct texts of a row: the anchor, the positives, and the negatives."""

    anchor: str
    positives: list[str]
    negatives: list[str]


def read_lists(row: ParsedRow, names: Sequence[str], strip_html: bool = False) -> TextLists | SkippedRow | BadRow:
    """Return the anchor and the lists of positives and negatives of a row. A column of negatives may be missing or
    empty.
    """
    anchor = text_in(row, names[0], strip_html)
    if isinstance(anchor, BadRow):
        return anchor
    if not anchor.strip():
        return BadRow(f"{names[0]} is empty. Give it a text or delete the row", row.line, "empty")
    found = list[list[str]]()
    for name in names[1:]:
        texts = _texts(row, name, strip_html)
        if isinstance(texts, BadRow):
            return texts
        found.append(texts)
    if not found[0]:
        return SkippedRow("without a positive")
    negatives = found[1] if len(found) > 1 else []
    return TextLists(anchor, found[0], [text for text in negatives if text not in found[0]])


def are_lists(values: Iterable[Any]) -> bool:
    """Return whether the values of a column are lists of texts.

    This is the case if one value is a list, or all are spelled as lists, as in a .csv file.
    """
    filled = [value for value in values if not _is_empty(value) and value != ""]
    return any(isinstance(value, list) for value in filled) or (
        bool(filled) and all(isinstance(_parsed(value), list) for value in filled)
    )


def _texts(row: ParsedRow, name: str, strip_html: bool) -> list[str] | BadRow:
    value = _parsed(value_in(row.values, name))
    if isinstance(value, str) and value.strip()[:2] in ("['", '["') and value.rstrip().endswith("]"):
        got = repr(value)[:MAX_QUOTE_CHARS]
        return BadRow(f"{name} is {got}, which is no list in JSON. Write it as JSON, or the file as .jsonl", row.line)
    items = value if isinstance(value, list) else [] if _is_empty(value) else [value]
    found = dict[str, None]()
    for item in items:
        if _is_empty(item):
            continue
        text = _passage(item) if isinstance(item, dict) else item
        is_text = isinstance(text, str | int | float) and not isinstance(text, bool)
        checked = text_in(ParsedRow({name: text}, row.line), name, strip_html) if is_text else None
        if isinstance(checked, BadRow):
            return checked
        if checked is None:
            got = repr(item)[:MAX_QUOTE_CHARS]
            return BadRow(f"{name} contains {got}. Wanted texts, or objects with a text and perhaps a title", row.line)
        if checked.strip():
            found[checked] = None
    return list(found)


def _is_empty(value: Any) -> bool:
    return value is None or value is MISSING or bool(value != value)  # pandas writes NaN for a missing value


def _passage(item: dict[str, Any]) -> Any:
    """Return the title and the text of a passage as one string."""
    title, text = item.get("title"), item.get("text")
    return f"{title.strip()} {text}" if isinstance(title, str) and title.strip() and isinstance(text, str) else text


def _parsed(value: Any) -> Any:
    """Parse a list that is written as a string, in JSON or as Python and pandas write it. Return other values
    unchanged.
    """
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
        if repr(found) != value.strip():  # NumPy writes ['a' 'b'], which Python reads as ['ab']
            return value
    return found if isinstance(found, list) else value
