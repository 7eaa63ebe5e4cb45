"""Formats of files, which the ends of their names determine."""

from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path

FORMS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")  # each also with .gz appended
MARKDOWN = (".md", ".markdown")
DOCUMENTS = (*MARKDOWN, ".html", ".htm", ".pdf", ".docx", ".xlsx")  # each file is one text; also with .gz
SHEET = ".xlsx"  # a table, unless all documents are read


def form_of(path: Path, forms: Container[str] = FORMS) -> str:
    """Return the extension of the file name if it is among ``forms``; otherwise an empty string."""
    form = _ending(path)
    return form if form in forms else ""


def has_columns(path: Path) -> bool:
    """Return whether the rows of a file have named columns, unlike the lines of a text file and documents."""
    return form_of(path, (*FORMS, SHEET)) not in ("", ".txt")


def count_kinds(files: Sequence[Path]) -> dict[str, int]:
    """Count files by extension, in descending order of frequency."""
    return dict(Counter(_ending(path) or path.name for path in files).most_common())


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
