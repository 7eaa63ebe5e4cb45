"""Masked next-token prediction of causal language models, against the loss written out one sequence at a time."""

import json
import shutil
from functools import partial

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForTextEncoding

from contrastive_encoders.core import IGNORED_LABEL, InputError
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.encoders.attention import has_dropout, set_dropout
from tests.data import batches, data_module
from tests.decoders import FAMILIES, save_decoder
from tests.objectives import built

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ROLES = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
SPANS = {"max_span": 24, "min_span": 8, "batch_size": 3, "max_length": 32}


def documents(corpus_file, folder, **keys):
    return data_module("text", path=corpus_file, tokenizer=folder, **{**SPANS, "mlm_probability": 0.3, **keys})


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma2"])
def decoder(request, tmp_path_factory):
    return save_decoder(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.rotates
@pytest.mark.parametrize("activation_checkpointing", ["off", "on", "layers"])
def test_a_masked_token_is_predicted_one_place_before(decoder, corpus_file, activation_checkpointing):
    """The loss is -log p of token i from the state at i - 1, averaged over all masked tokens except first ones."""
    (batch,) = batches(documents(corpus_file, decoder), 1)
    config = AutoConfig.from_pretrained(decoder)
    config.is_causal = False
    model = AutoModelForCausalLM.from_pretrained(decoder, config=config, attn_implementation="eager").train()
    losses = []
    lengths = batch.anchors.lengths.tolist()
    for ids, labels in zip(batch.masked_ids.split(lengths), batch.labels.split(lengths), strict=True):
        logits = model(input_ids=ids[None]).logits[0]
        for place in range(1, len(ids)):
            if labels[place] != IGNORED_LABEL:
                losses.append(-logits[place - 1].log_softmax(0)[labels[place]])
    wanted = torch.stack(losses).mean()
    wanted.backward()

    keys = {
        "attention": "bidirectional",
        "contrastive_weight": 0.0,
        "token_budget": 64,
        "activation_checkpointing": activation_checkpointing,
    }
    objective = built("declutr", decoder, **keys)
    found = objective.training_step(batch, 0)["loss"]
    found.backward()
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    gradients = {name: weight.grad for name, weight in objective.encoder.transformer.named_parameters()}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(gradients[name], weight.grad, atol=2e-5, rtol=1e-4)


def test_the_mask_token_is_set_or_the_default(decoder, corpus_file):
    vocabulary = load_tokenizer(str(decoder)).get_vocab()
    for named, token in ((None, "_"), ("#", "#")):
        (batch,) = batches(documents(corpus_file, decoder, mask_token=named, mask_strategy="all"), 1)
        assert set(batch.masked_ids[batch.labels != IGNORED_LABEL].tolist()) == {vocabulary[token]}
    with pytest.raises(InputError) as error:
        batches(documents(corpus_file, decoder, mask_token="<gap>"), 1)
    assert (error.value.key, error.value.value) == ("model.mask_token", "<gap>")


def test_a_causal_model_has_no_mlm(decoder):
    with pytest.raises(InputError) as error:
        built("declutr", decoder, mlm_weight=1.0)
    assert error.value.key == "backbone"
    assert "model.attention=bidirectional" in error.value.hint
    alone = built("declutr", decoder)
    assert alone.mlm_weight == 0
    assert "MLM" in alone.resolved_settings["model.mlm_weight"]


DROPPED = {
    "bert": lambda: transformers.BertConfig(vocab_size=20, **SIZES),
    "albert": lambda: transformers.AlbertConfig(vocab_size=20, embedding_size=16, **SIZES),
    "distilbert": lambda: transformers.DistilBertConfig(vocab_size=20, dim=32, n_heads=4, n_layers=2),
    "modernbert": lambda: transformers.ModernBertConfig(vocab_size=20, **SIZES, **dict.fromkeys(ROLES, 0)),
    "mpnet": lambda: transformers.MPNetConfig(vocab_size=20, **SIZES),
    "t5": lambda: transformers.T5Config(vocab_size=20, d_model=32, d_kv=8, d_ff=48, num_layers=2),
    **{
        name: partial(FAMILIES[name], vocab_size=20, **dict.fromkeys(ROLES[1:3], 1))
        for name in ("llama", "phi", "opt", "gpt2", "gpt_neo")
    },
}


@pytest.mark.parametrize("family", DROPPED)
def test_one_key_sets_the_dropout_of_every_family(family):
    """A text has another embedding in each training pass, unless the dropout is 0."""
    torch.manual_seed(1)
    config = DROPPED[family]()
    ids = torch.arange(5, 15)[None]
    for probability in (0.0, 0.25):
        set_dropout(config, probability, None, family)
        model = AutoModelForTextEncoding.from_config(config) if family == "t5" else AutoModel.from_config(config)
        assert {one.p for one in model.modules() if isinstance(one, torch.nn.Dropout)} <= {probability}
        once, again = (model.train()(input_ids=ids).last_hidden_state for _ in range(2))
        assert torch.equal(once, again) == (probability == 0)
        assert has_dropout(model) == (probability > 0)


def test_where_nothing_is_predicted_no_mask_and_no_head_are_wanted(decoder, tmp_path):
    tokenizer = json.loads((shutil.copytree(decoder, tmp_path / "d") / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["=blank="] = tokenizer["model"]["vocab"].pop("_")
    (tmp_path / "d" / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert built("declutr", tmp_path / "d", mlm_weight=0.0, pooling="mean")
    with pytest.raises(InputError) as refused:
        built("declutr", tmp_path / "d", attention="bidirectional")
    assert refused.value.key == "model.mlm_weight"
