"""Excel files as tables, written by openpyxl."""

import datetime
import re
import zipfile
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.export.input_texts import open_texts
from contrastive_encoders.io.rows import read_rows
from contrastive_encoders.io.text_files import BadRow
from tests.data import TextSource

openpyxl = pytest.importorskip("openpyxl")


def book(path: Path, *sheets: list[list[object]]) -> Path:
    made = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = made.active if number == 0 else made.create_sheet()
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path


ROWS = [
    [None, None, None],
    ["question", "answer", "when"],
    ["Wie geht\ndas?", 404, datetime.date(2025, 1, 2)],
    [None, None, None],
    ["b", None, None],
    ["c", 2.5, ""],
]


def test_the_first_sheet_is_read_as_strings(tmp_path, caplog):
    caplog.set_level("INFO")
    path = book(tmp_path / "table.xlsx", ROWS, [["other"], ["text"]])
    assert [row.values for row in read_rows(path)] == [
        {"question": "Wie geht\ndas?", "answer": "404", "when": "2025-01-02 00:00:00"},
        {},
        {"question": "b", "answer": None, "when": None},
        {"question": "c", "answer": "2.5", "when": None},
    ]
    [record] = [record for record in caplog.records if record.name == "contrastive_encoders.io.sheets"]
    assert record.args == (path, "Sheet", 2)


def test_empty_and_hidden_sheets_are_skipped(tmp_path):
    made = openpyxl.Workbook()
    made.active.title = "cover"
    hidden, data = made.create_sheet("hidden"), made.create_sheet("data")
    hidden.append(["question", "answer"])
    hidden.append(["not", "this"])
    hidden.sheet_state = "hidden"
    data.append(["question", "answer"])
    data.append(["a", "b"])
    made.save(tmp_path / "table.xlsx")
    assert [row.values for row in read_rows(tmp_path / "table.xlsx")] == [{"question": "a", "answer": "b"}]


def test_the_stated_size_of_a_sheet_and_formula_errors_are_ignored(tmp_path):
    """Some programs state A1 as the size of each sheet. Excel stores #N/A with the type of an error."""
    path = book(tmp_path / "stated.xlsx", [["question", "answer", "note"], ["a", "#N/A"], ["b", "c", "d"]])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = parts["xl/worksheets/sheet1.xml"]
    assert b'<dimension ref="A1:C3"' in sheet
    assert sheet.count(b't="e"') == 1
    parts["xl/worksheets/sheet1.xml"] = sheet.replace(b'<dimension ref="A1:C3"', b'<dimension ref="A1"')
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    assert [row.values for row in read_rows(path)] == [
        {"question": "a", "answer": None, "note": None},
        {"question": "b", "answer": "c", "note": "d"},
    ]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_pairs_are_read_from_an_excel_file(kind, tmp_path, caplog):
    caplog.set_level("INFO")
    path = book(tmp_path / "table.xlsx", ROWS)
    source = RecordSource(str(path if kind == "file" else tmp_path), QA, columns=None, split="train", on_error="skip")
    assert [record.texts for record in source] == [("Wie geht\ndas?", "404"), ("c", "2.5")]
    assert source.manifest()["empty"] == 1
    assert "sheets" not in caplog.text


def test_an_excel_file_is_a_document_if_documents_are_read(tmp_path):
    pytest.importorskip("markitdown")
    book(tmp_path / "table.xlsx", ROWS[1:])
    assert len(list(TextSource(str(tmp_path)).documents())) == 1


def test_an_invalid_table_is_refused(tmp_path):
    broken = tmp_path / "broken.xlsx"
    broken.write_bytes(b"PK no workbook")
    (row,) = read_rows(broken)
    assert isinstance(row, BadRow)
    with pytest.raises(InputError):
        list(
            RecordSource(
                book(tmp_path / "t.xlsx", [["a", "a"], ["b", "c"]]),
                QA,
                columns=["a", "b"],
                split="train",
                on_error="fail",
            )
        )


def test_a_title_above_the_header_is_named_with_the_row_of_the_header(tmp_path):
    path = book(tmp_path / "t.xlsx", [["Questions of 2024"], [], ["question", "answer"], ["a", "b"]])
    with pytest.raises(InputError) as refused:
        RecordSource(path, QA, columns=None, split="train", on_error="fail")
    assert str(refused.value.hint).count("row 3") == 1
    assert "data.columns" not in str(refused.value.hint)
    book(path, [["question", "answer"], ["a", "b"]])  # without the rows above the header
    assert [record.texts for record in RecordSource(path, QA, columns=None, split="train", on_error="fail")] == [
        ("a", "b")
    ]


def test_sheets_that_are_not_read_are_named_if_the_columns_are_not_found(tmp_path):
    path = book(tmp_path / "t.xlsx", [["note", "x"], ["from", "us"]], [["question", "answer"], ["a", "b"]])
    with pytest.raises(InputError) as refused:
        RecordSource(path, QA, columns=None, split="train", on_error="fail")
    assert re.search(r"Sheet1 \(question, answer\)", refused.value.hint)
    with pytest.raises(InputError) as refused:
        open_texts(str(path), "answer").rows()
    assert re.search(r"Sheet1 \(question, answer\)", refused.value.hint)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_column_of_an_excel_file_is_embedded_row_by_row(kind, tmp_path):
    path = book(tmp_path / "t.xlsx", [["question", "answer"], ["a", "b"], ["c", 4]])
    texts = open_texts(str(path if kind == "file" else tmp_path), "answer")
    assert texts.rows() == 2
    assert [text for _, window in texts.windows(9, lambda _: True) for text in window] == ["b", "4"]
