"""Rows are read from every kind of file unchanged, and every error of a file is named."""

import codecs
import csv
import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contrastive_encoders.core import InputError
from contrastive_encoders.io.file_discovery import check_output_apart, form_of, list_files
from contrastive_encoders.io.rows import BadRow, count_rows, read_rows, read_windows, text_in

KINDS = ["jsonl", "json", "csv", "tsv", "parquet"]
NAMES = ("q", "a", "n")
ROWS = [
    ("None", "NA", "null"),
    ('She said "no", twice.', "A comma, here", "N/A"),
    ("two\u2028lines", " blanks around ", "ß 家 🙂"),
]
STSB = (
    'main-captions\tMSRvid\t2012test\t0024\t2.500\tA "lone quote.\tB, and more.\n'
    "main-captions\tMSRvid\t2012test\t0033\t5\tC.\tD.\tCC BY\tother\n"
)


def content(path, names, rows):
    """Write rows in the format that the name of the path gives."""
    table = [dict(zip(names, row, strict=True)) for row in rows]
    plain = path.with_name(path.name.removesuffix(".gz"))
    if plain.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), plain, row_group_size=max(2, len(rows) // 10))
    elif plain.suffix == ".jsonl":
        plain.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table), encoding="utf-8")
    elif plain.suffix == ".json":
        plain.write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")
    elif plain.suffix == ".csv":
        with plain.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([names, *rows])
    else:
        plain.write_text("".join("\t".join(row) + "\n" for row in [names, *rows]), encoding="utf-8")
    if plain != path:
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    return path


def written(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def values_of(path):
    return [tuple(row.values.values()) for row in read_rows(path)]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_rows(tmp_path, kind, packed):
    path = content(tmp_path / f"a.{kind}{packed}", NAMES, ROWS)
    assert [row.values for row in read_rows(path)] == [dict(zip(NAMES, row, strict=True)) for row in ROWS]
    assert count_rows([path, path]) == 6
    windows = list(read_windows([path, path], "q", 2, lambda number: number != 1))
    assert windows == [(0, [ROWS[0][0], ROWS[1][0]]), (2, [ROWS[1][0], ROWS[2][0]])]


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))] * 2), min_size=1)
)
@example([("", "00 \x00")])
def test_any_text_survives(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    rows = [(f"q{left}", f"a{right}") for left, right in rows]
    for kind in ("csv", "jsonl", "json", "parquet"):
        assert values_of(content(folder / f"x.{kind}", NAMES[:2], rows)) == rows


def test_lines_stay_as_they_are(tmp_path):
    path = written(tmp_path / "a.txt", b'\xef\xbb\xbf A "quote" \r\n\n  \nB\xe2\x80\xa8C\nlast')
    rows = list(read_rows(path))
    assert [row.values["text"] for row in rows] == [' A "quote" ', "", "  ", "B\u2028C", "last"]
    assert [row.line for row in rows] == [1, 2, 3, 4, 5]
    assert count_rows([path]) == 5, "blank lines of a text file are rows"


def test_rows_know_their_line(tmp_path):
    table = written(tmp_path / "a.csv", 'q,a\n1,"two\nlines"\n\n2,b\n')
    assert [(row.line, row.values) for row in read_rows(table)] == [
        (2, {"q": "1", "a": "two\nlines"}),
        (4, {}),
        (5, {"q": "2", "a": "b"}),
    ]
    assert count_rows([table]) == 2
    listed = written(tmp_path / "a.json", '\ufeff[\n{"q":\n "1"},\n\n{"q": "2"}\n ]\n')
    assert [(row.line, row.values["q"]) for row in read_rows(listed)] == [(2, "1"), (5, "2")]
    lines = written(tmp_path / "lines.json", '{"q": "1"}\n\n{"q": "2"}\n')
    assert [(row.line, row.values) for row in read_rows(lines)] == [(1, {"q": "1"}), (2, {}), (3, {"q": "2"})]


@pytest.mark.parametrize("name", ["sts-train.csv", "sts-dev.tsv", "sts-test.csv.gz"])
def test_the_files_of_stsb_are_known_by_what_they_hold(tmp_path, name):
    data = STSB.encode()
    rows = list(read_rows(written(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)))
    assert [row.values["sentence1"] for row in rows] == ['A "lone quote.', "C."]
    assert [(row.line, row.values["sentence2"], row.values["score"]) for row in rows] == [
        (1, "B, and more.", "2.500"),
        (2, "D.", "5"),
    ]


def test_quotation_marks_are_text_between_tabs_and_quote_between_commas(tmp_path):
    assert values_of(written(tmp_path / "a.tsv", 'q\ta\n"x\ty"\n')) == [('"x', 'y"')]
    assert values_of(written(tmp_path / "a.csv", 'q,a\n"x,""y""",z\n')) == [('x,"y"', "z")]


def test_only_the_columns_asked_for_are_read_of_parquet(tmp_path):
    path = content(tmp_path / "a.parquet", NAMES, ROWS)
    assert next(read_rows(path, ["a", "split"])).values == {"a": "NA"}
    assert set(next(read_rows(path, ["text", "a"])).values) == set(NAMES), "so that a message can name them"


def test_items_of_a_list_may_be_longer_than_what_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.io.json_list.BLOCK", 3)
    rows = [{"text": "ß家🙂" * n, "n": n, "yes": [True, None, -1.5e-3], "\u2028": {}} for n in range(1, 40)]
    for indent in (None, 2):
        path = written(tmp_path / "a.json", json.dumps(rows, ensure_ascii=indent is None, indent=indent))
        assert [row.values for row in read_rows(path)] == rows


@pytest.mark.parametrize("kind", ["txt", "jsonl", "json", "csv", "tsv", "parquet"])
def test_many_rows_take_the_memory_of_a_few(tmp_path, kind):
    rows = [(f"sentence number {number} of a long file of them", "and more") for number in range(30_000)]
    path = tmp_path / f"a.{kind}"
    if kind == "txt":
        written(path, "".join(f"{text}\n" for text, _ in rows))
    else:
        content(path, ("text", "more"), rows)
    del rows
    next(read_rows(path))  # imports
    tracemalloc.start()
    assert sum(1 for _ in read_rows(path)) == 30_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


GOOD = '{"q": "p", "a": "e"}\n'
WRONG = {  # name of the file: its content, the line, and parts of the message
    "x.txt": (
        "gööd\n".encode() + b"bad \xff byte\nmore\n",
        2,
        ["expected UTF-8, got byte 0xff at byte 5 of the line", "iconv"],
    ),
    "odd.txt": (codecs.BOM_UTF16_LE + b"h\0i", 1, ["expected UTF-16", "at byte 5 of the file", "write it as UTF-8"]),
    "empty.txt": (b"", 1, ["the file is empty"]),
    "short.txt.gz": (gzip.compress(os.urandom(9000).hex().encode())[:-800], 1, ["cut short", "gzip -t"]),
    "short.jsonl.gz": (gzip.compress(GOOD.encode() * 5000)[:-60], None, ["the gzip stream ends early"]),
    "plain.jsonl.gz": (GOOD, 1, ["not a sound gzip stream"]),
    "broken.jsonl": (GOOD + '{"q": "b"', 2, ["broken JSON", "one JSON object per line"]),
    "deep.jsonl": (GOOD + "[" * 100_000, 2, ["broken JSON"]),
    "list.jsonl": (GOOD + "[1, 2]", 2, ["wanted a JSON object with named values, got list"]),
    "twice.jsonl": (GOOD + '{"q": "1", "a": "2", "q": "3"}', 2, ["names a value twice"]),
    "open.json": ('[{"q": "1"},\n{"q": "2"}', 2, ["broken JSON (wanted ',', got the end of the file)"]),
    "more.json": ('[{"q": "1"}]\n[]', 2, ["wanted nothing behind the list, got '['"]),
    "pretty.json": (json.dumps({"q": "1", "a": ["2"]}, indent=1), 1, ["wanted '[', got '{'", "or one per line"]),
    "twice.csv": ("q,a,q\na,b,c\n", 1, ["the header names 'q' twice"]),
    "cells.csv": ("q,a,n\na,b,c\na,b\n", 3, ["wanted 3 columns as in the header, got 2"]),
    "open.csv": ('q,a\nx,"two\nlines"\n"never,closed\n', 4, ["broken CSV"]),
    "quote.csv": ('q,a\nx,"b"c\n', 2, ["broken CSV", "quotation marks inside doubled"]),
    "cells.tsv": ("q\ta\na\tb\tc\n", 2, ["wanted 2 columns as in the header, got 3"]),
    "stsb.csv": (STSB + "a\tb\n", 3, ["wanted 7 columns", "got 2"]),
    "broken.parquet": (b"PAR1 and nothing more", 1, ["not a sound parquet file"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_named_with_its_place(tmp_path, name):
    data, line, words = WRONG[name]
    path = written(tmp_path / name, data)
    bad = [row for row in read_rows(path) if isinstance(row, BadRow)]
    assert len(bad) == 1
    assert line in (None, bad[0].line)
    assert all(word in bad[0].message for word in words), bad[0].message
    with pytest.raises(InputError) as caught:
        list(read_windows([path], "sentence1" if name == "stsb.csv" else "q", 1000, lambda _: True, " Say so."))
    assert str(caught.value).startswith(f"{path}:{bad[0].line}: {bad[0].message}.")


def test_rows_without_values_are_blank_and_not_counted(tmp_path):
    for name, data in {
        "a.jsonl": '{"q": "1"}\n{}\n { } \n \n\u00a0\u3000\x1f\n{"q": "2"}\n',
        "a.json": '[{"q": "1"}, {}, {"q": "2"}]',
        "a.tsv": "q\ta\n1\tb\n   \n\n2\tc\n",
        "a.csv": "q,a\n1,b\n\n2,c\n",
    }.items():
        path = written(tmp_path / name, data)
        assert [row.values["q"] for row in read_rows(path) if row.values] == ["1", "2"]
        assert count_rows([path]) == 2
        assert list(read_windows([path], "q", 9, lambda _: True)) == [(0, ["1", "2"])]
    tabs = written(tmp_path / "tabs.tsv", "q\ta\n\t\n")
    assert ([row.values for row in read_rows(tabs)], count_rows([tabs])) == ([{"q": "", "a": ""}], 1)


def test_rows_behind_a_bad_one_are_read(tmp_path):
    path = written(
        tmp_path / "d.csv",
        'q,a\nq1,ä1\nq2\nq3,"a"x\nq4,\udcff\nq5,\nq6,"two\nlines"\n,\nq7,a7\n'.encode(errors="surrogateescape"),
    )
    rows = list(read_rows(path))
    assert [(row.line, row.fault) for row in rows if isinstance(row, BadRow)] == [
        (3, "malformed"),
        (4, "malformed"),
        (5, "undecodable"),
    ]
    assert [row.values["q"] for row in rows if not isinstance(row, BadRow)] == ["q1", "q5", "q6", "", "q7"]


@pytest.mark.parametrize(
    ("value", "fault"),
    [("null", "empty"), ("true", "malformed"), ('"\\ud83d"', "undecodable")],
)
def test_a_value_that_is_no_text(tmp_path, value, fault):
    [row] = read_rows(written(tmp_path / "a.jsonl", f'{{"q": {value}, "a": ""}}'))
    bad = text_in(row, "q")
    assert (bad.line, bad.fault) == (1, fault)
    assert text_in(row, "b") == BadRow("b is missing; the columns are 'q', 'a'. Wanted a text", 1)
    assert text_in(row, "a") == ""


# ------------------------------------------------------------------------------------------------ which files are meant


def listed(*paths, **options):
    return [file.path.name for file in list_files(list(paths), **options)]


def test_files_folders_and_patterns_in_order(tmp_path):
    for name in ("b.txt", "a.jsonl.gz", "sub/c.csv", "sub/manifest.json", ".hidden.txt", "note.md", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, "x")
    assert listed(tmp_path) == ["a.jsonl.gz", "b.txt", "c.csv"]
    assert listed(tmp_path / "*.txt", tmp_path / "a.jsonl.gz") == ["b.txt", "a.jsonl.gz"]
    assert listed(f"{tmp_path}/**/*.csv") == ["c.csv"]
    assert [file.in_folder for file in list_files([tmp_path / "b.txt", tmp_path / "sub"])] == [False, True]
    assert form_of(tmp_path / "A.B.JSONL.GZ") == ".jsonl"


def test_of_a_synthesis_only_the_shards_are_meant(tmp_path):
    names = ["annotation.csv", "dropped.jsonl", "shard-00000.jsonl", "shard-00001.jsonl", "x1/shard-00000.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, "x")
    assert listed(tmp_path) == [Path(name).name for name in names], "a folder whose files are called so is none"
    written(tmp_path / "manifest.json", "{}")
    assert listed(tmp_path) == ["shard-00000.jsonl", "shard-00001.jsonl"]
    assert listed(tmp_path / "dropped.jsonl", tmp_path / "shard-00001.jsonl") == ["dropped.jsonl", "shard-00001.jsonl"]


def test_what_is_not_there_suggests_its_neighbors(tmp_path):
    written(tmp_path / "corpus.txt", "x")
    (tmp_path / "texts").mkdir()
    written(tmp_path / "notes.docx", "x")
    written(tmp_path / "texts.zip", "x")
    for path, message in {
        tmp_path / "corpsu.txt": r"no such file or folder.*Did you mean .*corpus\.txt",
        tmp_path / "*.tsv": r"\*\.tsv: no file has such a name.*Check input\.",
        tmp_path / "texts": r"texts: no file to read.*an empty folder",
        tmp_path / "notes.docx": r"notes\.docx: a document, where rows are read.*\.parquet.*data=text",
        tmp_path / "texts.zip": r"texts\.zip: cannot tell.*\.parquet.*[Uu]npack it",
    }.items():
        with pytest.raises(InputError, match=message):
            list_files(path, "input")
    assert listed(tmp_path / "notes.docx", any_name=True) == ["notes.docx"]
    (tmp_path / "corpus.txt").unlink()
    with pytest.raises(InputError, match=r"no file to read.*notes\.docx\. Documents are read by data=text"):
        list_files(tmp_path)
    with pytest.raises(InputError, match=r"list of paths is empty. Pass input="):
        list_files([], "input")
    for empty in ("", [" ", "a.txt"]):
        with pytest.raises(InputError, match=r"^input is empty"):
            list_files(empty, "input")


def test_brackets_in_the_name_of_a_folder_are_no_pattern(tmp_path):
    folder = tmp_path / "br[1]"
    folder.mkdir()
    for name in ("corpus.txt", "n1.csv", "n2.csv"):
        written(folder / name, "x")
    assert listed(folder / "*.txt") == ["corpus.txt"]
    assert listed(folder / "n[1].csv") == ["n1.csv"]
    with pytest.raises(InputError, match=r"Did you mean .*br\[1\]/corpus\.txt"):
        list_files(folder / "corpsu.txt")


def test_an_output_that_would_be_read_as_input_is_refused(tmp_path):
    (tmp_path / "br[1]" / "sub").mkdir(parents=True)
    output = tmp_path / "br[1]" / "sub" / "o.npy"
    beside = output.with_name("o.npy.json")
    for path in ("", "br[1]", "br[1]/sub", "br[1]/*", "br[1]/**/*.json", "*", "br[1]/sub/o.npy.*"):
        with pytest.raises(InputError, match=r"^output=.*o\.npy lies in input=.*Choose one beside it"):
            check_output_apart(tmp_path / path, output, beside)
    for path in ("br[1]/*.json", "br[1]/sub/*.txt", "br[1]/sub/t.txt", "other", "br[2]/**"):
        check_output_apart([tmp_path / path], output, beside)
