"""``encode`` and ``similarity`` give the results of sentence-transformers on the same directory."""

import json

import numpy as np
import pytest
import torch

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.conftest import SENTENCES

library = pytest.importorskip("sentence_transformers")

PROMPTS = EncoderPrompts({"query": "old maps: ", "document": "", "plain": "in winter: "}, "plain")


@pytest.fixture(scope="module")
def folder(tiny_bert, tmp_path_factory):
    parts = {**parts_of(load_encoder(tiny_bert, device="cpu")), "prompts": PROMPTS}
    return export_encoder(tmp_path_factory.mktemp("encode") / "encoder", **parts)


@pytest.fixture(scope="module")
def both(folder):
    return load_encoder(folder, device="cpu"), library.SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prompt_name": "query"},
        {"prompt_name": "document"},
        {"prompt": "the river: "},
        {"prompt": ""},
        {"prompt_name": "query", "prompt": "the river: "},
        {"normalize_embeddings": True, "batch_size": 5},
        {"batch_size": 1, "show_progress_bar": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("texts", [SENTENCES, SENTENCES[0], np.array(SENTENCES[:3]), SENTENCES[:1]], ids=len)
def test_encode_is_that_of_the_library(texts, options, both):
    ours, theirs = (model.encode(str(texts) if texts is SENTENCES[0] else texts, **options) for model in both)
    assert isinstance(ours, np.ndarray)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["encode_query", "encode_document"])
@pytest.mark.parametrize("options", [{}, {"prompt_name": "plain"}, {"prompt": "the river: "}], ids=str)
def test_queries_and_documents_are_those_of_the_library(name, options, both):
    ours, theirs = (getattr(model, name)(SENTENCES, **options) for model in both)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_tensor_where_it_is_asked_for(both):
    ours, theirs = (model.encode(SENTENCES, convert_to_tensor=True) for model in both)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert both[0].encode([]).shape == (0, ours.shape[1])


def test_no_more_texts_are_computed_together_than_asked(both, monkeypatch):
    encoder, sizes = both[0], []
    chunk = encoder.encode_chunk
    monkeypatch.setattr(encoder, "encode_chunk", lambda ids, *rest: (sizes.append(len(ids)), chunk(ids, *rest))[1])
    encoder.encode(SENTENCES, batch_size=5)
    assert (max(sizes), sum(sizes)) == (5, len(SENTENCES))
    sizes.clear()
    encoder.encode(SENTENCES)
    assert max(sizes) > 5


@pytest.mark.parametrize(
    ("options", "key"), [({"prompt_name": "other"}, "prompt_name"), ({"batch_size": 0}, "batch_size")]
)
def test_wrong_options_are_refused_as_by_the_library(options, key, both):
    with pytest.raises(InputError) as caught:
        both[0].encode(SENTENCES, **options)
    assert caught.value.key == key
    with pytest.raises(ValueError, match=r"batch_size|Prompt name"):
        both[1].encode(SENTENCES, **options)


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda encoder: encoder.encode(["a"], batch_size="x"), "batch_size"),
        (lambda encoder: encoder.encode(["a"], prompt=3), "prompt"),
        (lambda encoder: encoder.encode(["a"], prompt_name=["x"]), "prompt_name"),
        (lambda encoder: encoder.similarity("a", "b"), "embeddings1"),
        (lambda encoder: encoder.similarity([1.0], None), "embeddings2"),
        (lambda encoder: encoder.similarity([1.0], np.zeros((1, 1, 1))), "embeddings2"),
        (lambda _: load_encoder(None), "name"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(call, key, both):
    with pytest.raises(InputError) as caught:
        call(both[0])
    assert caught.value.key == key


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity_is_that_of_the_library(name, folder, tmp_path):
    own = load_encoder(folder, device="cpu")
    copied = export_encoder(tmp_path / "encoder", **{**parts_of(own), "similarity": name})
    assert json.loads((copied / "config_sentence_transformers.json").read_text())["similarity_fn_name"] == name
    ours, theirs = load_encoder(copied, device="cpu"), library.SentenceTransformer(str(copied), device="cpu")
    rows = ours.encode(SENTENCES)
    for left, right in [
        (rows, rows[:4]),
        (rows[0], rows[1]),
        (torch.from_numpy(rows), rows),
        (list(rows), rows.tolist()),
    ]:
        wanted = theirs.similarity(left, right)
        found = ours.similarity(left, right)
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert parts_of(ours)["similarity"] == name, "an export keeps it"


def test_embeddings_of_two_widths_are_refused(both):
    rows = both[0].encode(SENTENCES[:2])
    with pytest.raises(InputError) as error:
        both[0].similarity(rows, rows[:, :5])
    assert (error.value.key, error.value.value) == ("embeddings2", (2, 5))


@pytest.mark.parametrize(("texts", "key"), [("a\ud83d", "texts[0]"), (["a", "\udc00b"], "texts[1]")])
def test_half_of_a_surrogate_pair_is_refused(texts, key, both):
    with pytest.raises(InputError) as error:
        both[0].encode(texts)
    assert error.value.key == key
    repaired = texts[-1].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert both[0].encode([repaired, "an emoji \U0001f600"]).shape[0] == 2


def test_word_vectors_encode_too(small_word_vectors):
    encoder = load_encoder(small_word_vectors)
    rows = encoder.encode(SENTENCES[:2], normalize_embeddings=True)
    assert rows.shape == (2, encoder.width)
    assert encoder.similarity(rows, rows).shape == (2, 2)


@pytest.mark.parametrize("texts", [[None], ["a", float("nan")], [1], [b"a"], [("a", "b")], [{"text": "a"}]])
def test_an_item_that_is_no_text_is_named(texts, both):
    with pytest.raises(InputError) as error:
        both[0].encode(texts)
    assert error.value.key == f"texts[{len(texts) - 1}]"


@pytest.mark.parametrize("texts", [3, None, b"a", {"text": "a"}, np.array([["a", "b"]])])
def test_what_is_no_list_of_texts_is_refused(texts, both):
    with pytest.raises(InputError) as error:
        both[0].encode(texts)
    assert error.value.key == "texts"


@pytest.mark.parametrize("texts", [("a", "b"), np.array(["a", "b"]), (text for text in "ab"), []])
def test_any_iterable_of_texts_is_accepted(texts, both):
    vectors = both[0].encode(texts)
    assert vectors.shape[0] in (0, 2)
