"""Truth: averages taken by hand and by NumPy."""

import gzip
import re

import numpy as np
import pytest
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.loading.word_vectors import WordVectors

VECTORS = {"the": [1.0, 0.0, 0.0], "The": [0.0, 8.0, 0.0], "ferry": [0.0, 2.0, -4.0], ",": [0.5, 0.25, 1e-3]}


def text_of(vectors, header=False, end="\n"):
    lines = [f"{word} {' '.join(map(repr, vector))}" for word, vector in vectors.items()]
    return end.join([f"{len(vectors)} 3"] * header + lines) + end


@pytest.fixture(params=["glove", "fasttext", "glove.gz"])
def path(request, tmp_path):
    if request.param == "fasttext":
        path = tmp_path / "v.vec"
        path.write_text(text_of(VECTORS, header=True, end=" \n"), encoding="utf-8")
    elif request.param == "glove":
        path = tmp_path / "v.txt"
        path.write_text(text_of(VECTORS), encoding="utf-8")
    else:
        path = tmp_path / "v.txt.gz"
        path.write_bytes(gzip.compress(text_of(VECTORS).encode()))
    return path


@pytest.mark.parametrize("pooling", [None, "mean_lower_fallback"])
def test_a_text_is_the_average_of_its_words(path, pooling):
    encoder = load_encoder(path, pooling=pooling)
    found = encoder.embed(["the ferry", "The ferry", "Ferry ,", "the the ferry unknown", "unknown", "", " \t"])
    expected = [
        [0.5, 1, -2],
        [0, 5, -2],  # exact match before lowercase
        [0.25, 1.125, (-4 + 1e-3) / 2] if pooling else [0.5, 0.25, 1e-3],  # SentEval's bow finds no "Ferry"
        [2 / 3, 2 / 3, -4 / 3],
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor(expected))
    assert encoder.description["pooling"] == pooling or pooling is None
    assert (encoder.fingerprint == load_encoder(path).fingerprint) == (pooling is None)


def test_words_that_come_later_are_looked_up_then(path):
    encoder = load_encoder(path)
    first = encoder.embed(["the"])
    both = encoder.embed(["ferry", "the", "ferry the"])
    assert torch.equal(first[0], both[1])
    torch.testing.assert_close(both, torch.tensor([[0.0, 2, -4], [1, 0, 0], [0.5, 1, -2]]))


def test_words_with_blanks_and_odd_letters_do_not_disturb(tmp_path):
    path = tmp_path / "glove.840B.txt"
    path.write_bytes(
        b", 1 1 1\n. 2 2 2\n. . . 9 9 9\nat name@domain.com 3 3 3\n\xc2\x85 4 4 4\ne\xc2\xa0f 5 5 5\n"
        b"\xe2\x80\xa8 6 6 6\nend 7 7 7\n"
    )
    found = WordVectors(path).embed([".", "at", "end", "name@domain.com"])
    torch.testing.assert_close(found, torch.tensor([[2.0] * 3, [0.0] * 3, [7.0] * 3, [0.0] * 3]))


def test_the_first_of_two_lines_with_the_same_word_counts(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("a 1 1\nb 3 3\na 9 9\n")
    assert WordVectors(path).embed(["a"]).tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("content", "location", "value"),
    [
        ("a 1 2 3\nb 1 2\n", "v.txt:2", "3 "),
        ("a 1 2 3\nb 1 nan 3\n", "v.txt:2", "finite"),
        ("3 3\na 1 2 3\nb 1 2 3\n", "v.txt", "2"),
        ("The ferry.\nOr not\n", "v.txt:1", "2 "),
    ],
)
def test_a_damaged_line_is_named(tmp_path, content, location, value):
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        load_encoder(path).embed(["a b"])
    assert (error.value.location, value in str(error.value.value)) == (str(tmp_path / location), True)


def test_a_truncated_gzip_file_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    whole = gzip.compress("".join(f"w{i} {a} {b}\n" for i, (a, b) in enumerate(rng.normal(size=(2000, 2)))).encode())
    path = tmp_path / "v.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError) as error:
        load_encoder(path).embed(["w1"])
    assert error.value.location == str(path)
    assert re.search(r"line \d+", error.value.expected)


@pytest.mark.parametrize("option", [{"pooling": "cls"}, {"precision": "bf16"}])
def test_unsupported_options_are_refused(path, option):
    with pytest.raises(InputError) as error:
        load_encoder(path, **option)
    assert (error.value.key, error.value.value) == next((key, value) for key, value in option.items())


def test_the_fingerprint_is_of_the_content(tmp_path):
    a, b, c = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    a.write_text(text_of(VECTORS))
    b.write_text(text_of(VECTORS))
    c.write_text(text_of({**VECTORS, "the": [1.0, 0.0, 1e-7]}))
    prints = [load_encoder(path).fingerprint for path in (a, b, c)]
    assert prints[0] == prints[1] != prints[2]
    assert load_encoder(a).description["kind"] == "word vectors"


@pytest.mark.parametrize("header", [False, True])
def test_a_byte_order_mark_is_ignored(tmp_path, header):
    path = tmp_path / "v.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text_of(VECTORS, header).encode())
    assert load_encoder(path).embed(["the"]).tolist() == [VECTORS["the"]]
