"""Folders opened by versions of other libraries that the environment of these tests does not have."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, GPTNeoXConfig, GPTNeoXModel

from contracts import InputError
from encoders.tiny import write_tiny_masked_lm, write_tiny_t5
from export.sentence_transformers import export_encoder, parts_of
from tests.decoders import SIZES as DECODER
from tests.decoders import save_decoder, sentencepiece, tokenizer_of_a_decoder
from tests.objectives import SIZES, built

TEXTS = ["The ferry leaves the harbour.", "ferries, Ümlaut and\ttabs", "", "rain 123 " * 300 + "ends"]
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 300.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
WITH = ("transformers==4.57.6 tokenizers==0.22.1 huggingface-hub==0.36.0 datasets==4.0.0 accelerate==1.10.0").split()
VECTORS = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
folders, texts = json.load(sys.stdin)
for folder in folders:
    np.save(folder + ".npy", SentenceTransformer(folder, device="cpu").encode(texts))
"""


@pytest.fixture(scope="module")
def encoders(tiny_mlm, tiny_bert, tmp_path_factory):
    folder = save_decoder("llama", tmp_path_factory.mktemp("decoder"))
    own, t5 = (tmp_path_factory.mktemp(name) for name in ("own", "t5"))  # their tokenizers have no classes of their own
    for write, one in ((write_tiny_masked_lm, own), (write_tiny_t5, t5)):
        write(one, TEXTS, seed=1, **SIZES, dropout=0.0, lowercase=False)
    pieces = save_decoder("llama", tmp_path_factory.mktemp("pieces"), sentencepiece("llama"))
    neox = tmp_path_factory.mktemp("neox")
    rotation = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
    GPTNeoXModel(GPTNeoXConfig(vocab_size=400, **DECODER, **rotation)).save_pretrained(neox)
    tokenizer_of_a_decoder().save_pretrained(neox)
    config = json.loads((folder / "config.json").read_text()) | {"rope_parameters": SCALED}
    (folder / "config.json").write_text(json.dumps(config))
    return {
        "roberta": built("sroberta", tiny_mlm, pooling="max").encoder,
        "own": built("sroberta", own).encoder,
        "bert": built("simcse", tiny_bert).encoder,
        "t5": built("gense", t5, pooling="mean", prompt=None).encoder,
        "llama": built("sroberta", folder, pooling="last", append_end=True).encoder,
        "pieces": built("sroberta", pieces, pooling="last", append_end=True).encoder,
        "neox": built("sroberta", neox, pooling="last", append_end=True).encoder,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("version", "compat"), [("3.0.0", 3), ("5.4.0", 3), ("5.4.0", None)])
def test_versions_before_6_make_the_same_vectors(version, compat, encoders, tmp_path):
    """With transformers 4, which they come with; both from the package index."""
    older, packages = str(tmp_path / "older"), [f"sentence-transformers=={version}", *WITH]
    install = ["pip", "install", "-q", "--no-deps", "--target", older, *packages]
    subprocess.run([sys.executable, "-m", *install], check=True)
    folders = {}
    for name, encoder in encoders.items():
        parts = {**parts_of(encoder), "normalize": True}
        folders[name] = str(export_encoder(tmp_path / name, **parts, compat=compat))
    subprocess.run(
        [sys.executable, "-c", VECTORS],
        input=json.dumps([list(folders.values()), TEXTS]),
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": older},
        cwd=tmp_path,
    )
    for name, folder in folders.items():
        wanted = encoders[name].embed(TEXTS).numpy()
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        np.testing.assert_allclose(np.load(f"{folder}.npy"), wanted, atol=1e-5, err_msg=name)


def test_the_versions_of_now_make_the_same_vectors(encoders, tmp_path):
    for name, encoder in encoders.items():
        folder = export_encoder(tmp_path / name, **parts_of(encoder))
        found = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(found, encoder.embed(TEXTS), atol=1e-5, err_msg=name)


def test_each_thing_stands_under_the_names_that_transformers_4_reads(encoders, tmp_path):
    def written(name, file):
        folder = export_encoder(tmp_path / name, **parts_of(encoders[name]))
        return json.loads((folder / file).read_text())

    own, t5 = (written(name, "tokenizer_config.json") for name in ("own", "t5"))
    assert (own["tokenizer_class"], own["add_prefix_space"]) == ("PreTrainedTokenizerFast", True)
    assert "token_type_ids" not in t5["model_input_names"]
    assert "extra_special_tokens" not in t5
    assert t5["additional_special_tokens"] == list(encoders["t5"].tokenizer.extra_special_tokens)
    llama = written("llama", "config.json")
    assert llama["rope_theta"] == llama["rope_parameters"]["rope_theta"] == 300
    assert llama["rope_scaling"] == {name: value for name, value in SCALED.items() if name != "rope_theta"}
    neox = written("neox", "config.json")
    assert (neox["rotary_pct"], neox["rotary_emb_base"]) == (0.5, 500)
    assert AutoConfig.from_pretrained(tmp_path / "llama").rope_parameters == SCALED


@pytest.mark.parametrize(("family", "first"), [("gemma2", "5.21"), ("gemma3", "5")])
def test_what_transformers_4_would_read_otherwise_is_not_for_it(family, first, tmp_path):
    encoder = built("sroberta", save_decoder(family, tmp_path / family), pooling="last").encoder
    with pytest.raises(InputError, match=rf"compat=3: a {family}.* needs transformers {first} .* Leave compat out"):
        export_encoder(tmp_path / "refused", **parts_of(encoder), compat=3)
    folder = export_encoder(tmp_path / "encoder", **parts_of(encoder))
    top = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert top["requirements"] == {"sentence-transformers": ">=5.4.0", "transformers": f">={first}"}
