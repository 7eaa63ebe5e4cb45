"""Write a blind annotation sheet, and compute the agreement of a person's labels with the intended labels.

As in table 3 of the paper, the result is the percentage of each human label among the pairs that were written for a
label. Pairs whose labels are similarities (0, 0.5, 1) are post-processed as for training before they are drawn:
deduplicated, smoothed (0.1, 0.5, 0.9), and with random second sentences labeled 0.0. Other pairs are drawn as they were
written. All pairs are drawn at random, regardless of their label.
"""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports.tables import Cell, Column, Table, columns, markdown
from contrastive_encoders.synthesis.shards.store import read_entries

SHEET, KEY, TABLE = "annotation.csv", "annotation-key.json", "annotation.md"
FORMULA = ("=", "+", "-", "@", "'")  # cells with this beginning are calculated by a spreadsheet; text after a ' is not
COLUMNS = ("id", "text_a", "text_b", "label")
RANDOM = "0.0"
SIMILARITIES = {"0": "0.1", "0.5": "0.5", "1": "0.9"}  # smoothed values


class Item(NamedTuple):
    """A line of the sheet: its texts, and their intended label, which the sheet does not show."""

    text_a: str
    text_b: str
    label: str


def write_sheet(
    folder: Path, number: int, labels: Sequence[str], seed: int, as_trained: Callable[[Path], Sequence[Item]]
) -> tuple[Path, list[str]]:
    """Write a sheet with random items in random order. The intended labels are written to a separate key file.

    ``as_trained`` reads pairs as they are post-processed for training.

    Returns:
        The path of the sheet, and the labels that annotators may assign.

    Raises:
        InputError: There already is a sheet, which may be partly annotated, or there are too few texts.
    """
    sheet = folder / SHEET
    if sheet.exists():
        raise InputError(
            key="annotation_sample",
            value=number,
            expected=f"a folder without a sheet, but {sheet} exists and may contain labels",
            hint="Move the existing sheet away to write a new sheet.",
        )
    first = next(read_entries(folder), None)
    # The labels of first sentences name an instruction, even if they look like similarities
    similar = set(labels) <= set(SIMILARITIES) and first is not None and first["text_b"] is not None
    items = draw_items(as_trained(folder) if similar else _read_items(folder), number, seed)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows((place, cell(item.text_a), cell(item.text_b), "") for place, item in enumerate(items, start=1))
    allowed = [RANDOM, *sorted(SIMILARITIES[label] for label in labels)] if similar else list(labels)
    key = {"labels": allowed, "key": {str(place): item.label for place, item in enumerate(items, start=1)}}
    atomic_write(folder / KEY, json.dumps(key, indent=1).encode())
    atomic_write(sheet, text.getvalue().encode("utf-8-sig"))  # with the signature, spreadsheets recognize UTF-8
    return sheet, allowed


def cell(text: str) -> str:
    """Escape text so that a spreadsheet does not interpret it as a formula."""
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text


def draw_items(pool: Sequence[Item], number: int, seed: int) -> list[Item]:
    """Draw ``number`` items at random, in random order.

    Raises:
        InputError: There are fewer than ``number`` items.
    """
    if len(pool) < number:
        raise InputError(
            key="annotation_sample", value=number, expected=f"at most {len(pool)}, the number of available texts"
        )
    return random.Random(f"{seed}/annotation").sample(pool, number)


def _read_items(folder: Path) -> list[Item]:
    return [Item(one["text_a"], one["text_b"] or "", one["label"]) for one in read_entries(folder)]


class Agreement(NamedTuple):
    """Agreement between the labels of a human annotator and the labels that were intended during generation.

    ``percent[human][dino]`` is the percentage of the items with the DINO label that got the human label.
    """

    labels: list[str]
    percent: dict[str, dict[str, float]]
    items: dict[str, int]  # per DINO label
    unlabeled: int


def read_agreement(folder: Path, sheet: Path) -> Agreement:
    """Compute the agreement of the labels on a completed sheet with the intended labels in its answer key.

    Raises:
        InputError: There is no sheet or key, an id is unknown, or a label is invalid.
    """
    allowed, key, given = read_column(folder, sheet, "label")
    counts: dict[tuple[str, str], int] = {}
    unlabeled = 0
    for where, place, label in given:
        if not label:
            unlabeled += 1
            continue
        human = _parse_label(label, allowed)
        if human is None:
            expected = f"one of {', '.join(allowed)}, or an empty cell"
            raise InputError(key="label", value=label, expected=expected, location=where)
        counts[human, key[place]] = counts.get((human, key[place]), 0) + 1
    items = {dino: sum(number for (_, of), number in counts.items() if of == dino) for dino in allowed}
    percent = {
        human: {dino: 100 * counts.get((human, dino), 0) / max(items[dino], 1) for dino in allowed} for human in allowed
    }
    return Agreement(allowed, percent, items, unlabeled)


def read_column(folder: Path, sheet: Path, column: str) -> tuple[list[str], dict[str, str], list[tuple[str, str, str]]]:
    """Read one column of a completed sheet, and the answer key of the sheet.

    Returns:
        The labels that annotators may assign, the meaning of each id, and for each line its location, its id, and the
        annotator's entry in ``column``.

    Raises:
        InputError: There is no sheet, key, or column, or an id is unknown.
    """
    try:
        found = json.loads((folder / KEY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            key="annotation_sheet", value=sheet, expected=f"a sheet whose answer key {folder / KEY} exists"
        ) from None
    try:
        text = sheet.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            key="annotation_sheet", value=sheet, expected=f"the completed {SHEET} in UTF-8 ({error})"
        ) from None
    first = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if ";" in first and "," not in first else ",")
    if not {"id", column} <= set(reader.fieldnames or ()):
        raise InputError(
            key="annotation_sheet",
            value=reader.fieldnames,
            expected=f"the columns id and {column}",
            location=str(sheet),
        )
    given = list[tuple[str, str, str]]()
    for line, row in enumerate(reader, start=2):
        place, where = (row["id"] or "").strip(), f"{sheet}, row {line}"
        if place not in found["key"]:
            hint = "Restore the ids that the sheet contained when it was written."
            raise InputError(key="id", value=place, expected=f"an id that {KEY} contains", location=where, hint=hint)
        given.append((where, place, (row[column] or "").strip()))
    return found["labels"], found["key"], given


def _parse_label(given: str, allowed: Sequence[str]) -> str | None:
    """Return the label that a person entered, or None if it is not one of the labels ``allowed``.

    A spreadsheet may have changed 0.0 to 0 or 0,0, or have marked it as text with a leading '.
    """
    if given not in allowed:
        given = given.removeprefix("'")
    if given in allowed:
        return given
    try:
        value = float(given.replace(",", "."))
        return next((label for label in allowed if float(label) == value), None)
    except ValueError:
        return None


def agreement_table(agreement: Agreement) -> str:
    """Format the agreement as a Markdown table like table 3 of the paper."""
    counted = sum(agreement.items.values())
    about = (
        "Percentage of the pairs written for a label (columns) to which a person assigned each label (rows).\n"
        f"{counted} pairs were labeled, {agreement.unlabeled} were left blank."
    )
    rows: list[list[Any]] = [[human, *by_label.values()] for human, by_label in agreement.percent.items()]
    pairs = [Cell(str(agreement.items[label])) for label in agreement.labels]
    table = Table([Column("human \\ DINO"), *columns(*agreement.labels, number=".0f")], [*rows, ["pairs", *pairs]])
    return f"# Agreement with a person\n\n{about}\n\n{markdown(table)}\n"
