"""``embed(encoder, texts)`` is ``contrastive-encoders embed`` in the caller's process, for files and lists."""

import numpy as np
import pandas
import pyarrow.parquet
import pytest

from contrastive_encoders import embed, load_encoder
from contrastive_encoders.cli.embed import run
from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.export.input_texts import ListedTexts
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.in_process import run_here

TEXTS = [*(f"coal {n} {'sand ' * (n % 7)}rope" for n in range(110)), "", "  ", "لوح", "a\u2028b"]


@pytest.fixture(scope="module")
def texts_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_bytes("\n".join(TEXTS).encode())
    return path


def test_vectors_are_those_of_encode_whatever_holds_the_texts(tiny_bert, texts_file):
    loaded = load_encoder(tiny_bert, device="cpu")
    expected = loaded.encode(TEXTS)
    forms = [TEXTS, tuple(TEXTS), iter(TEXTS), np.array(TEXTS), pandas.Series(TEXTS), texts_file, str(texts_file)]
    for form in [*forms, [texts_file]]:
        found = embed(loaded, form, quiet=True)
        assert (found.dtype, found.shape) == (np.float32, (len(TEXTS), 32))
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(embed(str(tiny_bert), TEXTS, device="cpu", quiet=True), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "binary", "ubinary"])
def test_array_and_file_are_the_file_of_the_command(tiny_bert, texts_file, tmp_path, dtype):
    overrides = (f"encoder={tiny_bert}", f"input={texts_file}", f"dtype={dtype}", "device=cpu", "chunk_rows=50")
    run_here("embed", run, (*overrides, f"output={tmp_path / 'command.npy'}"))
    expected = np.load(tmp_path / "command.npy")
    keys = {"dtype": dtype, "device": "cpu", "chunk_rows": 50, "quiet": True}
    np.testing.assert_array_equal(embed(tiny_bert, TEXTS, **keys), expected)
    for name, texts in {"list.npy": TEXTS, "file.npy": texts_file}.items():
        assert embed(tiny_bert, texts, tmp_path / name, **keys) == tmp_path / name
        assert (tmp_path / name).read_bytes() == (tmp_path / "command.npy").read_bytes()


def test_one_text_needs_the_ranges_of_a_corpus(tiny_bert, tmp_path):
    loaded = load_encoder(tiny_bert, device="cpu")
    with pytest.raises(InputError) as raised:
        embed(loaded, TEXTS[:1], dtype="uint8")
    assert (raised.value.key, raised.value.value) == ("quantization_ranges", None)
    embed(loaded, TEXTS, tmp_path / "corpus.npy", dtype="uint8", quiet=True)
    ranges_2D = np.load(tmp_path / "corpus.npy.ranges.npy")
    found = embed(loaded, TEXTS[:1], dtype="uint8", quantization_ranges=tmp_path / "corpus.npy.ranges.npy", quiet=True)
    steps = (loaded.encode(TEXTS[:1]) - ranges_2D[0]) / ((ranges_2D[1] - ranges_2D[0]) / 255)
    np.testing.assert_array_equal(found, np.floor(np.clip(steps, 0, 255)).astype(np.uint8))


def test_listed_texts_stand_beside_their_vectors_in_parquet(small_word_vectors, tmp_path):
    path = embed(small_word_vectors, TEXTS, tmp_path / "o.parquet", chunk_rows=30, quiet=True)
    table = pyarrow.parquet.read_table(path)
    assert table["text"].to_pylist() == TEXTS
    np.testing.assert_array_equal(
        np.array(table["embedding"].to_pylist()), load_encoder(small_word_vectors).encode(TEXTS)
    )


def test_a_finished_file_of_a_list_is_left_alone_and_one_of_other_texts_refused(small_word_vectors, tmp_path):
    path = embed(small_word_vectors, TEXTS, tmp_path / "o.npy", quiet=True)
    before = path.stat().st_mtime_ns
    embed(small_word_vectors, TEXTS, path, quiet=True)
    assert path.stat().st_mtime_ns == before
    other = [*TEXTS[:-1], "another"]
    with pytest.raises(InputError):
        embed(small_word_vectors, other, path, quiet=True)
    embed(small_word_vectors, other, path, overwrite=True, quiet=True)
    np.testing.assert_array_equal(np.load(path), load_encoder(small_word_vectors).encode(other))


def test_names_of_lists_tell_them_apart():
    lists = [("ab", "c"), ("a", "bc"), ("ab", "c", ""), ("c", "ab")]
    assert len({ListedTexts(one).name for one in lists}) == len(lists)


def test_windows_of_a_list_are_its_texts_in_order():
    texts = ListedTexts(tuple("abcdefg"))
    assert list(texts.windows(3, lambda number: number != 1)) == [(0, ["a", "b", "c"]), (2, ["g"])]


def test_role_takes_the_prompt_of_the_encoder(tiny_bert, tmp_path):
    prompts = EncoderPrompts({"query": "query: ", "document": "passage: "}, None)
    parts = {**parts_of(load_encoder(tiny_bert, device="cpu")), "prompts": prompts}
    loaded = load_encoder(export_encoder(tmp_path / "encoder", **parts), device="cpu")
    for role, prompt in (("query", "query: "), ("document", "passage: ")):
        expected = loaded.encode([prompt + text for text in TEXTS[:9]], prompt="")
        np.testing.assert_allclose(embed(loaded, TEXTS[:9], role=role, quiet=True), expected, atol=1e-6)
    with pytest.raises(InputError) as raised:
        embed(tmp_path / "encoder", TEXTS[:9], role="query", prompt="query: ")
    assert (raised.value.key, raised.value.value) == ("role", "query")


@pytest.mark.parametrize(
    ("texts", "keys", "fields"),
    [
        ([], {}, {"key": "texts"}),
        (["a", 3], {}, {"key": "texts[1]", "value": "3"}),
        (["a", "\ud83d"], {}, {"key": "texts[1]"}),
        (5, {}, {"key": "texts"}),
        (b"a", {}, {"key": "texts"}),
        ({"a": 1}, {}, {"key": "texts"}),
        ("one text", {}, {"key": "texts", "value": "one text"}),
        (["a"], {"dtyp": "int8"}, {"key": "dtyp", "value": "int8"}),
        (["a"], {"devices": 2}, {"key": "devices"}),
        (["a"], {"dtype": "float64"}, {"key": "dtype", "value": "float64"}),
        (["a"], {"dtype": "int8"}, {"key": "quantization_ranges", "value": None}),
        (["a"], {"chunk_rows": 0}, {"key": "chunk_rows", "value": 0}),
        (["a"], {"quantization_ranges": "x.npy"}, {"key": "quantization_ranges", "value": "x.npy"}),
        (["a"], {"quantization_ranges": "x.npy", "dtype": "int8"}, {"key": "quantization_ranges", "value": "x.npy"}),
        (["a"], {"role": "query", "prompt": "x"}, {"key": "role", "value": "query"}),
        (["a"], {"output": "vectors.txt"}, {"key": "output", "value": "vectors.txt"}),
        (["a"], {"encoder": None}, {"key": "encoder"}),
        (["a"], {"encoder": ["x", "y"]}, {"key": "encoder"}),
    ],
    ids=str,
)
def test_error_names_the_key(texts, keys, fields, small_word_vectors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        embed(**{"encoder": small_word_vectors, "texts": texts} | keys)
    assert {name: getattr(raised.value, name) for name in fields} == fields
    assert list(tmp_path.iterdir()) == []


@pytest.mark.advice("contrastive_encoders.encoders.loading.loaded_encoder:check_unset")
def test_a_key_that_loads_a_loaded_encoder_is_refused_and_the_advice_works(tiny_bert):
    with pytest.raises(InputError) as raised:
        embed(load_encoder(tiny_bert, device="cpu"), TEXTS, normalize=True)
    assert (raised.value.key, raised.value.value) == ("normalize", True)
    assert "load_encoder(PATH, normalize=True)" in raised.value.hint
    found = embed(load_encoder(tiny_bert, normalize=True, device="cpu"), TEXTS[:9], quiet=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
