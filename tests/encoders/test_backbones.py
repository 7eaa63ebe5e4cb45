import json

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.backbones import check_vocabulary, load_masked_lm, load_tokenizer


def test_a_checkpoint_without_a_head_is_refused_for_mlm(tiny_mlm, tmp_path):
    AutoModel.from_pretrained(tiny_mlm).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        load_masked_lm(str(tmp_path), lm_head=True)
    assert (error.value.key, error.value.value) == ("backbone", str(tmp_path))
    assert "lm_head" in error.value.expected
    assert "model.mlm_weight=0" in error.value.hint
    assert load_masked_lm(str(tmp_path), lm_head=False).config.hidden_size == 32


def test_an_architecture_without_head_is_refused(tiny_t5):
    with pytest.raises(InputError) as error:
        load_masked_lm(str(tiny_t5), lm_head=True)
    assert (error.value.key, error.value.value) == ("backbone", str(tiny_t5))
    assert "t5" in error.value.expected


def test_without_a_head_no_weight_is_left_that_gets_no_gradient(tiny_bert):
    model = load_masked_lm(str(tiny_bert), lm_head=False)
    ids = torch.tensor([[2, 7, 9, 3]])
    model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_half_precision_weights_are_trained_in_float32(tiny_mlm, tmp_path):
    AutoModelForMaskedLM.from_pretrained(tiny_mlm, dtype=torch.float16).save_pretrained(tmp_path)
    assert {p.dtype for p in load_masked_lm(str(tmp_path), lm_head=True).parameters()} == {torch.float32}


def test_the_end_of_sequence_token_replaces_a_missing_pad_token(tiny_mlm, tmp_path):
    AutoTokenizer.from_pretrained(tiny_mlm).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": None}))
    assert load_tokenizer(str(tmp_path)).pad_token == "</s>"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": None}))
    with pytest.raises(InputError) as error:
        load_tokenizer(str(tmp_path))
    assert (error.value.key, error.value.value) == ("backbone", str(tmp_path))
    assert "pad" in error.value.expected


def test_a_tokenizer_larger_than_the_embedding_table_is_refused(tiny_mlm):
    model, tokenizer = load_masked_lm(str(tiny_mlm), lm_head=True), load_tokenizer(str(tiny_mlm))
    check_vocabulary(model, tokenizer, "same")
    tokenizer.add_tokens(["<one more>"])
    with pytest.raises(InputError) as error:
        check_vocabulary(model, tokenizer, "another")
    assert (error.value.key, error.value.value) == ("backbone", "another")
    rows = model.get_input_embeddings().num_embeddings
    assert all(str(number) in error.value.expected for number in (rows, len(tokenizer)))
