"""The exported folder, opened by stock sentence-transformers and by transformers, gives the results of the backbone.

The truth is transformers itself: states of the base model, pooled in three lines, without the encoder of this package.
"""

import errno
import json
import logging
import os
import warnings

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from contrastive_encoders.core import EncoderPrompts
from contrastive_encoders.encoders.dense import TanhHead
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.export.sentence_transformers import export_encoder
from tests.export.texts import TORTURE

OF_THE_TRUNK = [name for name, pooler in POOLERS.items() if not pooler.decodes and not pooler.is_shipped]


def by_transformers(transformer, tokenizer, texts, pooling, max_length):
    """Encode one text at a time without padding, so that nothing of a batch can leak in."""
    rows = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states_LTD = torch.stack(transformer(**inputs, output_hidden_states=True).hidden_states)[:, 0]
        first, *_, before, last = states_LTD  # the embeddings, ..., the last layer but one, the last
        pooled = {
            "mean": last.mean(0),
            "cls": last[0],
            "cls_before_pooler": last[0],
            "max": last.max(0).values,
            "last": last[-1],
            "weighted_mean": sum(i * state for i, state in enumerate(last, 1)) / sum(range(1, len(last) + 1)),
            "avg_top2": ((last + before) / 2).mean(0),
            "avg_first_last": ((states_LTD[1] + last) / 2).mean(0),
            "avg_embedding_last": ((first + last) / 2).mean(0),
        }
        rows.append(pooled[pooling].numpy())
    return np.stack(rows)


def base_model(folder):
    return AutoModel.from_pretrained(folder, add_pooling_layer=False).eval(), AutoTokenizer.from_pretrained(folder)


def export(folder, transformer, tokenizer, **options):
    """Export this transformer and tokenizer to a folder, with mean pooling by default."""
    settings = {"pooling": "mean", "max_length": 64, **options}
    return export_encoder(folder / "encoder", transformer=transformer, tokenizer=tokenizer, **settings)


def load(folder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(params=["tiny_mlm", "tiny_bert"])
def backbone(request):
    return base_model(request.getfixturevalue(request.param))


@pytest.mark.rotates
@pytest.mark.parametrize("pooling", OF_THE_TRUNK)
def test_sentence_transformers_gives_the_vectors_of_the_backbone(backbone, pooling, tmp_path):
    transformer, tokenizer = backbone
    folder = export(tmp_path, transformer, tokenizer, pooling=pooling, max_length=128)
    expected = by_transformers(transformer, tokenizer, TORTURE, pooling, 128)
    np.testing.assert_allclose(load(folder).encode(TORTURE), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_layer_behind_the_pooling_is_the_librarys_dense(backbone, normalize, tmp_path):
    transformer, tokenizer = backbone
    head = TanhHead(32, seed=5, std=0.3)
    with torch.no_grad():
        head.linear.bias.uniform_(-1, 1)
    folder = export(tmp_path, transformer, tokenizer, pooling="cls", head=head, normalize=normalize, max_length=128)
    pooled = by_transformers(transformer, tokenizer, TORTURE, "cls", 128)
    expected = np.tanh(pooled @ head.linear.weight.detach().numpy().T + head.linear.bias.detach().numpy())
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(load(folder).encode(TORTURE), expected, atol=1e-5, rtol=0)


def test_nothing_is_missing_random_or_warned_about(tiny_mlm, tmp_path, caplog):
    folder = export(tmp_path, *base_model(tiny_mlm))
    caplog.clear()  # opening the masked LM without its head was reported
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        model = load(folder)
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert not [name for name, _ in model.named_parameters() if "pooler" in name]
    assert model.max_seq_length == 64
    assert model.similarity_fn_name == "cosine"


def test_transformers_alone_opens_the_folder(backbone, tmp_path):
    transformer, tokenizer = backbone
    folder = export(tmp_path, transformer, tokenizer)
    again, info = AutoModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    assert not any(info.values()), info
    again_tokenizer = AutoTokenizer.from_pretrained(folder)
    assert again_tokenizer.model_max_length == 64
    assert again_tokenizer(TORTURE)["input_ids"] == tokenizer(TORTURE)["input_ids"]
    for name, weight in transformer.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name


def test_a_half_precision_model_is_written_in_float32_and_stays_half(tiny_mlm, tmp_path):
    whole = AutoModelForMaskedLM.from_pretrained(tiny_mlm, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    tokenizer(["a", "a longer one"], padding=True, truncation=True, max_length=3)
    folder = export(tmp_path, whole.roberta, tokenizer)
    assert whole.dtype == torch.bfloat16
    assert whole.config.architectures == ["RobertaForMaskedLM"]
    assert tokenizer.model_max_length == 512
    config = json.loads((folder / "config.json").read_text())
    assert (config["dtype"], config["architectures"]) == ("float32", ["RobertaModel"])
    saved = json.loads((folder / "tokenizer.json").read_text())
    assert (saved["truncation"], saved["padding"]) == (None, None)
    assert load(folder).encode("The ferry.").dtype == np.float32


def test_prompts_reach_queries_documents_and_plain_texts(tiny_mlm, tmp_path):
    transformer, tokenizer = base_model(tiny_mlm)
    prompts = {"plain": "sentence: ", "query": "question: "}
    folder = export(tmp_path, transformer, tokenizer, prompts=EncoderPrompts(prompts, "plain"))
    top = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert (top["prompts"], top["default_prompt_name"]) == (prompts, "plain")
    model = load(folder)
    expected = by_transformers(transformer, tokenizer, ["sentence: rain", "rain", "question: rain"], "mean", 64)
    for vector, row in [(model.encode("rain"), 0), (model.encode_document("rain"), 1), (model.encode_query("rain"), 2)]:
        np.testing.assert_allclose(vector, expected[row], atol=1e-5)


def test_a_failed_export_leaves_the_earlier_one(tiny_mlm, tmp_path, monkeypatch):
    transformer, tokenizer = base_model(tiny_mlm)
    arguments = {"transformer": transformer, "tokenizer": tokenizer, "pooling": "mean", "max_length": 32}
    folder = export_encoder(tmp_path / "encoder", **arguments)
    before = {p.name: p.stat().st_mtime_ns for p in folder.rglob("*")}

    def disk_full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(tokenizer), "save_pretrained", disk_full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        export_encoder(folder, **arguments)
    assert {p.name: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    assert [p.name for p in tmp_path.iterdir()] == ["encoder"]


def test_a_published_encoder_survives_the_round_trip(minilm_path, tmp_path):
    transformer, tokenizer = AutoModel.from_pretrained(minilm_path), AutoTokenizer.from_pretrained(minilm_path)
    folder = export(tmp_path, transformer, tokenizer, max_length=256, normalize=True)
    expected = load(minilm_path).encode(TORTURE)
    np.testing.assert_allclose(load(folder).encode(TORTURE), expected, atol=1e-5, rtol=0)
