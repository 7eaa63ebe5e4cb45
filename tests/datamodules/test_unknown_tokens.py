"""Unknown tokens of a run's rows: hand counts, and the characters of the raw texts."""

import random

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from contrastive_encoders.datamodules.store import unknown_tokens
from contrastive_encoders.datamodules.store.unknown_tokens import characters_of_tokens, sample_rows
from contrastive_encoders.training.data_summary import account_of, is_unread
from tests.conftest import SENTENCES
from tests.data import data_module, write_rows
from tests.decoders import sentencepiece

CHINESE = ["如何重置密码", "我的发票在哪里", "可以取消订单吗", "怎样修改地址"]
WORDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{word: 4 + n for n, word in enumerate("a b c d".split())}}


@pytest.fixture(scope="module")
def four_words(tmp_path_factory):
    """Return a tokenizer with a vocabulary of four entries."""
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    roles = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    folder = tmp_path_factory.mktemp("four_words")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    BertConfig(vocab_size=len(WORDS)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    """Return a small backbone whose tokenizer also knows the Chinese characters."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator([*SENTENCES, *CHINESE], trainer)
    ends = [("<s>", 2), ("</s>", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    roles = {"unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    folder = tmp_path_factory.mktemp("multilingual")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(fast), **sizes)).save_pretrained(folder)
    return folder


def loaded(path, tokenizer, tmp_path, **keys):
    data = data_module("qa", path=path, tokenizer=tokenizer, cache_dir=tmp_path / "cache", **keys)
    data.prepare_data()
    data.setup()
    return data


def line_of(data):
    return dict(account_of(data.manifest(), data.yields)).get("unknown")


def test_counts_of_a_table_that_was_counted_by_hand(four_words, tmp_path):
    rows = [
        ("a b", "c d"),  # all known
        ("a x", "c d"),  # half unknown
        ("x y a", "c d"),  # the question is more than half unknown
        ("x", "y z"),
    ]
    path = write_rows(tmp_path / "qa.jsonl", [{"question": one, "answer": other} for one, other in rows])
    found = loaded(path, four_words, tmp_path).manifest()["unknown_tokens"]
    wanted = {"of": 4, "rows": 4, "tokens": 16, "unknown": 6, "rows_with_unknown": 3, "rows_affected": 2}
    assert found == {**wanted, "bytes": False}


@pytest.mark.parametrize(
    ("rows", "is_shown", "has_advice"),
    [
        ([("a b", "c d")] * 100, False, False),
        ([*[("a b", "c d")] * 97, ("a x", "c d"), ("a x", "c d"), ("a x", "c d")], False, False),  # 3 of 400 tokens
        ([*[("a b", "c d")] * 96, *[("a x", "c d")] * 4], True, True),  # 1 % of the tokens
        ([*[("a b c d " * 4, "a")] * 95, *[("x", "a")] * 5], True, True),  # 5 % of the rows, 0.3 % of the tokens
        ([*[("a b c d " * 4, "a")] * 96, *[("x", "a")] * 4], True, False),  # counted, but no reason for a change
    ],
)
def test_advice_begins_at_one_percent_of_the_tokens_or_five_of_the_rows(
    rows, is_shown, has_advice, four_words, tmp_path
):
    path = write_rows(tmp_path / "qa.jsonl", [{"question": one, "answer": other} for one, other in rows])
    data = loaded(path, four_words, tmp_path)
    assert is_unread(data.manifest()["unknown_tokens"]) is has_advice
    assert (line_of(data) is not None) is is_shown
    assert ("backbone=" in (line_of(data) or "")) is has_advice


def test_a_multilingual_backbone_as_advised_tells_chinese_questions_apart(four_words, multilingual, tmp_path):
    rows = [{"question": CHINESE[n % 4], "answer": SENTENCES[n % len(SENTENCES)]} for n in range(40)]
    path = write_rows(tmp_path / "qa.jsonl", rows)
    english, other = (loaded(path, backbone, tmp_path) for backbone in (four_words, multilingual))
    assert "backbone=" in line_of(english)
    assert line_of(other) is None
    assert other.manifest()["unknown_tokens"]["unknown"] == 0
    texts = [[data.store.text(row).tolist() for row in range(4)] for data in (english, other)]
    assert [len({tuple(ids) for ids in one}) for one in texts] == [1, 4]


def test_prompts_do_not_hide_unknown_texts(four_words, tmp_path):
    path = write_rows(tmp_path / "qa.jsonl", [{"question": "x y", "answer": "z"}] * 3)
    found = loaded(path, four_words, tmp_path, prompts="a b c d a b c d : ").unknown_tokens
    assert (found.tokens, found.unknown, found.rows_affected) == (9, 9, 3)


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("make", [byte_level, lambda: sentencepiece("llama"), lambda: sentencepiece("gemma")])
def test_characters_of_tokens_are_those_of_the_text(make):
    tokenizer = make()
    table, rng = characters_of_tokens(tokenizer), random.Random(3)
    letters = [*"abc defghi jk,.!", *"äßé", *"如何重置密码", *"😀👍", "\n", "\t"]
    for text in ["".join(rng.choices(letters, k=30)) for _ in range(50)] + SENTENCES + CHINESE:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert table[ids].sum() == len("".join(text.split())), text


@pytest.mark.parametrize(("chinese", "is_affected"), [(5, True), (4, False)])
def test_a_byte_level_tokenizer_reports_texts_in_pieces(chinese, is_affected, tmp_path):
    folder = tmp_path / "backbone"
    byte_level().save_pretrained(folder)
    rows = [{"question": SENTENCES[n % len(SENTENCES)], "answer": "It is so."} for n in range(100 - chinese)]
    rows += [{"question": CHINESE[n % 4], "answer": "It is so."} for n in range(chinese)]
    data = loaded(write_rows(tmp_path / "qa.jsonl", rows), folder, tmp_path)
    assert data.unknown_tokens.bytes
    assert data.unknown_tokens.rows_affected == chinese  # three bytes for each character
    assert (line_of(data) is not None) is is_affected


def test_a_large_table_is_counted_on_the_same_rows_each_time(four_words, tmp_path, monkeypatch):
    monkeypatch.setattr(unknown_tokens, "MAX_ROWS", 10)
    path = write_rows(tmp_path / "qa.jsonl", [{"question": f"a {'x' * (n % 2)}", "answer": "b"} for n in range(100)])
    first, again = (loaded(path, four_words, tmp_path) for _ in range(2))
    assert (first.unknown_tokens.rows, first.unknown_tokens.of) == (10, 100)
    assert first.unknown_tokens == again.unknown_tokens
    assert "10 of 100 rows" in line_of(first)
    assert len(np.unique(sample_rows(10))) == len(sample_rows(25)) == 10


def test_the_english_tokenizer_of_the_quickstart_on_chinese(minilm_path, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    path = write_rows(tmp_path / "qa.jsonl", [{"question": one, "answer": "See the help."} for one in CHINESE])
    found = loaded(path, minilm_path, tmp_path).unknown_tokens
    assert found.unknown == sum(tokenizer(one)["input_ids"].count(tokenizer.unk_token_id) for one in CHINESE) > 0
