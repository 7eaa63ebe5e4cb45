"""A table as a spreadsheet exports it, and a folder of mixed documents: no part passes silently, by a count by hand."""

import csv
import zipfile
from pathlib import Path

import pytest

from contracts import InputError
from datamodules.sources.record_kinds import QA
from datamodules.sources.records import RecordSource
from datamodules.store.row_statistics import Repeats
from tests.data import TextSource

QUESTION, ANSWER = "Kundenfrage", "Antwort (Support)"


def tickets(path: Path) -> Path:
    """Write 50 rows: 40 different ones, 3 of them again, 3 without a question, 2 without an answer, 2 with neither."""
    rows = [(f"Wie geht Größe {n}; und „{n}“?", f"<p>So geht {n}.\nNeue Zeile; <b>fett</b></p>") for n in range(40)]
    rows += (
        rows[5:8] + [("", f"Antwort {n}") for n in range(3)] + [(f"Frage {n}?", " ") for n in range(2)] + [("", "")] * 2
    )
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Ticket-ID", QUESTION, ANSWER, "Status"])
        writer.writerows([n, *row, ""] for n, row in enumerate(rows))
    return path


def test_every_row_of_a_spreadsheets_table_is_counted(tmp_path):
    path = tickets(tmp_path / "tickets.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert len(rows) == 50
    whole = [(row[QUESTION], row[ANSWER]) for row in rows if row[QUESTION].strip() and row[ANSWER].strip()]
    keys = {"columns": [QUESTION, ANSWER], "split": "train"}
    source, repeats = RecordSource(path, QA, on_error="skip", **keys), Repeats()
    records = list(source)
    repeats.add(records)
    counts = source.manifest()
    assert [record.texts for record in records] == whole
    assert (counts["rows"], counts["empty"], counts["undecodable"], counts["malformed"]) == (43, 7, 0, 0)
    assert repeats.count() == 3
    with pytest.raises(InputError):
        list(RecordSource(path, QA, on_error="fail", **keys))


def documents(folder: Path) -> Path:
    (folder / "hr").mkdir(parents=True)
    for n in range(4):
        (folder / "hr" / f"{n}.md").write_text(f"# Title {n}\n\nText of document {n}.\n")
        (folder / f"{n}.txt").write_text(f"Text of file {n}.\n\nSecond paragraph.\n")
    (folder / "README.md").write_text("# Our wiki\n")
    (folder / "cp1252.txt").write_bytes("Über größere Änderungen".encode("cp1252"))
    (folder / "logo.png").write_bytes(bytes(range(256)))
    (folder / ".DS_Store").write_bytes(b"\0\1")
    (folder / "empty.md").touch()
    (folder / "hr" / "notes.txt").write_bytes(bytes(range(128, 256)) * 9)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4\nnot really a pdf")
    (folder / "broken.docx").write_bytes(b"PK\x03\x04 not really")
    return folder


BROKEN = ["broken.docx", "broken.pdf", "empty.md", "notes.txt"]


def test_all_unreadable_files_of_a_folder_are_named_at_once(tmp_path):
    pytest.importorskip("markitdown")
    folder = documents(tmp_path / "wiki")
    with pytest.raises(InputError) as caught:
        list(TextSource(folder).documents())
    assert caught.value.value == "4 that cannot"
    assert all(f"{name}: " in caught.value.hint for name in BROKEN)
    [setting] = [word for word in caught.value.hint.split() if word.startswith("data.max_skipped=")]
    source = TextSource(folder, on_error="skip", max_skipped=float(setting.partition("=")[2].rstrip(".")))
    assert len(list(source.documents())) == 10, "the hint is enough"
    found = source.manifest()
    assert found["kinds"] == {".md": 5, ".txt": 5}, "of those that were read"
    assert found["passed_over"] == {".png": 1}
    assert found["skipped"] == 4


def test_a_folder_of_sound_files_names_none(tmp_path):
    folder = documents(tmp_path / "wiki")
    for path in folder.rglob("*"):
        if path.name in BROKEN:
            path.unlink()
    source = TextSource(folder)
    assert len(list(source.documents())) == 10
    assert not source.unreadable
    with zipfile.ZipFile(folder / "other.zip", "w"):
        pass
    assert TextSource(folder).manifest()["passed_over"] == {".png": 1, ".zip": 1}
