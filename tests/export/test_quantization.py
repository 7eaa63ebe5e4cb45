"""Embeddings in 8 bits and in 1: bit for bit those of sentence-transformers for the floats, and a search by hand."""

import numpy as np
import pyarrow.parquet
import pytest

from contrastive_encoders.cli.embed import run
from contrastive_encoders.core import InputError
from contrastive_encoders.export.quantization import quantize, ranges_of, search
from tests.export.test_embed import TEXTS, lines
from tests.in_process import run_here

oracle = pytest.importorskip("sentence_transformers.util.quantization")
MANY = [*TEXTS, *(f"{'salt ' * (i % 9)}{i} fern" for i in range(140))]
DTYPES = ["int8", "uint8", "binary", "ubinary"]


def embedded(folder, encoder, texts, name, *overrides):
    path = lines(folder / f"{name}.txt", texts)
    output = folder / (name if "." in name else f"{name}.npy")
    run_here("embed", run, (f"encoder={encoder}", f"input={path}", f"output={output}", "chunk_rows=50", *overrides))
    return output


@pytest.mark.rotates
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_is_what_sentence_transformers_makes_of_the_floats(tmp_path, tiny_mlm, dtype):
    floats = np.load(embedded(tmp_path, tiny_mlm, MANY, "floats"))
    found = np.load(embedded(tmp_path, tiny_mlm, MANY, "few", f"dtype={dtype}"), mmap_mode="r")
    expected = oracle.quantize_embeddings(floats, dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    table = pyarrow.parquet.read_table(embedded(tmp_path, tiny_mlm, MANY, "few.parquet", f"dtype={dtype}"))
    np.testing.assert_array_equal(table["embedding"].to_pylist(), expected)
    left = {path.name for path in tmp_path.glob("few.npy*")}
    assert left == {"few.npy", "few.npy.json"} | ({"few.npy.ranges.npy"} if "int8" in dtype else set())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_queries_take_the_ranges_of_their_corpus(tmp_path, tiny_mlm, dtype):
    corpus, queries = MANY, ["an orchard beyond any range", "gull gull gull", "7"]
    embedded(tmp_path, tiny_mlm, corpus, "corpus", f"dtype={dtype}")
    ranges = tmp_path / "corpus.npy.ranges.npy"
    found = np.load(embedded(tmp_path, tiny_mlm, queries, "queries", f"dtype={dtype}", f"quantization_ranges={ranges}"))
    floats = [np.load(embedded(tmp_path, tiny_mlm, texts, "floats", "overwrite=true")) for texts in (corpus, queries)]
    expected = oracle.quantize_embeddings(floats[1], dtype, calibration_embeddings=floats[0])
    np.testing.assert_array_equal(found, expected)
    assert {0, 255} & set((expected.astype(int) + (128 if dtype == "int8" else 0)).ravel().tolist())
    assert (tmp_path / "queries.npy.ranges.npy").read_bytes() == ranges.read_bytes()
    np.save(tmp_path / "other.npy", np.load(ranges) * 2)
    with pytest.raises(InputError) as refused:
        embedded(
            tmp_path, tiny_mlm, queries, "queries", f"dtype={dtype}", f"quantization_ranges={tmp_path / 'other.npy'}"
        )
    assert (refused.value.key, refused.value.value) == ("output", tmp_path / "queries.npy")
    assert "ranges" in refused.value.hint


def test_ranges_of_something_else_are_refused(tmp_path, tiny_mlm):
    np.save(tmp_path / "wide.npy", np.zeros((2, 33)))
    np.save(tmp_path / "turned.npy", np.stack([np.ones(32), np.zeros(32)]))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", np.zeros((2, 32)))
    (tmp_path / "text.npy").write_text("ranges")
    cases = {"wide.npy": "(2, 33)", "turned.npy": "minimum"}
    for name, expected in (cases | dict.fromkeys(("objects.npy", "several.npz", "text.npy"), "readable")).items():
        with pytest.raises(InputError) as refused:
            embedded(tmp_path, tiny_mlm, MANY, "few", "dtype=int8", f"quantization_ranges={tmp_path / name}")
        assert (refused.value.key, refused.value.value) == ("quantization_ranges", str(tmp_path / name))
        assert expected in refused.value.expected


@pytest.mark.parametrize("width", [12, 32])
def test_numbers_are_the_oracles(width):
    rng = np.random.default_rng(0)
    vectors, others = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (200, 50))
    vectors[:, 3] = 0.25  # a dimension without range
    ranges = ranges_of(np.array_split(vectors, 7))
    for dtype in DTYPES:
        for some in (vectors, others):
            wanted = oracle.quantize_embeddings(some, dtype, ranges=ranges)
            np.testing.assert_array_equal(quantize(some, dtype, ranges), wanted)
    with pytest.raises(InputError) as refused:
        quantize(np.full((1, width), np.nan), "binary")
    assert (refused.value.key, refused.value.value) == ("dtype", "binary")


@pytest.mark.parametrize("dtype", [*DTYPES, "float16"])
def test_a_search_is_that_by_hand(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.export.quantization.ROWS", 37)
    monkeypatch.setattr("contrastive_encoders.export.quantization.QUERIES", 4)
    rng = np.random.default_rng(1)
    corpus, queries = (rng.normal(size=(rows, 20)).astype(np.float32) for rows in (150, 9))
    ranges = ranges_of([corpus]) if dtype.endswith("int8") else None
    stored = corpus.astype(dtype) if dtype == "float16" else quantize(corpus, dtype, ranges)
    if dtype.endswith("int8"):
        meant = oracle._dequantize_embeddings(stored, dtype, ranges)
    else:
        meant = np.where(corpus > 0, 1, -1) if dtype.endswith("binary") else stored.astype(np.float64)
    by_hand = queries.astype(np.float64) @ meant.T
    found = search(queries, stored, k=5, ranges=ranges)
    np.testing.assert_array_equal(found.rows_QK, np.argsort(-by_hand, axis=1)[:, :5])
    np.testing.assert_allclose(found.scores_QK, -np.sort(-by_hand, axis=1)[:, :5], rtol=1e-4)
    np.save(tmp_path / "floats.npy", corpus)
    floats = np.load(tmp_path / "floats.npy", mmap_mode="r")
    anew = search(queries, stored, k=5, ranges=ranges, rescore_embeddings=floats, rescore_multiplier=3)
    for query, first, rows, scores in zip(queries, by_hand, *anew, strict=True):
        candidates = np.argsort(-first)[:15]
        exact = corpus[candidates].astype(np.float64) @ query
        np.testing.assert_array_equal(rows, candidates[np.argsort(-exact)][:5])
        np.testing.assert_allclose(scores, -np.sort(-exact)[:5], rtol=1e-4)


def test_rescored_by_everything_is_the_exact_search():
    rng = np.random.default_rng(2)
    corpus, queries = (rng.normal(size=(rows, 16)).astype(np.float32) for rows in (60, 8))
    exact = np.argsort(-(queries @ corpus.T), axis=1)[:, :4]
    bits = quantize(corpus, "binary")
    found = search(queries, bits, k=4, rescore_embeddings=corpus, rescore_multiplier=15)
    np.testing.assert_array_equal(found.rows_QK, exact)
    assert (search(queries, bits, k=4).rows_QK != exact).any()
    assert search(queries, bits, k=100).rows_QK.shape == (8, 60)
    for wrong, width in ((bits[:, :1], "1 "), (corpus[:, :4], "4 ")):
        with pytest.raises(InputError) as refused:
            search(queries, wrong, k=4)
        assert refused.value.key == "corpus_NW"
        assert width in refused.value.expected
    with pytest.raises(InputError) as refused:
        search(queries, quantize(corpus, "int8", ranges_of([corpus])), k=4)
    assert (refused.value.key, refused.value.value) == ("ranges", None)
    with pytest.raises(InputError) as refused:
        search(queries, bits, k=4, rescore_embeddings=corpus[1:])
    assert (refused.value.key, refused.value.value) == ("rescore_embeddings", (59, 16))
