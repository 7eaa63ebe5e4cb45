"""Sources yield what stands in the files, and name file and line of what they cannot read."""

import gzip
import hashlib
import json
import os
import time

import pyarrow as pa
import pyarrow.parquet
import pytest

from contracts import InputError
from tests.data import TextSource


def texts(*args, **kwargs):
    return list(TextSource(*args, **kwargs).texts())


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_file_is_lines_and_a_folder_is_files(tmp_path):
    one = write(tmp_path / "b" / "one.txt", "first line\n\n  \nsecond\u2028line\r\n")
    write(tmp_path / "a" / "two.txt.gz", "whole\n\ndocument\n")
    assert texts(one) == ["first line", "second\u2028line"]
    assert texts(tmp_path) == ["whole\n\ndocument", "first line\n\n  \nsecond\u2028line"]
    assert texts(tmp_path, document="line") == ["whole", "document", "first line", "second\u2028line"]
    assert texts(one, document="file") == ["first line\n\n  \nsecond\u2028line"]


def docs(folder):
    """A folder as a project has it."""
    write(folder / "guide.md", "# Guide\n\nFirst *of all*.\n")
    write(folder / "more" / "README.md", "More\n====\n\n- [one](two)\n")
    write(folder / "more" / "page.html", "<h1>Page</h1><p>of text</p>")
    write(folder / "plain.txt", "two\nlines\n")
    write(folder / "cut.pdf", "%PDF-1.4\n")
    write(folder / "logo.png", b"\x89PNG")
    write(folder / "Makefile", "all:")
    write(folder / ".git" / "x.md", "hidden")
    return folder


def test_documents_of_a_folder_are_counted_by_kind_with_what_was_passed_over(tmp_path):
    source = TextSource(docs(tmp_path / "docs"), on_error="skip")
    assert list(source.texts()) == ["Guide\n\nFirst of all.", "More\n\none", "Page\n\nof text", "two\nlines"]
    found = source.manifest()
    assert found["kinds"] == {".md": 2, ".pdf": 1, ".html": 1, ".txt": 1}
    assert found["passed_over"] == {".png": 1, "Makefile": 1}
    assert found["skipped"] == 1
    assert "cut.pdf:1: no sound .pdf file" in found["skipped_where"][0]
    assert texts(f"{tmp_path}/docs/**/*.md") == ["Guide\n\nFirst of all.", "More\n\none"]
    assert texts(tmp_path / "docs" / "guide.md", document="line") == ["Guide\n\nFirst of all."], "one document"


def test_what_describes_rows_is_no_document(tmp_path):
    write(tmp_path / "data" / "rows.jsonl", json.dumps({"text": "row"}))
    for name in ("README.md", "MANIFEST.md", "data/readme.md"):
        write(tmp_path / name, "# About the rows\n")
    write(tmp_path / "guide.md", "guide")
    source = TextSource(tmp_path)
    assert list(source.texts()) == ["row", "guide"]
    assert source.manifest()["passed_over"] == {".md": 3}
    assert texts(tmp_path / "README.md") == ["About the rows"], "where it is named, it is read"


def test_blank_lines_are_counted_and_lines_are_named(tmp_path):
    path = write(tmp_path / "a.txt", "\n\ufeffx\n \nlast")
    source = TextSource(path)
    assert [document.where for document in source.documents()] == [f"{path}:2", f"{path}:4"]
    assert source.manifest()["blank"] == 2
    list(source.documents())
    assert source.manifest()["blank"] == 2  # a second reading does not add up


def test_all_formats_together_in_the_order_given(tmp_path):
    rows = [{"text": "j1", "id": 3}, {"id": 4, "text": "j2"}]
    lines = "\n".join(map(json.dumps, rows))
    jsonl = write(tmp_path / "x.jsonl", lines + "\n\n")
    packed = write(tmp_path / "y.jsonl.gz", lines.replace("j", "k"))
    parquet = tmp_path / "z.parquet"
    pa.parquet.write_table(pa.table({"n": [1, 2, 3], "text": ["p1", "", "p2"]}), parquet)
    assert texts([parquet, packed, str(jsonl)]) == ["p1", "p2", "k1", "k2", "j1", "j2"]
    assert texts(tmp_path) == ["j1", "j2", "k1", "k2", "p1", "p2"]
    write(tmp_path / "table.csv", 'id,text\n1,"c,1"\n')
    write(tmp_path / "tabs.tsv", 'id\ttext\n1\t"t1"\n')
    write(tmp_path / "list.json", json.dumps(rows).replace("j", "l"))
    assert texts(f"{tmp_path}/*t*.?s*") == ["l1", "l2", "c,1", '"t1"']


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_only_the_split_asked_for_is_read(tmp_path, kind):
    rows = [{"text": "a", "split": "train"}, {"text": "b", "split": "valid"}, {"text": "c", "split": "test"}]
    path = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    else:
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    assert texts(path) == ["a"]
    assert texts(path, split="valid") == ["b"]
    with pytest.raises(InputError, match=r"1 with split='train', 1 with split='valid', 1 with split='test'"):
        texts(path, split="dev")


def test_a_split_that_is_no_text_is_another_and_a_row_without_values_is_blank(tmp_path):
    path = write(tmp_path / "x.jsonl", '{"text": "a", "split": 0}\n{}\n{"text": "b"}\n{"text": "c", "split": false}\n')
    source = TextSource(path)
    assert list(source.texts()) == ["b"]
    assert source.manifest()["other_splits"] == {"0": 1, "False": 1}
    assert source.manifest()["blank"] == 1


def test_a_folder_with_a_file_called_shard_is_read_as_any_other(tmp_path):
    for name in ("shard-1.txt", "other.txt", "more/b.txt"):
        write(tmp_path / name, name)
    assert texts(tmp_path) == ["more/b.txt", "other.txt", "shard-1.txt"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.txt", b"good\nbad \xff byte\nmore\n", r"x\.txt:2: wanted UTF-8, got byte 0xff at byte 5 of the line"),
        ("field.jsonl", b'{"body": "a", "id": 1}', r"field\.jsonl:1: text is missing; the columns are 'body', 'id'"),
        ("table.csv", b"body,id\na,1\n", r"table\.csv:2: text is missing; the columns are 'body', 'id'"),
        ("type.jsonl", b'{"text": "a"}\n{"text": 7}', r"type\.jsonl:2: text is 7\. Wanted a text"),
        ("half.jsonl", b'{"text": "\\ud83d"}', r"half\.jsonl:1: text holds half a surrogate pair"),
        ("broken.parquet", b"PAR1 and nothing more", r"broken\.parquet:1: not a sound parquet file"),
    ],
)
def test_bad_input_is_named_or_skipped_and_listed(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        texts(path)
    good = write(tmp_path / "zz-good.txt", "good one\ngood two\n")
    source = TextSource([path, good], on_error="skip")
    assert list(source.texts())[-2:] == ["good one", "good two"]
    manifest = source.manifest()
    assert manifest["skipped"] == 1
    assert str(path) in manifest["skipped_where"][0]


def test_a_document_that_is_a_file_is_whole_or_none(tmp_path):
    write(tmp_path / "docs" / "a.txt", b"good\nbad \xff byte\nmore\n")
    write(tmp_path / "docs" / "b.txt", "whole\n")
    assert texts(tmp_path / "docs", on_error="skip") == ["whole"]


def test_a_parquet_file_without_the_column_says_which_it_has(tmp_path):
    pa.parquet.write_table(pa.table({"body": ["x"], "split": ["train"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet:1: text is missing; the columns are 'body', 'split'"):
        texts(tmp_path / "a.parquet")


def test_skipped_rows_are_all_counted_and_the_first_twenty_listed(tmp_path):
    path = write(tmp_path / "a.jsonl", "[]\n" * 50 + '{"text": "x"}\n')
    source = TextSource(path, on_error="skip")
    assert list(source.texts()) == ["x"]
    assert source.manifest()["skipped"] == 50
    assert [where.split(": ")[0] for where in source.manifest()["skipped_where"]] == [
        f"{path}:{n}" for n in range(1, 21)
    ]


def test_nothing_to_read(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file.*Check data\.path"):
        TextSource(tmp_path / "nowhere.txt")
    with pytest.raises(InputError, match=r"a\.txt: no document in it.*2 blank"):
        texts(write(tmp_path / "a.txt", "\n\n"))
    with pytest.raises(InputError, match="list of paths is empty"):
        TextSource([])


def test_fingerprint_follows_the_file_and_the_manifest_its_content(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    source = TextSource(path)
    before = source.fingerprint()
    assert before == TextSource(str(path)).fingerprint() == json.loads(json.dumps(before))
    assert source.manifest()["sha256"] == hashlib.sha256(b"one\n").hexdigest()
    assert before != TextSource(path, document="file").fingerprint()
    write(path, "two\n")
    os.utime(path, ns=(1, 1))
    assert source.fingerprint() != before


def test_fingerprint_sees_a_content_that_came_with_the_old_size_and_time(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    before, stat = TextSource(path).fingerprint(), path.stat()
    time.sleep(0.02)  # more than a tick of the clock that stamps files
    path.write_text("two\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert TextSource(path).fingerprint() != before


def test_fingerprint_does_not_read_the_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "one\n")
    source = TextSource(path)
    monkeypatch.setattr("pathlib.Path.open", lambda *_: pytest.fail("the file was opened"))
    assert source.fingerprint()["files"][0][:2] == [str(path.resolve()), 4]
