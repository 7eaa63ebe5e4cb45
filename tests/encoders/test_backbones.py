import json

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.backbones import check_vocabulary, load_masked_lm, load_tokenizer


def test_a_checkpoint_without_head_is_refused_unless_none_is_wanted(tiny_mlm, tmp_path):
    AutoModel.from_pretrained(tiny_mlm).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"no masked-LM head .*lm_head.*mlm_weight=0"):
        load_masked_lm(str(tmp_path), lm_head=True)
    assert load_masked_lm(str(tmp_path), lm_head=False).config.hidden_size == 32


def test_an_architecture_without_head_is_refused(tiny_t5):
    with pytest.raises(InputError, match="a t5 model has none"):
        load_masked_lm(str(tiny_t5), lm_head=True)


def test_without_a_head_no_weight_is_left_that_gets_no_gradient(tiny_bert):
    model = load_masked_lm(str(tiny_bert), lm_head=False)
    ids = torch.tensor([[2, 7, 9, 3]])
    model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_half_precision_weights_are_trained_in_float32(tiny_mlm, tmp_path):
    AutoModelForMaskedLM.from_pretrained(tiny_mlm, dtype=torch.float16).save_pretrained(tmp_path)
    assert {p.dtype for p in load_masked_lm(str(tmp_path), lm_head=True).parameters()} == {torch.float32}


def test_an_end_of_sequence_pads_where_no_token_does(tiny_mlm, tmp_path):
    AutoTokenizer.from_pretrained(tiny_mlm).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": None}))
    assert load_tokenizer(str(tmp_path)).pad_token == "</s>"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": None}))
    with pytest.raises(InputError, match="neither a pad token nor an end of sequence"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_larger_than_the_embedding_table_is_refused(tiny_mlm):
    model, tokenizer = load_masked_lm(str(tiny_mlm), lm_head=True), load_tokenizer(str(tiny_mlm))
    check_vocabulary(model, tokenizer, "same")
    tokenizer.add_tokens(["<one more>"])
    with pytest.raises(InputError, match=r"tokenizer has \d+ tokens, and the model embeddings for \d+"):
        check_vocabulary(model, tokenizer, "another")
