"""Rows are read unchanged from files of every format, and every error has its location."""

import codecs
import csv
import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contrastive_encoders.core import InputError
from contrastive_encoders.io.file_discovery import check_output_apart, list_files
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.rows import count_rows, read_rows, read_windows, text_in
from contrastive_encoders.io.text_files import BadRow

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


def write_file(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def values_of(path):
    return [tuple(row.values.values()) for row in read_rows(path)]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_rows(tmp_path, kind, packed):
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
def test_any_text_is_read_unchanged(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    rows = [(f"q: {left}", f"a: {right}") for left, right in rows]  # not the header
    for kind in ("csv", "jsonl", "json", "parquet"):
        assert values_of(content(folder / f"x.{kind}", NAMES[:2], rows)) == rows


def test_lines_are_read_unchanged(tmp_path):
    path = write_file(tmp_path / "a.txt", b'\xef\xbb\xbf A "quote" \r\n\n  \nB\xe2\x80\xa8C\nlast')
    rows = list(read_rows(path))
    assert [row.values["text"] for row in rows] == [' A "quote" ', "", "  ", "B\u2028C", "last"]
    assert [row.line for row in rows] == [1, 2, 3, 4, 5]
    assert count_rows([path]) == 5, "blank lines of a text file are rows"


def test_rows_have_their_line_number(tmp_path):
    table = write_file(tmp_path / "a.csv", 'q,a\n1,"two\nlines"\n\n2,b\n')
    assert [(row.line, row.values) for row in read_rows(table)] == [
        (2, {"q": "1", "a": "two\nlines"}),
        (4, {}),
        (5, {"q": "2", "a": "b"}),
    ]
    assert count_rows([table]) == 2
    list_file = write_file(tmp_path / "a.json", '\ufeff[\n{"q":\n "1"},\n\n{"q": "2"}\n ]\n')
    assert [(row.line, row.values["q"]) for row in read_rows(list_file)] == [(2, "1"), (5, "2")]
    nested = write_file(tmp_path / "nested.json", '{"t": {"en": "1", "de": "2"}}\n{"t": {"en": "3", "de": "4"}}\n')
    assert [row.values["t"]["en"] for row in read_rows(nested, ["t"])] == ["1", "3"]
    lines = write_file(tmp_path / "lines.json", '{"q": "1"}\n\n{"q": "2"}\n')
    assert [(row.line, row.values) for row in read_rows(lines)] == [(1, {"q": "1"}), (2, {}), (3, {"q": "2"})]


@pytest.mark.parametrize("name", ["sts-train.csv", "sts-dev.tsv", "sts-test.csv.gz"])
def test_files_of_stsb_are_recognized_by_their_content(tmp_path, name):
    data = STSB.encode()
    rows = list(read_rows(write_file(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)))
    assert [row.values["sentence1"] for row in rows] == ['A "lone quote.', "C."]
    assert [(row.line, row.values["sentence2"], row.values["score"]) for row in rows] == [
        (1, "B, and more.", "2.500"),
        (2, "D.", "5"),
    ]


def test_quotation_marks_are_text_in_tsv_and_quote_in_csv(tmp_path):
    assert values_of(write_file(tmp_path / "a.tsv", 'q\ta\n"x\ty"\n')) == [('"x', 'y"')]
    assert values_of(write_file(tmp_path / "a.csv", 'q,a\n"x,""y""",z\n')) == [('x,"y"', "z")]


def test_only_requested_columns_are_read_from_parquet(tmp_path):
    path = content(tmp_path / "a.parquet", NAMES, ROWS)
    assert next(read_rows(path, ["a", "split"])).values == {"a": "NA"}
    assert set(next(read_rows(path, ["text", "a"])).values) == set(NAMES), "so that a message can name them"


def test_items_of_a_list_may_be_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.io.json_list.BLOCK", 3)
    rows = [{"text": "ß家🙂" * n, "n": n, "yes": [True, None, -1.5e-3], "\u2028": {}} for n in range(1, 40)]
    for indent in (None, 2):
        path = write_file(tmp_path / "a.json", json.dumps(rows, ensure_ascii=indent is None, indent=indent))
        assert [row.values for row in read_rows(path)] == rows


@pytest.mark.rotates
@pytest.mark.parametrize("kind", ["txt", "jsonl", "json", "csv", "tsv", "parquet"])
def test_memory_does_not_depend_on_the_number_of_rows(tmp_path, kind):
    rows = [(f"sentence number {number} of a long file of them", "and more") for number in range(30_000)]
    path = tmp_path / f"a.{kind}"
    if kind == "txt":
        write_file(path, "".join(f"{text}\n" for text, _ in rows))
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
WRONG = {  # name of the file: its content, the line, the fault, and facts in the message
    "x.txt": ("gööd\n".encode() + b"bad \xff byte\nmore\n", 2, "undecodable", ["UTF-8", "0xff", "byte 5 ", "iconv"]),
    "odd.txt": (codecs.BOM_UTF16_LE + b"h\0i", 1, "undecodable", ["UTF-16", "byte 5 ", "UTF-8"]),
    "empty.txt": (b"", 1, "empty", []),
    "short.txt.gz": (gzip.compress(os.urandom(9000).hex().encode())[:-800], 1, "malformed", ["gzip -t"]),
    "short.jsonl.gz": (gzip.compress(GOOD.encode() * 5000)[:-60], None, "malformed", ["gzip -t"]),
    "plain.jsonl.gz": (GOOD, 1, "malformed", ["gzip"]),
    "broken.jsonl": (GOOD + '{"q": "b"', 2, "malformed", ["Expecting ',' delimiter", '{"q": "b"']),
    "deep.jsonl": (GOOD + "[" * 100_000, 2, "malformed", ["recursion"]),
    "list.jsonl": (GOOD + "[1, 2]", 2, "malformed", ["list [1, 2]"]),
    "twice.jsonl": (GOOD + '{"q": "1", "a": "2", "q": "3"}', 2, "malformed", ["name"]),
    "open.json": ('[{"q": "1"},\n{"q": "2"}', 2, "malformed", ["','", "end"]),
    "columns.json": (json.dumps({"q": ["1", "2"], "a": ["3", "4"]}), 1, "malformed", ["'q', 'a'", "records"]),
    "wrapped.json": (json.dumps({"data": [{"q": "1"}]}), 1, "malformed", ["'data'", "[{...}, ...]"]),
    "pandas.json": (pandas.DataFrame({"q": ["1", "2"]}).to_json(), 1, "malformed", ["'q'", "records"]),
    "more.json": ('[{"q": "1"}]\n[]', 2, "malformed", ["'['"]),
    "pretty.json": (json.dumps({"q": "1", "a": ["2"]}, indent=1), 1, "malformed", ["'['", "'{'"]),
    "twice.csv": ("q,a,q\na,b,c\n", 1, "malformed", ["header", "'q'"]),
    "cells.csv": ("q,a,n\na,b,c\na,b\n", 3, "malformed", ["3 columns", "got 2"]),
    "open.csv": ('q,a\nx,"two\nlines"\n"never,closed\n', 4, "malformed", ["unexpected end of data"]),
    "quote.csv": ('q,a\nx,"b"c\n', 2, "malformed", ["expected after"]),
    "cells.tsv": ("q\ta\na\tb\tc\n", 2, "malformed", ["2 columns", "got 3"]),
    "stsb.csv": (STSB + "a\tb\n", 3, "malformed", ["7 columns", "got 2"]),
    "broken.parquet": (b"PAR1 and nothing more", 1, "malformed", ["Parquet"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_row_has_its_line_and_fault(tmp_path, name):
    data, line, fault, facts = WRONG[name]
    path = write_file(tmp_path / name, data)
    bad = [row for row in read_rows(path) if isinstance(row, BadRow)]
    assert len(bad) == 1
    assert line in (None, bad[0].line)
    assert bad[0].fault == fault
    assert all(fact in bad[0].message for fact in facts), bad[0].message
    column = "sentence1" if name == "stsb.csv" else "q"
    with pytest.raises(InputError) as caught:
        list(read_windows([path], column, 1000, lambda _: True, " Correct it."))
    assert (caught.value.location, caught.value.value) == (f"{path}:{bad[0].line}", fault)
    assert caught.value.hint in (None, "Correct it.")  # a truncated file has no row to correct
    assert bad[0].message in str(caught.value)


def test_rows_without_values_are_blank_and_not_counted(tmp_path):
    for name, data in {
        "a.jsonl": '{"q": "1"}\n{}\n { } \n \n\u00a0\u3000\x1f\n{"q": "2"}\n',
        "a.json": '[{"q": "1"}, {}, {"q": "2"}]',
        "a.tsv": "q\ta\n1\tb\n   \n\n2\tc\n",
        "a.csv": "q,a\n1,b\n\n2,c\n",
    }.items():
        path = write_file(tmp_path / name, data)
        assert [row.values["q"] for row in read_rows(path) if row.values] == ["1", "2"]
        assert count_rows([path]) == 2
        assert list(read_windows([path], "q", 9, lambda _: True)) == [(0, ["1", "2"])]
    tabs = write_file(tmp_path / "tabs.tsv", "q\ta\n\t\n")
    assert ([row.values for row in read_rows(tabs)], count_rows([tabs])) == ([{"q": "", "a": ""}], 1)


def test_rows_after_a_bad_row_are_read(tmp_path):
    path = write_file(
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
def test_a_value_that_is_not_a_string_is_refused(tmp_path, value, fault):
    [row] = read_rows(write_file(tmp_path / "a.jsonl", f'{{"q": {value}, "a": ""}}'))
    bad = text_in(row, "q")
    assert (bad.line, bad.fault) == (1, fault)
    missing = text_in(row, "b")
    assert (missing.line, missing.fault) == (1, "malformed")
    assert "'q', 'a'" in missing.message
    assert text_in(row, "a") == ""


# ---------------------------------------------------------------------------------------------------- file discovery


def names_of(*paths, **options):
    return [file.path.name for file in list_files(list(paths), **options)]


def test_files_folders_and_patterns_in_order(tmp_path):
    for name in ("b.txt", "a.jsonl.gz", "sub/c.csv", "sub/manifest.json", ".hidden.txt", "note.md", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_file(tmp_path / name, "x")
    assert names_of(tmp_path) == ["a.jsonl.gz", "b.txt", "c.csv"]
    assert names_of(tmp_path / "*.txt", tmp_path / "a.jsonl.gz") == ["b.txt", "a.jsonl.gz"]
    assert names_of(f"{tmp_path}/**/*.csv") == ["c.csv"]
    assert [file.in_folder for file in list_files([tmp_path / "b.txt", tmp_path / "sub"])] == [False, True]
    assert form_of(tmp_path / "A.B.JSONL.GZ") == ".jsonl"


def test_only_the_shards_of_a_synthesis_are_listed(tmp_path):
    names = ["annotation.csv", "dropped.jsonl", "shard-00000.jsonl", "shard-00001.jsonl", "x1/shard-00000.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_file(tmp_path / name, "x")
    assert names_of(tmp_path) == [Path(name).name for name in names], "the names alone do not make it a synthesis"
    write_file(tmp_path / "manifest.json", "{}")
    assert names_of(tmp_path) == ["shard-00000.jsonl", "shard-00001.jsonl"]
    assert names_of(tmp_path / "dropped.jsonl", tmp_path / "shard-00001.jsonl") == [
        "dropped.jsonl",
        "shard-00001.jsonl",
    ]


def refusal(path, key="input"):
    with pytest.raises(InputError) as error:
        list_files(path, key)
    assert error.value.key == key
    return error.value


def test_a_wrong_path_is_refused(tmp_path):
    write_file(tmp_path / "corpus.txt", "x")
    (tmp_path / "texts").mkdir()
    write_file(tmp_path / "notes.docx", "x")
    write_file(tmp_path / "texts.zip", "x")
    for name, expected, hint in (
        ("corpsu.txt", str(Path.cwd()), str(tmp_path / "corpus.txt")),
        ("*.tsv", "pattern", None),
        ("notes.docx", ".parquet", "data=text"),
        ("texts.zip", ".parquet", "unpack"),
    ):
        error = refusal(tmp_path / name, "data.path")
        assert error.value == tmp_path / name
        assert expected in error.expected
        assert hint in error.hint if hint else error.hint is None
    empty = refusal(tmp_path / "texts")
    assert (empty.location, empty.key, empty.hint) == (str(tmp_path / "texts"), "input", None)
    assert names_of(tmp_path / "notes.docx", any_name=True) == ["notes.docx"]
    (tmp_path / "corpus.txt").unlink()
    documents = refusal(tmp_path, "data.path")
    assert (documents.location, "notes.docx" in documents.value) == (str(tmp_path), True)
    assert "data=text" in documents.hint
    assert refusal([]).value == []
    for paths, value in (("", ""), ([" ", "a.txt"], " ")):
        assert refusal(paths).value == value


def test_brackets_in_the_name_of_a_folder_are_not_a_pattern(tmp_path):
    folder = tmp_path / "br[1]"
    folder.mkdir()
    for name in ("corpus.txt", "n1.csv", "n2.csv"):
        write_file(folder / name, "x")
    assert names_of(folder / "*.txt") == ["corpus.txt"]
    assert names_of(folder / "n[1].csv") == ["n1.csv"]
    assert str(folder / "corpus.txt") in refusal(folder / "corpsu.txt").hint


def test_an_output_that_would_be_read_as_input_is_refused(tmp_path):
    (tmp_path / "br[1]" / "sub").mkdir(parents=True)
    output = tmp_path / "br[1]" / "sub" / "o.npy"
    record = output.with_name("o.npy.json")
    for path in ("", "br[1]", "br[1]/sub", "br[1]/*", "br[1]/**/*.json", "*", "br[1]/sub/o.npy.*"):
        with pytest.raises(InputError) as error:
            check_output_apart(tmp_path / path, output, record)
        assert (error.value.key, error.value.value) == ("output", output)
        assert f"input={tmp_path / path}" in error.value.expected
    for path in ("br[1]/*.json", "br[1]/sub/*.txt", "br[1]/sub/t.txt", "other", "br[2]/**"):
        check_output_apart([tmp_path / path], output, record)
