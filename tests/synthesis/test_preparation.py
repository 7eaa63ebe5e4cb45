"""Preparation of sentences from documents: splitting, cleaning, what is left out, duplicates."""

import random
import re
from contextlib import closing

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.sentences.duplicates import Duplicates
from contrastive_encoders.synthesis.sentences.inputs import open_inputs
from contrastive_encoders.synthesis.sentences.preparation import Preparation, prepare
from contrastive_encoders.synthesis.sentences.split import clean, split

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ("One two. Three four! Five?", ["One two.", "Three four!", "Five?"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Really?! Yes... No.", ["Really?!", "Yes...", "No."]),
        ("Dr. Smith met Mr. J. Jones, i.e. Tom, at 3.5 p.m. yesterday. Ok.", None),
        ("It rose by 3.5 percent. It fell.", ["It rose by 3.5 percent.", "It fell."]),
        ("see fig. 3 and no. 4. Then stop.", ["see fig. 3 and no. 4.", "Then stop."]),
        ("She said no. Then she left.", ["She said no.", "Then she left."]),
        ("1. First point. 2. Second point.", ["1. First point.", "2. Second point."]),
        ("a line without end\nanother one\n\nlast", ["a line without end", "another one", "last"]),
        ("これは文です。次の文です！終わり", ["これは文です。", "次の文です！", "終わり"]),
        ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("¿Qué es? ¡Nada! «Sí.» Fin.", ["¿Qué es?", "¡Nada!", "«Sí.»", "Fin."]),
        ("www.example.com is e.g. a site", ["www.example.com is e.g. a site"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_of_a_document(document, sentences):
    found = list(split(document))
    if sentences is None:
        sentences = ["Dr. Smith met Mr. J. Jones, i.e. Tom, at 3.5 p.m. yesterday.", "Ok."]
    assert found == sentences
    assert "".join("".join(found).split()) == "".join(document.split()), "no character is lost"


def test_cleaning_leaves_one_line_of_visible_text():
    assert clean("  a\tb\u00a0c\x00d \u200bsoft\u00adhyphen\ufeff\n") == "a b c d softhyphen"
    assert clean("e\u0301") == "é"
    assert clean(" \x07 ") == ""


def prepared(tmp_path, text, name="in.txt", column="text", **how):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return prepare(open_inputs(str(path), column=column), Preparation(**how), tmp_path / "out")


def test_what_is_left_out_is_counted(tmp_path):
    text = "one two three\n\n1 2 3\none  two\tthree\ntoo short\na b c d e f\none two three\nsix of the one\n"
    found = prepared(tmp_path, text, min_words=3, max_words=5)
    assert list(found) == ["one two three", "six of the one"]
    assert found.counts == {
        "texts": 8,
        "sentences": 8,
        "kept": 2,
        "left_out": {"blank": 1, "no letters": 1, "too few words": 1, "too many words": 1, "duplicate": 2},
    }


def test_documents_and_kept_duplicates(tmp_path):
    text = '{"text": "One two three. One two three.\\nFour five six"}\n{"text": ""}\n'
    found = prepared(tmp_path, text, "in.jsonl", kind="documents", min_words=2, drop_duplicates=False)
    assert list(found) == ["One two three.", "One two three.", "Four five six"]
    assert found.counts["texts"] == 2


def test_it_is_done_once(tmp_path):
    first = prepared(tmp_path, "one two three\n", min_words=1)
    written = first.path.stat().st_mtime_ns
    again = prepared(tmp_path, "one two three\n", min_words=1)
    assert (again.counts, again.path.stat().st_mtime_ns) == (first.counts, written)
    (tmp_path / "out" / ".sentences" / "counts.json").unlink()  # a kill before the end: from the start
    (tmp_path / "out" / ".sentences" / "work").mkdir()
    assert list(prepared(tmp_path, "one two three\n", min_words=1)) == ["one two three"]


def test_other_sentences_than_those_there_are_prepared_anew(tmp_path):
    """This is the state of a command that ended before anything was written for its sentences."""
    prepared(tmp_path, "one two three\nfour five six\n", min_words=1)
    assert list(prepared(tmp_path, "something else\n", min_words=1)) == ["something else"]
    with pytest.raises(InputError) as error:
        prepared(tmp_path, "something else\n", min_words=3)
    assert (error.value.key, re.findall(r"\d+", error.value.value)) == ("input", ["1", "1"])


def held_out(tmp_path, text, without, **how):
    (tmp_path / "test.txt").write_text(without, encoding="utf-8")
    return prepared(tmp_path, text, exclude=str(tmp_path / "test.txt"), **how)


def test_texts_of_a_test_are_left_out_however_they_are_spelt(tmp_path):
    found = held_out(
        tmp_path, "Cafe\u0301 au lait!\nToo short\nstays here now\n", "caf\u00e9, au LAIT\n\ntoo short.\n", min_words=3
    )
    assert list(found) == ["stays here now"]
    assert found.counts["left_out"] == {"held out": 2}, "one that is too short is counted, too: it was there"


def test_a_test_text_of_several_sentences_is_found_in_documents(tmp_path):
    text = '{"text": "First. My disk is full! What now? I asked them."}\n'
    found = held_out(tmp_path, text, "My disk is full. What now?\n", name="in.jsonl", kind="documents", min_words=1)
    assert list(found) == ["First.", "I asked them."]
    assert found.counts["left_out"] == {"held out": 2}
    assert list(held_out(tmp_path, "What now?\n", "My disk is full. What now?\n", min_words=1)) == ["What now?"]


def test_duplicates_are_those_of_a_set(tmp_path):
    draw = random.Random(4)
    texts = [f"text {draw.randrange(20_000)}" for _ in range(30_000)]
    with closing(Duplicates(tmp_path)) as duplicates:
        assert [text for text in texts if duplicates.is_new(text)] == list(dict.fromkeys(texts))


@pytest.mark.parametrize("run", [".", '."', "?!"])
def test_a_long_row_of_marks_is_split_in_linear_time(run):
    row = run * 200_000 + "x"
    assert list(split(f"One. {row} Two. Three")) == ["One.", f"{row} Two.", "Three"]
