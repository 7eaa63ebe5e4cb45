"""A run on texts as people have them: a folder of documents, and a table that Excel saved."""

import csv
import json

import pytest

PARAGRAPH = "The ferry *leaves* the [harbour](map.md) before the market opens, and a violin plays. " * 12


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(9):
        (folder / f"page-{number}.md").write_text(f"---\nsecret: x\n---\n# Page {number}\n\n{PARAGRAPH}\n")
    (folder / "old.html").write_text(f"<h1>Old</h1><p>{PARAGRAPH}</p>")
    (folder / "cut.pdf").write_text("%PDF-1.4\n")
    (folder / "logo.png").write_bytes(b"\x89PNG")
    return folder


def test_a_folder_of_documents_is_counted_by_kind_in_the_opening_block(docs, tiny_run, command, tmp_path):
    words = [word for word in tiny_run if not word.startswith("data.path=")]
    done = command(*words, f"data.path={docs}", "data.on_error=skip", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    [line] = [line for line in done.err.splitlines() if line.startswith("files ")]
    assert line == "files      9 .md, 1 .pdf, 1 .html; passed over: 1 .png"
    [data] = json.loads((tmp_path / "run" / "results.json").read_text())["data"]
    assert data["source"]["kinds"] == {".md": 9, ".pdf": 1, ".html": 1}
    assert data["source"]["skipped"] == 1
    tokenizer = json.loads((tmp_path / "run" / "encoder" / "tokenizer.json").read_text(encoding="utf-8"))
    known = " ".join(tokenizer["model"]["vocab"])
    assert "harbour" in known
    assert "secret" not in known


def test_a_table_of_excel_is_read_as_it_was_saved(tiny_run, command, tmp_path):
    path = tmp_path / "unicode.csv"
    with path.open("w", encoding="utf-16", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["id", "text"])
        writer.writerows([number, f'{PARAGRAPH}; "{number}"'] for number in range(9))
    words = [word for word in tiny_run if not word.startswith("data.path=")]
    done = command(*words, f"data.path={path}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    assert done.err.count(f"{path}: read with semicolons between the columns") == 1
    assert f"data       {path}: 9 examples" in done.err
