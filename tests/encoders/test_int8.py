"""precision=int8: embeddings are those of the exported 8-bit graph, which tests run without this project's encoder."""

import importlib.util
import re

import numpy as np
import pytest

from contrastive_encoders.cli.embed import run
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading import int8_encoder
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.onnx_graph import INT8_GRAPH, export_onnx, onnx_example
from tests.export.test_onnx import by_the_example, needs_onnx
from tests.export.texts import TORTURE
from tests.in_process import run_here


@pytest.mark.rotates
@needs_onnx
@pytest.mark.parametrize("options", [{}, {"truncate": 16, "normalize": True, "prompt": "say: "}, {"pooling": "cls"}])
def test_embeddings_are_those_of_the_exported_graph(tiny_bert, tmp_path, options):
    """One text at a time: a batch shares the range of its activations."""
    expected = load_encoder(tiny_bert, device="cpu", **options)
    embed = by_the_example(export_onnx(tmp_path / "onnx", expected), onnx_example(expected), INT8_GRAPH)
    encoder = load_encoder(tiny_bert, device="cpu", precision="int8", **options)
    for text in TORTURE:
        np.testing.assert_allclose(encoder.encode(text), embed([text])[0], atol=1e-5, rtol=0)
    assert encoder.description["precision"] == "int8"
    assert encoder.fingerprint != expected.fingerprint


@needs_onnx
def test_a_text_without_tokens_is_the_zero_vector(tiny_mlm, tmp_path):
    """A tokenizer without special tokens, like that of GPT-2."""
    encoder = load_encoder(tiny_mlm, device="cpu", precision="int8")
    encoder.tokenizer.backend_tokenizer.post_processor, encoder.session = None, None
    export_onnx(tmp_path / "onnx", encoder, int8=False)
    vectors = encoder.quantize().encode(["", "rain"])
    assert not vectors[0].any()
    assert vectors[1].any()


@needs_onnx
def test_the_command_writes_them(tiny_bert, tmp_path):
    (tmp_path / "texts.txt").write_text("ferry\nviolin string\n", encoding="utf-8")
    output = tmp_path / "vectors.npy"
    arguments = [f"encoder={tiny_bert}", f"input={tmp_path}/texts.txt", f"output={output}", "precision=int8"]
    assert run_here("embed", run, [*arguments, "quiet=true"]) in (None, 0)
    encoder = load_encoder(tiny_bert, device="cpu", precision="int8")
    np.testing.assert_array_equal(np.load(output), encoder.encode(["ferry", "violin string"]))


def test_what_has_no_graph_is_refused(small_word_vectors, tiny_bert, monkeypatch):
    with pytest.raises(InputError) as refused:
        load_encoder(small_word_vectors, precision="int8")
    assert (refused.value.key, refused.value.value) == ("precision", "int8")
    if importlib.util.find_spec("onnxruntime"):
        monkeypatch.setattr(int8_encoder, "MIN_COSINE", 1.1)  # no encoder reaches it
        with pytest.raises(InputError) as refused:
            load_encoder(tiny_bert, precision="int8", device="cpu")
        assert (refused.value.key, refused.value.value) == ("precision", "int8")


@needs_onnx
@pytest.mark.advice("contrastive_encoders.encoders.loading.load:_check")
def test_another_device_is_refused_and_the_advised_one_works(tiny_bert):
    with pytest.raises(InputError) as refused:
        load_encoder(tiny_bert, precision="int8", device="meta")
    key, device = re.search(r"Set (\w+)=(\w+)", refused.value.hint).groups()
    assert load_encoder(tiny_bert, precision="int8", **{key: device}).encode("a text").shape == (32,)
