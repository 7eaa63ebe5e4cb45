"""Texts are tokenized equally by an exported folder, for any family and class of its tokenizer."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import GPTNeoXConfig, GPTNeoXModel, GPTNeoXTokenizer

from contrastive_encoders.encoders.loading.tiny import write_tiny_masked_lm, write_tiny_t5
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.decoders import SIZES as DECODER
from tests.decoders import save_decoder, sentencepiece, tokenizer_of_a_decoder
from tests.objectives import SIZES, built

TEXTS = ["The ferry leaves the harbour.", "ferries, Ümlaut and\ttabs", "", "rain 123 " * 300 + "ends"]


def masked_lm(folder):
    write_tiny_masked_lm(folder, TEXTS, seed=1, **SIZES, dropout=0.0, lowercase=False)
    return built("sroberta", folder)


def t5(folder):
    write_tiny_t5(folder, TEXTS, seed=1, **SIZES, dropout=0.0, lowercase=False)
    return built("gense", folder, pooling="mean", prompt_suffix=None)


def llama(folder):
    return built("sroberta", save_decoder("llama", folder), pooling="last", append_eos=True)


def llama_sentencepiece(folder):
    return built("sroberta", save_decoder("llama", folder, sentencepiece("llama")), pooling="last", append_eos=True)


def gpt_neox(folder):
    GPTNeoXModel(GPTNeoXConfig(vocab_size=400, **DECODER)).save_pretrained(folder)
    learnt = json.loads(tokenizer_of_a_decoder().backend_tokenizer.to_str())["model"]
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    merges = [tuple(pair) for pair in learnt["merges"]]
    GPTNeoXTokenizer(learnt["vocab"], merges, **special).save_pretrained(folder)
    return built("sroberta", folder, pooling="last", append_eos=True)


@pytest.mark.parametrize("model", [masked_lm, t5, llama, llama_sentencepiece, gpt_neox])
def test_the_library_gives_our_vectors(model, tmp_path):
    encoder = model(tmp_path / "backbone").encoder
    folder = export_encoder(tmp_path / "encoder", **parts_of(encoder))
    found = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, encoder.embed(TEXTS), atol=1e-5)
