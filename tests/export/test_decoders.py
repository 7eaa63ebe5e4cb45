"""Decoder language models as encoders: trained, exported, and read from folders of other projects.

The truth is transformers, one text at a time and without padding, on ids that are written down by hand.
"""

import json
import re
from functools import cache

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import AutoConfig, AutoModel, AutoTokenizer

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.encoders.attention import reads_ahead
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.onnx_graph import export_onnx, onnx_example
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.decoders import BEGIN, END, save_decoder, tokenizer_of_a_decoder
from tests.objectives import built
from tests.variations import slow_after

TEXTS = ["The ferry leaves the harbour.", "", "Rain fell on the orchard for the third day in a row.", "rain " * 80]
LONGEST = 24


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """``decoders("llama")`` returns the folder of a random language model."""
    return cache(lambda family: save_decoder(family, tmp_path_factory.mktemp(family)))


def by_transformers(folder, pooling, *, both_ways, end):
    """Return (texts, width) embeddings, one text at a time, with an explicit mask."""
    config = AutoConfig.from_pretrained(folder)
    config.is_causal = not both_ways
    model = AutoModel.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    tokenizer = tokenizer_of_a_decoder()
    rows = []
    for text in TEXTS:
        ids = [BEGIN, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        ids = [*ids[: LONGEST - 1], END] if end else ids[:LONGEST]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        weights = torch.arange(1.0, len(ids) + 1)[:, None]
        pooled = {
            "last": states[-1],
            "mean": states.mean(0),
            "weighted_mean": (weights * states).sum(0) / weights.sum(),
        }
        rows.append(pooled[pooling].numpy())
    return np.stack(rows)


CASES = [
    (family, pooling, attention, end)
    for family in ("llama", "qwen3", "mistral", "gemma2", "gemma3", "phi", "opt", "gpt2")
    for pooling, attention, end in [("last", None, True), ("weighted_mean", "bidirectional", False)]
]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("family", "pooling", "attention", "end"), slow_after(9, [("llama", "mean", "bidirectional", True), *CASES])
)
def test_what_is_trained_is_what_others_load(decoders, tmp_path, family, pooling, attention, end):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    keys = {"pooling": pooling, "attention": attention, "append_eos": end, "max_length": LONGEST}
    encoder = built("sroberta", decoders(family), **keys).encoder
    wanted = by_transformers(decoders(family), pooling, both_ways=attention == "bidirectional", end=end)
    np.testing.assert_allclose(encoder.embed(TEXTS), wanted, atol=2e-5, rtol=0)
    ids = load_tokenizer(str(decoders(family)), ends=end)(TEXTS[0])["input_ids"]  # of the data module
    assert ids == encoder.tokenizer(TEXTS[0])["input_ids"]

    parts = {**parts_of(encoder), "prompts": EncoderPrompts({"default": "say: "}, "default"), "normalize": True}
    folder = export_encoder(tmp_path / "encoder", **parts)
    wanted = torch.nn.functional.normalize(encoder.embed([f"say: {text}" for text in TEXTS])).numpy()
    stock = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(stock.encode(TEXTS), wanted, atol=1e-5)
    np.testing.assert_allclose(load_encoder(folder, device="cpu").embed(TEXTS), wanted, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.padding_side == "right"
    assert AutoModel.from_pretrained(folder).config.to_dict().get("is_causal", True) == (attention is None)
    top = json.loads((folder / "config_sentence_transformers.json").read_text())
    needed = ">=5.21" if family == "gemma2" else ">=5.4" if attention else None  # soft caps; bidirectional attention
    assert top["requirements"].get("transformers") == needed


@pytest.mark.rotates
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_graph_gives_the_vectors_of_a_decoder(decoders, tmp_path, family, attention):
    pytest.importorskip("onnxruntime")
    keys = {"pooling": "last", "attention": attention, "append_eos": True, "max_length": LONGEST}
    encoder = built("sroberta", decoders(family), **keys).encoder.eval()
    names = {}
    code = onnx_example(encoder).strip("`").removeprefix("python")
    exec(code.replace("PATH_OF_THIS_FOLDER", str(export_onnx(tmp_path / "o", encoder, int8=False))), names)
    np.testing.assert_allclose(names["embed"](TEXTS), encoder.embed(TEXTS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("both_ways", [False, True])
def test_the_probe_sees_what_a_state_has_seen(decoders, attention, both_ways):
    config = AutoConfig.from_pretrained(decoders("llama"))
    config.is_causal = not both_ways
    model = AutoModel.from_pretrained(decoders("llama"), config=config, attn_implementation=attention).train()
    assert reads_ahead(model) == both_ways
    assert model.training


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        ("gpt_neo", {"attention": "bidirectional"}, "^model.attention=bidirectional: .*null.*gpt_neo"),
        ("llama", {"pooling": "cls"}, "^model.pooling=cls: .* model.pooling="),
        ("tiny_bert", {"append_eos": True}, "end-of-sequence"),
    ],
)
def test_unsupported_settings_are_refused(decoders, request, family, keys, message):
    folder = request.getfixturevalue(family) if family.startswith("tiny") else decoders(family)
    with pytest.raises(InputError, match=message):
        built("sroberta", folder, **keys)


INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@pytest.mark.parametrize("layout", ["e5-mistral", "qwen3-embedding"])
def test_folders_of_others_are_read(decoders, tmp_path, layout):
    """The folders are like those on the hub: last token, an end token from the tokenizer, left padding, prompts."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tmp_path / layout
    AutoModel.from_pretrained(decoders("mistral" if layout == "e5-mistral" else "qwen3")).save_pretrained(folder)
    tokenizer = tokenizer_of_a_decoder()
    state = processors.TemplateProcessing("<s> $A </s>", "<s> $A $B </s>", [("<s>", BEGIN), ("</s>", END)])
    tokenizer.backend_tokenizer.post_processor = state
    tokenizer.pad_token = "</s>"
    tokenizer.model_max_length = LONGEST
    tokenizer.save_pretrained(folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode == "lasttoken" for mode in modes}
    prompts = {
        "e5-mistral": {"web_search_query": INSTRUCTION},
        "qwen3-embedding": {"query": INSTRUCTION, "document": ""},
    }
    files = {
        "modules.json": listed,
        "1_Pooling/config.json": {"word_embedding_dimension": 32, **pooling, "include_prompt": True},
        "config_sentence_transformers.json": {"prompts": prompts[layout], "default_prompt_name": None},
    }
    if layout == "e5-mistral":
        files["sentence_bert_config.json"] = {"max_seq_length": LONGEST, "do_lower_case": False}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    (folder / "2_Normalize").mkdir()
    stock = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    for prompt in ("", INSTRUCTION):
        encoder = load_encoder(folder, prompt=prompt, device="cpu")
        assert re.search("last", encoder.description["pooling"])
        np.testing.assert_allclose(encoder.embed(TEXTS), stock.encode(TEXTS, prompt=prompt), atol=1e-5)
