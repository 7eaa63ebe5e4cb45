"""A text is the same in every encoding that its mark names; the truth is what Python encodes and what gzip packs."""

import codecs
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.rows import count_rows, read_rows
from readers.text_files import BadRow, opened

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
def test_rows_are_those_of_the_same_file_in_utf_8(tmp_path, name, codec, packed, monkeypatch):
    monkeypatch.setattr("readers.text_files.BLOCK", 7)  # bytes: characters lie over the ends of what is read at a time
    data = MARKED[codec] + FILES[name].encode(codec)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [row.values["text"] for row in read_rows(path)] == TEXTS
    assert count_rows([path]) == len(TEXTS)


@pytest.mark.parametrize("codec", MARKED)
def test_markdown_in_every_encoding(tmp_path, codec):
    path = tmp_path / "a.md"
    path.write_bytes(MARKED[codec] + "# Größe\n\n家 *und* Hof\n".encode(codec))
    assert [row.values["text"] for row in read_rows(path)] == ["Größe\n\n家 und Hof"]


@given(st.text(), st.sampled_from(sorted(MARKED)))
def test_any_text_comes_back(tmp_path_factory, text, codec):
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes(MARKED[codec] + text.encode(codec))
    with opened(path) as stream:
        assert stream.read() == text.encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [  # the place is that of the byte as a hex editor counts from 1
        ("# Grö".encode("latin1"), "wanted UTF-8, got byte 0xf6 at byte 5 of the file"),
        ("# Grö".encode("utf-16-be"), "wanted UTF-8, got byte 0xf6 at byte 10 of the file"),
        (codecs.BOM_UTF16_LE + "ab".encode("utf-16-le") + b"\0\xdcx\0", "wanted UTF-16"),
    ],
)
def test_what_is_in_no_known_encoding_is_named_with_its_byte(tmp_path, data, words):
    path = tmp_path / "a.md"
    path.write_bytes(data)
    [row] = read_rows(path)
    assert isinstance(row, BadRow)
    assert words in row.message
    assert "UTF-8" in row.message
    assert ("`iconv -f latin1 -t utf-8`" in row.message) == ("wanted UTF-8" in words)
