"""SentEval's text forms against the published files, line by line, and ``cat -v`` against the program of that name."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.acquire.origin import FORM, TEXTS
from evaluation.acquire.registry import TABLES
from evaluation.acquire.text_forms import moses, treebank, visible


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith(FORM) and not name.startswith("SICK")])
def test_every_published_line_is_reproduced(real_rows, name):
    table = TABLES[name]
    columns = [at for at, column in enumerate(table.columns) if column in TEXTS]
    pairs = list(zip(real_rows[name.removesuffix(FORM)], real_rows[name], strict=True))
    different = [
        (raw[at], table.change(raw[at]), done[at])
        for raw, done in pairs
        for at in columns
        if table.change(raw[at]).strip() != done[at].strip()
    ]
    assert len(pairs) == table.rows
    assert not different


@pytest.mark.skipif(shutil.which("cat") is None, reason="no cat on this machine")
@given(st.binary(max_size=40).filter(lambda data: b"\n" not in data))
def test_bytes_show_as_cat_shows_them(data):
    shown = subprocess.run(["cat", "-v"], input=data, capture_output=True, check=True).stdout
    assert visible(data) == shown.decode("ascii")


@pytest.mark.parametrize(
    ("line", "tokens"),  # the examples of the treebank's own page on tokenisation, and of its script's comments
    [
        ("children's", "children 's"),
        ("parents'", "parents '"),
        ("won't", "wo n't"),
        ("gonna", "gon na"),
        ("I'm", "I 'm"),
        ("cannot gimme it", "can not gim me it"),
        ("'tis more'n he'd say", "'t is more 'n he 'd say"),
        ('He said, "No."', "He said , `` No . ''"),
        ("U.S. prices rose 3.8%.", "U.S. prices rose 3.8 % ."),
        ("(a)--[b]...", "( a ) -- [ b ] ..."),
    ],
)
def test_the_treebank_script_of_1995(line, tokens):
    assert treebank(line) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's Mr. Poe's, isn't it?", "It 's Mr. Poe 's , isn 't it ?"),
        ("wanted in the U.S.", "wanted in the U.S ."),  # the last word's full stop always goes
        ("in the U.S. it rains", "in the U.S. it rains"),
        ("so he waited...", "so he waited ..."),
        ("a & b <c>", "a & b < c >"),  # -no-escape
        ("1,000 or 2, 3", "1,000 or 2 , 3"),
    ],
)
def test_moses_tokenizer_perl(text, tokens):
    assert moses(text) == tokens
