"""A table exported from a spreadsheet, and mixed documents: no part is dropped silently, by counts made by hand."""

import csv
import gzip
import io
import itertools
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from contrastive_encoders.cli.main import adapt_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.datamodules.store.row_statistics import Repeats
from tests.data import RecordSource, TextSource

QUESTION, ANSWER = "Kundenfrage", "Antwort (Support)"


def tickets(path: Path) -> Path:
    """Write 50 rows: 40 different, 3 duplicates, 3 without a question, 2 without an answer, 2 with neither."""
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
    assert repeats.count()["repeated"] == 3
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
    (folder / "hr" / "~$0.docx").write_bytes(bytes(160))  # Word's lock file
    return folder


BROKEN = ["broken.docx", "broken.pdf", "empty.md", "notes.txt"]


def test_all_unreadable_files_of_a_folder_are_named_at_once(tmp_path):
    pytest.importorskip("markitdown")
    folder = documents(tmp_path / "wiki")
    with pytest.raises(InputError) as caught:
        list(TextSource(folder).documents())
    assert caught.value.value == "4 unreadable"
    assert all(f"{name}: " in caught.value.hint for name in BROKEN)
    [setting] = [override for override in caught.value.hint.split() if override.startswith("data.max_skipped=")]
    source = TextSource(folder, on_error="skip", max_skipped=float(setting.partition("=")[2].rstrip(".")))
    assert len(list(source.documents())) == 10, "the hint is enough"
    found = source.manifest()
    assert found["kinds"] == {".md": 5, ".txt": 5}, "of those that were read"
    assert found["passed_over"] == {".png": 1}
    assert (found["empty"], found["undecodable"], found["malformed"]) == (1, 1, 2)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(("prefix", "setting"), [("data.", "data.columns=[NAME]"), ("", "input_column=NAME")])
def test_rows_without_the_column_of_the_texts_name_the_key(prefix, setting, on_error, tmp_path):
    """`adapt` accepts the key of `generate`; columns of another name are read with it."""
    (tmp_path / "x.csv").write_text("body,title\nFirst text.,One\nSecond text.,Two\n")
    with pytest.raises(InputError) as caught:
        list(TextSource(tmp_path / "x.csv", on_error=on_error, prefix=prefix).documents())
    assert setting in caught.value.hint
    key = setting.partition("=")[0]
    assert [document.text for document in TextSource(tmp_path / "x.csv", column="body").documents()] == [
        "First text.",
        "Second text.",
    ]
    if key == "input_column":
        assert "race.input_column=body" in adapt_arguments(["x.csv", f"{key}=body"])


def test_rows_without_a_text_beside_documents_are_skipped(tmp_path):
    (tmp_path / "package.json").write_text('[{"name": "x"}]')
    (tmp_path / "a.md").write_text("# Title\n\nText.\n")
    source = TextSource(tmp_path, on_error="skip", max_skipped=1.0)
    assert len(list(source.documents())) == 1
    assert source.manifest()["malformed"] == 1


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


def table(form: str, rows: int = 400) -> bytes:
    """Return a table of ``rows`` pairs, as a library writes it."""
    frame = pd.DataFrame(
        {"question": [f"q{n}" for n in range(rows)], "answer": [f"a{n}\nb{n % 7}" for n in range(rows)]}
    )
    if form in ("parquet", "xlsx"):
        stream = io.BytesIO()
        frame.to_parquet(stream) if form == "parquet" else frame.to_excel(stream, index=False)
        return stream.getvalue()
    if form in ("json", "jsonl"):
        return frame.to_json(orient="records", lines=form == "jsonl").encode()
    return frame.to_csv(index=False).encode()


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.jsonl.gz", "a.json.gz", "a.parquet.gz", "a.json", "a.parquet", "a.xlsx"]
)
def test_a_file_that_is_cut_short_is_no_skipped_row(tmp_path, name, on_error):
    data = table(name.split(".")[1])
    data = gzip.compress(data) if name.endswith(".gz") else data
    path = tmp_path / name
    path.write_bytes(data)
    assert len(list(RecordSource(path, QA, on_error=on_error))) == 400
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(InputError) as caught:
        list(RecordSource(path, QA, on_error=on_error, max_skipped=1.0))
    assert str(path) in str(caught.value)
    assert "on_error" not in str(caught.value), "leaving out rows would not help"


def test_a_table_that_is_not_packed_is_no_skipped_row(tmp_path):
    path = tmp_path / "plain.csv.gz"
    path.write_bytes(table("csv"))
    with pytest.raises(InputError) as caught:
        list(RecordSource(path, QA, on_error="skip", max_skipped=1.0))
    assert str(path) in str(caught.value)


def test_a_last_line_that_is_cut_short_is_one_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(table("jsonl")[:-9])
    source = RecordSource(path, QA, on_error="skip")
    assert len(list(source)) == 399
    assert source.manifest()["malformed"] == 1


GOOD, BAD = '{"question": "q", "answer": "a"}\n', '{"question": "q"\n'


def options(hint: str) -> dict[str, str | float]:
    """Return the settings of ``data`` that a hint names."""
    found = dict(
        override.rstrip(".").removeprefix("data.").split("=") for override in hint.split() if "data." in override
    )
    return {name: float(value) if name == "max_skipped" else value for name, value in found.items()}


@pytest.mark.parametrize(
    ("lines", "advised"),
    [
        ([GOOD] * 19 + [BAD], {"on_error": "skip"}),
        ([BAD] + [GOOD] * 19, {"on_error": "skip"}),
        ([BAD, GOOD, GOOD, BAD], {"on_error": "skip", "max_skipped": 0.5}),
        ([BAD] * 3, {}),
    ],
    ids=["last", "first", "half", "all"],
)
def test_advice_to_skip_rows_works_or_is_not_given(tmp_path, lines, advised):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(lines))
    with pytest.raises(InputError) as caught:
        list(RecordSource(path, QA))
    assert caught.value.location == f"{path}:{lines.index(BAD) + 1}"
    assert options(caught.value.hint or "") == advised
    if advised:
        assert len(list(RecordSource(path, QA, **advised))) == lines.count(GOOD)


def test_rows_far_behind_an_unusable_one_are_not_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(BAD + GOOD * 5_000)
    found = iter(RecordSource(path, QA))
    with pytest.raises(InputError):
        list(itertools.islice(found, 1_500))


def test_only_files_with_unusable_rows_are_named(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"{name}.jsonl").write_text(GOOD * 5 + BAD * {"b": 1, "d": 3}.get(name, 0))
    with pytest.raises(InputError) as caught:
        list(RecordSource(tmp_path, QA, on_error="skip"))
    assert [name for name in "abcd" if f"{name}.jsonl" in caught.value.hint] == ["b", "d"]
    assert options(caught.value.hint) == {"max_skipped": 0.17}  # 4 of 24


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt", "a.tsv"])
@pytest.mark.parametrize("packed", ["", ".gz", "0.gz"])
def test_an_empty_file_alone_is_not_to_be_skipped(tmp_path, name, packed):
    path = tmp_path / f"{name}{packed.strip('0')}"
    path.write_bytes(gzip.compress(b"") if packed == ".gz" else b"")
    with pytest.raises(InputError) as caught:
        list(RecordSource(path, QA))
    assert (caught.value.location, caught.value.hint) == (f"{path}:1", None)
    (tmp_path / "b.jsonl").write_text(GOOD)
    with pytest.raises(InputError) as caught:
        list(RecordSource([path, tmp_path / "b.jsonl"], QA))
    assert options(caught.value.hint) == {"on_error": "skip"}
    assert len(list(RecordSource([path, tmp_path / "b.jsonl"], QA, on_error="skip"))) == 1
