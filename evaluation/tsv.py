"""Reads a tab-separated table strictly: whatever is wrong is named with its file and line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from contracts import InputError
from files.rows import BadRow, decoded, lines_of

SENTEVAL = "@senteval"  # ends the name of a task whose texts are in the form that SentEval feeds to an encoder


def table(root: Path, name: str, senteval: bool = False) -> Path:
    """``SST2/train`` -> ``root/SST2/train.tsv``; the same with ``.gz`` where only that is there."""
    path = root / f"{name}{'.senteval' if senteval else ''}.tsv"
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def read_rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields ("file:line", the ``wanted`` columns) for each row below the header.

    UTF-8, gzipped or not, one header line, no quoting: the published sets hold lone quotation marks, which a CSV reader
    takes for the start of a field that swallows lines. Lines end at ``\\n`` alone, since the texts hold other control
    characters.
    """
    lines = _lines(path)
    header = next(lines, (f"{path}:1", [""]))[1]
    columns = _columns(path, header, wanted)
    for where, cells in lines:
        if len(cells) != len(header):
            raise InputError(
                f"{where}: wanted {len(header)} tab-separated columns as in the header, got {len(cells)}; "
                "a tab or a line break inside a text must be replaced by a blank."
            )
        yield where, [cells[column] for column in columns]


def count_rows(path: Path) -> int:
    """Lines below the header."""
    return max(0, sum(1 for _ in _lines(path)) - 1)


def read_text(where: str, column: str, cell: str) -> str:
    text = cell.strip()
    if not text:
        raise InputError(f"{where}: {column} is empty; wanted a text. Give it one or delete the row.")
    return text


def read_number(where: str, column: str, cell: str, low: float, high: float) -> float:
    wanted = f"wanted a number from {low:g} to {high:g}"
    try:
        number = float(cell)
    except ValueError:
        raise InputError(f"{where}: {column} is {cell!r}; {wanted}. Correct it or delete the row.") from None
    if not low <= number <= high:  # false for NaN as well
        raise InputError(f"{where}: {column} is {cell!r}; {wanted}. Correct it, rescale the column or delete the row.")
    return number


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    for item in lines_of(path):
        text = item if isinstance(item, BadRow) else decoded(item[1], item[0])
        if isinstance(text, BadRow):
            raise InputError(f"{path}:{text.line}: {text.message}.")
        yield f"{path}:{item[0]}", text.split("\t")


def _columns(path: Path, header: list[str], wanted: Sequence[str]) -> list[int]:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path}:1: the header names {', '.join(twice)} twice; rename or remove one of them.")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise InputError(
            f"{path}:1: wanted the columns {', '.join(wanted)}; {', '.join(missing)} missing from the header "
            f"{header!r}. The first line must name the columns, separated by tabs."
        )
    return [header.index(name) for name in wanted]
