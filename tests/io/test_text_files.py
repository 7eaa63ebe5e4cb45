"""Text files in every encoding give the same texts, compared with Python's own encodings and gzip."""

import codecs
import gzip
import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrastive_encoders.core import InputError
from contrastive_encoders.io.rows import count_rows, read_rows
from contrastive_encoders.io.text_files import BadRow, Encoding, ParsedRow, open_text

MARKED = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
TEXTS = ["Grüße, 家\u2028🙂", 'a "b"', "  ", "last"]
FILES = {
    "a.txt": "\r\n".join(TEXTS),
    "a.jsonl": "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS),
    "a.json": json.dumps([{"text": text} for text in TEXTS], ensure_ascii=False, indent=1),
    "a.csv": "id,text\n" + "".join('1,"{}"\n'.format(text.replace('"', '""')) for text in TEXTS),
    "a.tsv": "id\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("codec", MARKED)
@pytest.mark.parametrize("name", FILES)
def test_rows_equal_those_of_the_same_file_in_utf_8(tmp_path, name, codec, packed, monkeypatch):
    monkeypatch.setattr(
        "contrastive_encoders.io.text_files.BLOCK", 7
    )  # bytes: characters cross the ends of the blocks that are read
    data = MARKED[codec] + FILES[name].encode(codec)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [row.values["text"] for row in read_rows(path)] == TEXTS
    assert count_rows([path]) == len(TEXTS)


@pytest.mark.parametrize("codec", MARKED)
def test_markdown_is_read_in_every_encoding(tmp_path, codec):
    path = tmp_path / "a.md"
    path.write_bytes(MARKED[codec] + "# Größe\n\n家 *und* Hof\n".encode(codec))
    assert [row.values["text"] for row in read_rows(path)] == ["Größe\n\n家 und Hof"]


@given(st.text().filter(lambda text: text[:1] != "\0"), st.sampled_from(sorted(MARKED)))  # otherwise it is UTF-32
def test_any_text_is_read_unchanged(tmp_path_factory, text, codec):
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes(MARKED[codec] + text.encode(codec))
    with open_text(path) as stream:
        assert stream.read() == text.encode()


@pytest.mark.parametrize(
    ("data", "facts"),
    [  # the position of the byte, counted from 1 as in a hex editor
        ("# Größe ".encode() + b"\xf6", ["0xf6", "byte 11 "]),
        ("# 家".encode("big5") + b"\x81", ["0xae", "byte 3 "]),
        (codecs.BOM_UTF16_LE + "ab".encode("utf-16-le") + b"\0\xdcx\0", ["UTF-16", "byte 7 "]),
        ("# Grö".encode("utf-16-be"), ["UTF-16 without"]),
    ],
)
def test_an_undecodable_file_has_the_position_of_the_byte(tmp_path, data, facts):
    path = tmp_path / "a.md"
    path.write_bytes(data)
    [row] = read_rows(path)
    assert isinstance(row, BadRow)
    assert row.fault == "undecodable"
    assert all(fact in row.message for fact in facts), row.message


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read_with_the_suggested_encoding(tmp_path, codec):
    path = tmp_path / "a.txt"
    path.write_bytes("# Größe\nzwei".encode(codec))
    [bad] = read_rows(path, encoding=Encoding(key="data.encoding"))
    named = re.search(r"data\.encoding=([\w-]+)", bad.message)[1]
    assert [row.values["text"] for row in read_rows(path, encoding=Encoding(named))] == ["# Größe", "zwei"]


WITHOUT_LATIN = {  # their characters have no zero byte; Gurmukhi's all have a byte of a line end
    "Cyrillic": ["Привет мир", "Как дела"],
    "Arabic": ["مرحبا بالعالم", "كيف حالك"],
    "Thai": ["สวัสดีชาวโลก", "สบายดีไหม"],
    "Chinese": ["数据库", "今天天气"],
    "Gurmukhi": ["ਅਆ ਇ", "ਅਅ ਆ"],
}


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("script", WITHOUT_LATIN)
@pytest.mark.advice("contrastive_encoders.io.text_files:Encoding.hint")
def test_every_script_without_a_mark_is_read_with_the_suggested_encoding(tmp_path, script, codec):
    path = tmp_path / "a.txt"
    path.write_bytes("".join(f"{text}\n" for text in WITHOUT_LATIN[script]).encode(codec))
    [bad] = read_rows(path, encoding=Encoding(key="data.encoding"))
    assert bad.fault == "undecodable"
    named = re.search(r"data\.encoding=([\w-]+)", bad.message)[1]
    assert [row.values["text"] for row in read_rows(path, encoding=Encoding(named))] == WITHOUT_LATIN[script]


def test_a_zero_byte_does_not_change_the_encoding_of_utf_8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ab cd\0 ef\n\0gh\n\n  x\n")
    assert [row.values["text"] for row in read_rows(path)] == ["ab cd\0 ef", "\0gh", "", "  x"]


@pytest.mark.parametrize("codec", ["cp1250", "iso8859-2", "gb18030", "shift_jis", "utf-16-le", "utf-32-be"])
def test_a_file_that_is_utf_8_is_not_read_in_the_encoding_of_the_others(tmp_path, codec):
    """The files of a folder have one setting; a file in UTF-8 with characters other than ASCII is recognized."""
    text = "数据库 今天天气" if codec in ("gb18030", "shift_jis") else "Zażółć gęślą jaźń"
    texts = [*([text] if codec != "shift_jis" else ["日本語"]), "plain"]
    found = list[list[str]]()
    for name, actual in (("a.txt", "utf-8"), ("b.txt", codec)):
        (tmp_path / name).write_bytes("\n".join(texts).encode(actual))
        found.append([row.values["text"] for row in read_rows(tmp_path / name, encoding=Encoding(codec))])
    assert found == [texts, texts]


# ------------------------------------------------------------------------------------------ files without a mark

GERMAN = ["Rückgabe der Schlüssel", "plain text", "Straße „Am Fluß“ – 5 €", "déjà vu"]


def forms_of(texts):
    """Return the same texts in every kind of text file."""
    return {
        "a.txt": "".join(f"{text}\n" for text in texts),
        "a.jsonl": "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts),
        "a.json": json.dumps([{"text": text} for text in texts], ensure_ascii=False),
        "a.csv": "id;text\n" + "".join(f"1;{text}\n" for text in texts),
        "a.tsv": "id\ttext\n" + "".join(f"1\t{text}\n" for text in texts),
    }


def write_file(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", forms_of(GERMAN))
def test_a_file_that_is_not_utf_8_is_read_as_cp1252_with_three_samples(tmp_path, name, packed, caplog, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.io.text_files.BLOCK", 64)
    texts = ["only ASCII to begin with"] * 50 + GERMAN
    path = write_file(tmp_path / f"{name}{packed}", forms_of(texts)[name].encode("cp1252"))
    assert [row.values["text"] for row in read_rows(path)] == texts
    assert count_rows([path]) == len(texts)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "Rückgabe" in warning
    assert "ß" in warning


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("name", forms_of(GERMAN))
def test_a_utf_8_file_is_read_without_a_warning(tmp_path, name, codec, caplog):
    path = write_file(tmp_path / name, forms_of(GERMAN)[name].encode(codec))
    assert [row.values["text"] for row in read_rows(path)] == GERMAN
    assert not caplog.records


@pytest.mark.parametrize("codec", ["cp850", "koi8-r", "shift_jis", "gb18030", "mac-roman", "utf-16-le", "utf-16"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.json"])
def test_the_configured_encoding_is_used(tmp_path, name, codec, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.io.text_files.BLOCK", 7)
    text = {"koi8-r": "где мой заказ", "shift_jis": "東京の天気", "gb18030": "发票在哪里"}.get(codec, "Größe für déjà")
    texts = [text, "plain", text[::-1]]
    data = forms_of(texts)[name].encode(codec)
    path = write_file(tmp_path / name, data)
    assert [row.values["text"] for row in read_rows(path, encoding=Encoding(codec, "data.encoding"))] == texts


def test_a_byte_order_mark_overrides_the_configured_encoding(tmp_path):
    path = write_file(tmp_path / "a.txt", "Größe\n".encode("utf-8-sig"))
    assert [row.values["text"] for row in read_rows(path, encoding=Encoding("cp1252", "data.encoding"))] == ["Größe"]


@pytest.mark.parametrize("name", ["klingon", "base64", "rot13", ""])
def test_an_unknown_encoding_is_refused(tmp_path, name):
    path = write_file(tmp_path / "a.txt", b"text\n")
    with pytest.raises(InputError) as caught:
        list(read_rows(path, encoding=Encoding(name, "data.encoding")))
    assert (caught.value.key, caught.value.value) == ("data.encoding", name)


def test_a_utf_8_file_with_a_few_damaged_bytes_is_not_read_as_cp1252(tmp_path, caplog):
    lines = ["Größe und Gewicht".encode()] * 30_000
    for place in (25_000, 29_000):
        lines[place] = b"dama\xe9ged"
    path = write_file(tmp_path / "a.txt", b"\n".join(lines))
    rows = list(read_rows(path))
    assert [(row.line, row.fault) for row in rows if isinstance(row, BadRow)] == [
        (25_001, "undecodable"),
        (29_001, "undecodable"),
    ]
    assert {row.values["text"] for row in rows if isinstance(row, ParsedRow)} == {"Größe und Gewicht"}
    assert not caplog.records


def test_a_file_with_bytes_that_cp1252_lacks_is_undecodable(tmp_path):
    path = write_file(tmp_path / "a.txt", "über\nplain\nÜbung für".encode("cp850"))  # ü is 0x81, which cp1252 lacks
    rows = list(read_rows(path))
    assert [row.fault if isinstance(row, BadRow) else row.values["text"] for row in rows] == [
        "undecodable",
        "plain",
        "undecodable",
    ]


# ------------------------------------------------------------------------------------------------ ends of lines


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_every_line_end_is_recognized(tmp_path, name, end, codec, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.io.text_files.LINES_BLOCK", 5)
    data = forms_of(GERMAN)[name.removesuffix(".gz")].replace("\n", end).encode(codec)
    path = write_file(tmp_path / name, data)
    assert [row.values["text"] for row in read_rows(path)] == GERMAN
    assert count_rows([path]) == len(GERMAN)


@given(st.lists(st.sampled_from(["\r", "\n", "\r\n", "a", "b\u2028c", "\x85", "\x0b", "\x0c", "\x1c"])))
def test_lines_equal_those_of_universal_newlines(tmp_path_factory, pieces):
    text = "x" + "".join(pieces)
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes(text.encode())
    with path.open(encoding="utf-8") as file:  # Python's own
        assert [row.values["text"] for row in read_rows(path)] == [line.removesuffix("\n") for line in file]


def test_a_lone_cr_in_a_cell_is_kept(tmp_path):
    table = write_file(tmp_path / "a.csv", b'q,a\r\n"one\rtwo","three\r\nfour"\r\nfive,six\r\n')
    assert [tuple(row.values.values()) for row in read_rows(table)] == [("one\rtwo", "three\nfour"), ("five", "six")]
    tabs = write_file(tmp_path / "a.tsv", b"q\ta\none\rtwo\tthree\n")
    assert [tuple(row.values.values()) for row in read_rows(tabs)] == [("one\rtwo", "three")]


def test_lines_that_end_in_cr_need_little_memory(tmp_path):
    path = write_file(tmp_path / "a.txt", b"a sentence of some words\r" * 200_000)
    tracemalloc.start()
    assert sum(1 for _ in read_rows(path)) == 200_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize("separator", list(",;|\t"))
@pytest.mark.parametrize("quote", ["", '"'])
def test_each_sample_is_from_one_cell(tmp_path, separator, quote, caplog):
    cells = ["1", "Größe wählen", "Straße nehmen", "neighbor", "Köln"]
    header = separator.join("abcde")
    row = separator.join(f"{quote}{cell}{quote}" for cell in cells)
    list(read_rows(write_file(tmp_path / "a.csv", f"{header}\n{row}\n".encode("cp1252"))))
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert re.findall('"(.*?)"', str(warning.args[1])) == ["Größe wählen", "Straße nehmen", "Köln"]
