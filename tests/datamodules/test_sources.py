"""Sources yield the contents of the files, and name file and line of what they cannot read."""

import gzip
import hashlib
import json
import os
import re
import time

import pyarrow as pa
import pyarrow.parquet
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.export.input_texts import open_texts
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
    """Make a folder as a project has it."""
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
    source = TextSource(docs(tmp_path / "docs"), on_error="skip", max_skipped=0.2)
    assert list(source.texts()) == ["Guide\n\nFirst of all.", "More\n\none", "Page\n\nof text", "two\nlines"]
    found = source.manifest()
    assert found["kinds"] == {".md": 2, ".html": 1, ".txt": 1}, "without the .pdf, which cannot be read"
    assert found["passed_over"] == {".png": 1, "Makefile": 1}
    assert found["skipped"] == 1
    assert "cut.pdf:1: " in found["skipped_where"][0]
    assert texts(f"{tmp_path}/docs/**/*.md") == ["Guide\n\nFirst of all.", "More\n\none"]
    assert texts(tmp_path / "docs" / "guide.md", document="line") == ["Guide\n\nFirst of all."], "one document"


def test_descriptions_of_data_are_not_documents(tmp_path):
    write(tmp_path / "data" / "rows.jsonl", json.dumps({"text": "row"}))
    for name in ("README.md", "MANIFEST.md", "data/readme.md"):
        write(tmp_path / name, "# About the rows\n")
    write(tmp_path / "guide.md", "guide")
    source = TextSource(tmp_path)
    assert list(source.texts()) == ["row", "guide"]
    assert source.manifest()["passed_over"] == {".md": 3}
    assert texts(tmp_path / "README.md") == ["About the rows"], "it is read if it is named"


def retrieval_data(folder, layout):
    """Write a corpus of two documents, a query, and judgments; return the number of the other files."""
    tables = {
        "corpus": [{"_id": "d1", "title": "T", "text": "first"}, {"_id": "d2", "title": "", "text": "second"}],
        "queries": [{"_id": "q1", "text": "a question of the test"}],
        "qrels": [{"query-id": "q1", "corpus-id": "d1", "score": 1}],
    }
    for part, rows in tables.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        if layout == "parquet":
            write(folder / part / "train-00000-of-00001.parquet", "")
            pa.parquet.write_table(pa.Table.from_pylist(rows), folder / part / "train-00000-of-00001.parquet")
        elif part != "qrels":
            write(folder / f"{part}.jsonl{'.gz' if layout == 'gzip' else ''}", lines)
        elif layout == "TREC":
            write(folder / "qrels" / "test.qrels", "q1 0 d1 1\n")
        elif layout != "no qrels":
            write(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return 1 if layout == "no qrels" else 2


@pytest.mark.parametrize("layout", ["jsonl", "gzip", "parquet", "TREC", "no qrels"])
@pytest.mark.parametrize("below", [".", "name", "more/name"])
def test_only_the_corpus_of_retrieval_data_is_documents(tmp_path, layout, below):
    """The queries of a test must not be trained on."""
    outside = retrieval_data(tmp_path / below, layout)
    source = TextSource(tmp_path)
    assert list(source.texts()) == ["first", "second"]
    assert list(source.manifest()["passed_over"].values()) == [outside]
    embedded = open_texts(str(tmp_path), None)
    assert [text for _, window in embedded.windows(9, lambda _: True) for text in window] == ["first", "second"]


def test_documents_outside_of_retrieval_data_are_read(tmp_path):
    write(tmp_path / "queries.jsonl", '{"text": "no corpus is here"}')
    write(tmp_path / "texts" / "corpus" / "1.txt", "a corpus of texts")
    write(tmp_path / "texts" / "queries" / "2.txt", "about queries")
    retrieval_data(tmp_path / "beir", "jsonl")
    found = ["first", "second", "no corpus is here", "a corpus of texts", "about queries"]
    assert texts(tmp_path) == found
    assert texts([tmp_path / "beir", tmp_path / "beir" / "queries.jsonl"])[2:] == ["a question of the test"], "named"
    write(tmp_path / "beir" / "notes" / "guide.md", "a document next to the tables")
    write(tmp_path / "beir" / "products.jsonl", '{"text": "another table"}')
    assert texts(tmp_path / "beir") == ["first", "second", "a document next to the tables", "another table"]


def test_parts_of_a_corpus_in_subfolders_are_read(tmp_path):
    write(tmp_path / "corpus" / "part0" / "a.jsonl", '{"text": "first"}')
    write(tmp_path / "corpus" / "b.jsonl", '{"text": "second"}')
    write(tmp_path / "queries" / "part0" / "q.jsonl", '{"text": "a question of the test"}')
    assert sorted(texts(tmp_path)) == ["first", "second"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_only_the_selected_split_is_read(tmp_path, kind):
    rows = [{"text": "a", "split": "train"}, {"text": "b", "split": "valid"}, {"text": "c", "split": "test"}]
    path = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    else:
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    assert texts(path) == ["a"]
    assert texts(path, split="valid") == ["b"]
    with pytest.raises(InputError) as error:
        texts(path, split="dev")
    assert re.findall(r"'(\w+)'", error.value.value) == ["train", "valid", "test"]


def test_rows_with_another_split_or_without_values_are_skipped(tmp_path):
    path = write(tmp_path / "x.jsonl", '{"text": "a", "split": 0}\n{}\n{"text": "b"}\n{"text": "c", "split": false}\n')
    source = TextSource(path)
    assert list(source.texts()) == ["b"]
    assert source.manifest()["other_splits"] == {"0": 1, "False": 1}
    assert source.manifest()["blank"] == 1


def test_a_file_with_one_undecodable_line_is_skipped_completely(tmp_path):
    write(tmp_path / "docs" / "a.txt", "gööd\n".encode() + b"bad \xff byte\nmore\n")
    write(tmp_path / "docs" / "b.txt", "whole\n")
    assert texts(tmp_path / "docs", on_error="skip", max_skipped=0.5) == ["whole"]


def test_missing_and_empty_files_are_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        TextSource(tmp_path / "nowhere.txt")
    assert (caught.value.key, caught.value.value) == ("data.path", tmp_path / "nowhere.txt")
    with pytest.raises(InputError) as caught:
        texts(write(tmp_path / "a.txt", "\n\n"))
    assert (caught.value.location, caught.value.value) == (str(tmp_path / "a.txt"), "2 blank")
    with pytest.raises(InputError) as caught:
        TextSource([])
    assert (caught.value.key, caught.value.value) == ("data.path", [])


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


def test_the_fingerprint_changes_with_the_content_despite_equal_size_and_time(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    before, stat = TextSource(path).fingerprint(), path.stat()
    time.sleep(0.02)  # more than a tick of the clock that stamps files
    path.write_text("two\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert TextSource(path).fingerprint() != before


def test_empty_documents_are_skipped_and_unreadable_files_are_named(tmp_path):
    for number in range(8):
        write(tmp_path / "docs" / f"{number}.md", "text")
    write(tmp_path / "docs" / "empty.md", "")
    assert len(texts(tmp_path / "docs", on_error="skip")) == 8
    for name in ("a.docx", "b.docx"):
        write(tmp_path / "docs" / name, "PK")
    with pytest.raises(InputError) as caught:
        texts(tmp_path / "docs", on_error="skip")
    assert caught.value.key == "data.max_skipped"
    assert all(name in caught.value.hint for name in ("a.docx", "b.docx", "data.max_skipped=0.19"))  # 2 of 11
    assert len(texts(tmp_path / "docs", on_error="skip", max_skipped=0.19)) == 8
