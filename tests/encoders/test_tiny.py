import pytest
from safetensors.torch import load_file

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.loading.tiny import write_tiny_masked_lm

SIZES = {
    "vocab_size": 300,
    "hidden_size": 16,
    "layers": 1,
    "heads": 2,
    "intermediate_size": 32,
    "max_length": 64,
    "dropout": 0.1,
    "lowercase": True,
}
TEXTS = ["The comet returned.", "Bread rises slowly in a cold kitchen.", "An old map of the river."]


def test_the_folder_is_an_ordinary_masked_lm(tmp_path):
    write_tiny_masked_lm(tmp_path / "backbone", iter(TEXTS), seed=1, **SIZES)
    tokenizer = load_tokenizer(str(tmp_path / "backbone"))
    model = load_masked_lm(str(tmp_path / "backbone"), lm_head=True)
    assert model.config.vocab_size == len(tokenizer) <= 300
    assert tokenizer.decode(tokenizer("Bread rises")["input_ids"]) == "<s> bread rises</s>"
    assert tokenizer.model_max_length == 64


def test_the_same_seed_and_texts_give_the_same_bytes(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tiny_masked_lm(tmp_path / name, iter(TEXTS), seed=seed, **SIZES)
    vocabulary = {name: (tmp_path / name / "tokenizer.json").read_bytes() for name in "abc"}
    assert vocabulary["a"] == vocabulary["b"] == vocabulary["c"]
    weights = {name: load_file(tmp_path / name / "model.safetensors") for name in "abc"}
    assert all((weights["a"][key] == weights["b"][key]).all() for key in weights["a"])
    assert any((weights["a"][key] != weights["c"][key]).any() for key in weights["a"])


def test_sizes_that_do_not_fit_leave_nothing(tmp_path):
    with pytest.raises(InputError) as error:
        write_tiny_masked_lm(tmp_path / "backbone", iter(TEXTS), seed=1, **{**SIZES, "heads": 3})
    assert (error.value.key, error.value.value) == ("tiny.hidden_size", 16)
    assert "tiny.heads=3" in error.value.expected
    with pytest.raises(InputError) as error:
        write_tiny_masked_lm(tmp_path / "backbone", iter(["", "  "]), seed=1, **SIZES)
    assert (error.value.key, error.value.value) == ("backbone", "tiny")
    assert list(tmp_path.iterdir()) == []


def test_a_long_word_is_trained_on_in_parts(tmp_path):
    write_tiny_masked_lm(tmp_path / "backbone", iter(["ab" * 150_000, *TEXTS]), seed=1, **SIZES)
    tokenizer = load_tokenizer(str(tmp_path / "backbone"))
    assert tokenizer.decode(tokenizer("Bread rises")["input_ids"]) == "<s> bread rises</s>"
    assert len(tokenizer.tokenize("ab" * 64)) < 32
