"""The separator of a table is detected, compared with the one that Python's csv.writer used."""

import csv
import gzip
import io
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_encoders.io.rows import count_rows, header_advice, read_rows
from contrastive_encoders.io.text_files import BadRow, Encoding

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
RICH = st.lists(st.sampled_from([*",;\t|", '"', "\n", "a", "b c", "'"]), max_size=9).map("".join)


def table(path, rows, separator, **options):
    made = io.StringIO()
    csv.writer(made, delimiter=separator, lineterminator="\n", **options).writerows(rows)
    path.write_text(made.getvalue(), encoding="utf-8", newline="")
    return path


def cells(path):
    return [tuple(row.values.values()) for row in read_rows(path)]


@settings(deadline=None)
@given(
    st.sampled_from(sorted(SEPARATORS)),
    st.lists(st.tuples(TEXT | RICH, TEXT | RICH), min_size=1, max_size=80),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_the_separator_of_the_writer_is_detected(tmp_path_factory, separator, rows, quoting):
    rows = [(f"q{left}", f"a{right}") for left, right in rows]
    path = table(tmp_path_factory.mktemp("any") / "x.csv", [("question", "answer"), *rows], separator, quoting=quoting)
    assert cells(path) == rows
    assert count_rows([path]) == len(rows)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_names_of_columns_may_contain_the_other_separators(tmp_path, separator):
    names = [f"a {other} b" for other in SEPARATORS]
    rows = [[f"{name} {number}" for name in SEPARATORS.values()] for number in range(3)]
    path = table(tmp_path / "x.csv", [names, *rows], separator)
    assert [row.values for row in read_rows(path)] == [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("text\na; b\nc\n", [("a; b",), ("c",)]),  # one column
        ("text;more\na,b;c\nd,e;f\n", [("a,b", "c"), ("d,e", "f")]),
        ("id,a;b\n1,x\n2,y\n", [("1", "x"), ("2", "y")]),  # a semicolon in a name
        ("id;a, b\n1;x\n2;y\n", [("1", "x"), ("2", "y")]),  # a comma in a name
        ("a;b\n", []),
    ],
)
def test_rows_determine_the_separator_of_an_ambiguous_header(tmp_path, text, rows):
    path = tmp_path / "x.csv"
    path.write_text(text)
    assert cells(path) == rows


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.csv", ";"), ("t.tsv", "\t")])
def test_empty_columns_after_a_table_need_no_names(tmp_path, name, separator):
    """Excel writes such columns if a cell there once had a value."""
    lines = [["q", "a", "", ""], ["where?", "here", "", ""], ["when?", "now", "", "x"]]
    (tmp_path / name).write_text("".join(separator.join(line) + "\n" for line in lines))
    rows = [row.values for row in read_rows(tmp_path / name)]
    assert [(row["q"], row["a"]) for row in rows] == [("where?", "here"), ("when?", "now")]


def test_a_malformed_row_does_not_change_the_separator(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("q;a\n1;2\n3;4;5\n6;7\n")
    found = list(read_rows(path))
    assert [row.line for row in found if isinstance(row, BadRow)] == [3]
    assert [row.values for row in found if not isinstance(row, BadRow)] == [{"q": "1", "a": "2"}, {"q": "6", "a": "7"}]


def test_a_tsv_without_tabs_in_its_header_may_have_another_separator(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('q;1\ta\n"x;y\tz"\n')
    assert cells(path) == [('"x;y', 'z"')]
    path.write_text('q;a\n"x;y";z\n')
    assert cells(path) == [("x;y", "z")]
    path.write_text("q\na;b,c\n")
    assert cells(path) == [("a;b,c",)]


@pytest.mark.parametrize(
    ("first", "separator"), [("sep=;", ";"), ("sep=,", ","), ("sep=|", "|"), ("sep=\t", "\t"), ("sep=;,", ";")]
)
def test_a_first_line_for_excel_sets_the_separator_and_is_not_a_row(tmp_path, first, separator):
    path = tmp_path / "x.csv"
    path.write_text(f'{first}\r\nq{separator}a\r\n"1; 2","3"\r\n'.replace('","', f'"{separator}"'), newline="")
    [row] = read_rows(path)
    assert row == ({"q": "1; 2", "a": "3"}, 3)


def test_a_column_name_that_resembles_that_line_is_a_column(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("sep=x,a\n1,2\n")
    assert cells(path) == [("1", "2")]


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("Questions of 2024\nquestion,answer\na,b\nc,d\n", 2),
        ("Questions of 2024,\n,\nquestion,answer\na,b\n", 3),
        ("Questions of 2024\n\nfrom the archive\nquestion;answer\na;b\nc;d\n", 4),
        ("question,answer\na,b\n", None),
        ("text\na\nb\n", None),
        (",text\n0,a\n1,b\n", None),  # pandas writes its index without a name
    ],
)
def test_a_title_above_the_header_is_recognized(text, header, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert re.findall(r"row (\d+)", header_advice(path, Encoding(), "")) == ([str(header)] if header else [])


def test_the_first_row_after_a_title_has_the_advice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Questions of 2024\nquestion,answer\na,b\n")
    first = next(iter(read_rows(path)))
    assert isinstance(first, BadRow)
    assert (first.line, first.message.count("row 2")) == (2, 1)


@pytest.mark.parametrize("start", [2, 40, 100])
@pytest.mark.parametrize("more", ["", '"quoted, it is",x\n', '"two\nlines",x\n'])
def test_an_unclosed_quotation_mark_makes_only_its_own_row_malformed(start, more, tmp_path):
    """The following rows are the same as in a file without this row."""
    lines = ["q,a\n", *(f"question {number},answer {number}\n" for number in range(2, 101))]
    path = tmp_path / "x.csv"
    path.write_text("".join([*lines, more]))
    expected = cells(path)
    del expected[start - 2]
    lines[start - 1] = 'broken,"it begins here\n'
    path.write_text("".join([*lines, more]))
    found = list(read_rows(path))
    assert [row.line for row in found if isinstance(row, BadRow)] == [start]
    assert [tuple(row.values.values()) for row in found if not isinstance(row, BadRow)] == expected


@pytest.mark.parametrize(
    "record",
    [
        '3,"Dear all,\n\nplease wait, or not\nOur "team", who\n',
        '"How do I?\nHello, I need help.\nI pressed "reset" twice","Press it once."\n',
        '"first line\nsaid "hi" to him",2\n',
        '3,"Dear all,\n"hello" is what he said\n',
    ],
)
def test_the_lines_of_a_malformed_text_of_several_lines_are_not_rows(record, tmp_path):
    """The quotation marks inside of the text are not doubled. Some of its lines have as many columns as the header."""
    path = tmp_path / "x.csv"
    path.write_text(f"q,a\n1,2\n{record}5,6\n")
    found = list(read_rows(path))
    lines = [number for number, line in enumerate(record.splitlines(), start=3) if line]
    assert [row.line for row in found if isinstance(row, BadRow)] == lines
    assert [tuple(row.values.values()) for row in found if not isinstance(row, BadRow)] == [("1", "2"), ("5", "6")]


def test_the_lines_of_a_text_in_a_table_with_one_column_are_not_rows(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('text\none\n"Dear all\nplease wait\n')
    assert [isinstance(row, BadRow) for row in read_rows(path)] == [False, True, True]


def test_blank_lines_at_the_end_do_not_make_rows_malformed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('q,a\n"open,1\nb,2\nc,3\n\n\n')
    found = [row for row in read_rows(path) if isinstance(row, BadRow) or row.values]
    assert [row.line for row in found if isinstance(row, BadRow)] == [2]
    assert [tuple(row.values.values()) for row in found[1:]] == [("b", "2"), ("c", "3")]


def test_an_unreadable_byte_after_an_unclosed_quotation_mark_is_its_own_row(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes('q,a\nä,"b\nc,d\n'.encode() + b"\xff,f\ng,h\n")
    found = list(read_rows(path, encoding=Encoding("utf-8")))
    assert [(row.line, row.fault) for row in found if isinstance(row, BadRow)] == [(2, "malformed"), (4, "undecodable")]
    assert [tuple(row.values.values()) for row in found if not isinstance(row, BadRow)] == [("c", "d"), ("g", "h")]


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.csv", ";"), ("t.tsv", "\t")])
def test_a_header_in_the_middle_is_not_a_row(name, separator, tmp_path):
    """Tables that were exported one after the other into a file."""
    lines = [["q", "a"], ["where?", "here"], ["\ufeffq", "a "], ["when?", "now"], ["a", "q"]]
    (tmp_path / name).write_text("".join(separator.join(line) + "\n" for line in lines))
    found = list(read_rows(tmp_path / name))
    assert [row.line for row in found if isinstance(row, BadRow)] == [3]
    assert len(found) == 4


def test_a_text_that_equals_the_name_of_a_single_column_is_a_row(tmp_path):
    (tmp_path / "t.csv").write_text("text\nword\ntext\n")
    assert cells(tmp_path / "t.csv") == [("word",), ("text",)]


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ";"), ("t.tsv", "\t")])
def test_names_of_columns_have_no_space_around_them(name, separator, tmp_path):
    (tmp_path / name).write_text(f" Frage\u00a0 {separator}Antwort \nwo?{separator}hier \n")
    assert [row.values for row in read_rows(tmp_path / name)] == [{"Frage": "wo?", "Antwort": "hier "}]


def test_a_file_that_ends_early_has_one_error(tmp_path):
    """The end of the gzip stream is missing, within a text that is not closed."""
    path = tmp_path / "x.csv.gz"
    numbers = random.Random(1)
    rows = "".join(f"{numbers.random()},{numbers.random()}\n" for _ in range(20_000))
    content = gzip.compress(f'q,a\n3,"open\n{rows}'.encode())
    path.write_bytes(content[: len(content) * 9 // 10])
    found = [row for row in read_rows(path) if isinstance(row, BadRow)]
    assert [row.ends_file for row in found] == [True]


# a text with tabs and line breaks may equal rows between two quotation marks
NO_ROWS = RICH.map(lambda text: text.replace("\t", "")) | RICH.map(lambda text: text.replace("\n", ""))


@settings(deadline=None)
@given(
    st.lists(st.tuples(NO_ROWS, NO_ROWS), min_size=1, max_size=30),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_a_tsv_that_a_csv_writer_has_written_has_its_texts(tmp_path_factory, rows, quoting):
    rows = [(f"q{left}", f"a{right}") for left, right in rows]
    header = ("question", "answer")
    path = table(tmp_path_factory.mktemp("any") / "x.tsv", [header, *rows], "\t", quoting=quoting)
    assert cells(path) == rows


def test_a_malformed_row_does_not_change_the_quotes_of_a_tsv(tmp_path):
    rows = [("question", "answer"), ("a", "first line\nsecond line"), ("b", "c", "d"), ("e", "f")]
    found = list(read_rows(table(tmp_path / "x.tsv", rows, "\t")))
    assert [row.line for row in found if isinstance(row, BadRow)] == [4]
    assert [tuple(row.values.values()) for row in found if not isinstance(row, BadRow)] == [rows[1], rows[3]]


def test_a_tsv_of_excel_has_quotation_marks_only_around_texts_with_commas(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('id\ttext\n1\t"Hello, world"\n2\tno\n3\t"a, b"\n4\t"c, d"\n')
    assert cells(path) == [("1", "Hello, world"), ("2", "no"), ("3", "a, b"), ("4", "c, d")]


def test_a_malformed_row_within_a_quotation_does_not_join_the_rows_of_a_tsv(tmp_path):
    rows = [("1", '"I am here.'), ("2", "He left.", "more"), ("3", 'Come back!"'), ("4", "End.")]
    path = tmp_path / "x.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in [("id", "text"), *rows]))
    found = list(read_rows(path))
    assert [isinstance(row, BadRow) for row in found] == [False, True, False, False]
    assert found[0].values["text"] == rows[0][1]


def test_the_quotes_of_a_tsv_are_found_after_many_lines(tmp_path):
    rows = [*(("a", "b") for _ in range(20_000)), ("c", 'first "line"\nand second')]
    assert cells(table(tmp_path / "x.tsv", [("question", "answer"), *rows], "\t")) == rows


@pytest.mark.parametrize(
    "rows",
    [
        [('"I am here.', "b"), ('And I go."', "c")],  # a quotation over two rows
        [('"I am here."', "b"), ("And I go.", "c")],
        [('"I am" here.', 'b "'), ('"', "c")],
        [('a ""b"" c', "d")],
        [('""', '"'), ('"a', 'b"')],
        [('"I am', "b"), ('a "" b', "c"), ('here."', "d")],
        [("1", '"Hello, you"'), ("2", "yes, no"), ("3", '"a, b"'), ("4", '"c, d"')],
    ],
)
def test_quotation_marks_in_the_texts_of_a_tsv_are_kept(rows, tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in [("question", "answer"), *rows]))
    assert cells(path) == rows
