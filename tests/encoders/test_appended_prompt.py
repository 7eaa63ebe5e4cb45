"""Ids of text and prompt against the tokenizer's ids of the joined string, which the published code reads."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, T5Tokenizer

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.encoders.loading.tiny import write_tiny_t5
from contrastive_encoders.encoders.prompt_suffix import PromptSuffix, read_template
from tests.decoders import sentencepiece

PROMPT = " Question: what can we draw from the above sentence?"
SIZES = {"vocab_size": 400, "hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "max_length": 512}
TORTURE = [
    "",
    "   ",
    "A short one.",
    " blanks  around, \t\n ",
    "rain " * 500,
    "swallows 🐦🐦 and a family 👨‍👩‍👧‍👦",
    "literal </s> inside </s></s>",
    "<pad> <unk> <extra_id_0><extra_id_99> <s> [SEP] [CLS]",
    "السفينة تغادر الميناء",
    "tab\tnew\nline \x00 nul \u200b zero width",
    "Question: what can we draw from the above sentence?",
]


def sentencepiece_like():
    """Make a T5 tokenizer; its vocabulary contains letters, digits and some words, so that many tokens are unknown."""
    letters = [chr(one) for one in range(33, 123) if chr(one) not in "<>{}\\"]
    words = ["▁", "▁the", "▁Question", ":", "▁what", "▁can", "▁we", "▁draw", "▁from", "▁above", "▁sentence", "ing"]
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [(piece, -2.0 - 0.01 * place) for place, piece in enumerate(dict.fromkeys(words + letters))]
    return T5Tokenizer(vocab=[*specials, *pieces, *((f"<extra_id_{n}>", 0.0) for n in range(99, -1, -1))])


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory, tiny_mlm, tiny_bert, tiny_t5):
    folder = tmp_path_factory.mktemp("tiny") / "backbone"
    write_tiny_t5(folder, iter(["The ferry leaves.", "Rain fell."] * 5), seed=1, dropout=0.1, lowercase=True, **SIZES)
    named = {"tiny": folder, "roberta": tiny_mlm, "bert": tiny_bert, "unigram": tiny_t5}
    loaded = {name: AutoTokenizer.from_pretrained(path) for name, path in named.items()}
    return {"t5": sentencepiece_like(), **loaded, **{name: sentencepiece(name) for name in JOINING}}


JOINING = ["llama", "llama-always", "llama-2", "gemma"]  # spaces: there, a text loses its last ones
EVERY = pytest.mark.parametrize("name", ["t5", "tiny", "roberta", "bert", "unigram"])
AND_JOINING = pytest.mark.parametrize("name", [*EVERY.args[1], *JOINING])
OF_T5 = pytest.mark.parametrize("name", ["t5", "tiny", "unigram"])


def ragged(tokenizer, texts, **options):
    rows = tokenizer(texts, **options)["input_ids"]
    return Ragged(torch.tensor([one for row in rows for one in row]), np.array([len(row) for row in rows]))


def rows(sequences):
    return [row.tolist() for row in sequences.ids.split(sequences.lengths.tolist())]


def behind(tokenizer, texts):
    """Append the prompt as in training; check that `embed`, which has the texts, reads the same ids."""
    appended = PromptSuffix(tokenizer, PROMPT, 512)
    found = rows(appended(appended.strip_trailing_spaces(ragged(tokenizer, texts))))
    assert found == rows(appended(ragged(tokenizer, [appended.strip_text(text) for text in texts])))
    return found


def joined(name, text):
    """The mark that SentencePiece uses for a space counts as a space, too."""
    return (text.rstrip(" ▁") if name in JOINING else text) + PROMPT


@AND_JOINING
def test_what_fits_has_the_ids_of_the_joined_string(name, tokenizers):
    tokenizer = tokenizers[name]
    texts = [text for text in TORTURE if len(text) < 1000 and (text.strip() or name not in JOINING)]
    texts = [text for text in texts if not (name == "llama-2" and text.endswith("</s>"))]
    assert behind(tokenizer, texts) == tokenizer([joined(name, text) for text in texts])["input_ids"]


@pytest.mark.parametrize("name", JOINING)
def test_where_no_word_ends_the_text_the_prompt_is_what_it_is_behind_a_word(name, tokenizers):
    tokenizer = tokenizers[name]
    prompt = tokenizer("a" + PROMPT)["input_ids"][len(tokenizer("a")["input_ids"]) :]
    for text, wanted in (("", ""), ("     ", ""), ("x </s>   ", "x </s>")):
        assert behind(tokenizer, [text]) == [tokenizer(wanted)["input_ids"] + prompt]


@pytest.mark.rotates
@given(text=st.text(max_size=40))
@settings(max_examples=40, deadline=None)
@AND_JOINING
def test_any_text_does(name, tokenizers, text):
    assume(text.rstrip(" ▁") or name not in JOINING)
    assert behind(tokenizers[name], [text]) == tokenizers[name]([joined(name, text)])["input_ids"]


@EVERY
@pytest.mark.parametrize("cut_before", [0, 3, 400])
def test_a_long_text_loses_its_end_and_never_the_prompt(name, cut_before, tokenizers):
    """This is true for any cut of the data module that is at least as long."""
    tokenizer, room = tokenizers[name], 9
    joined = tokenizer(PROMPT)["input_ids"]
    most = len(joined) + room
    appended = PromptSuffix(tokenizer, PROMPT, most)
    sequences = ragged(tokenizer, TORTURE, truncation=True, max_length=most + cut_before)
    for text, found in zip(TORTURE, rows(appended(sequences)), strict=True):
        plain = tokenizer(text, add_special_tokens=False)["input_ids"]
        head, tail = joined[: len(appended.before)], joined[len(appended.before) :]
        assert found == [*head, *plain[:room], *tail]
        assert len(found) <= most


@EVERY
def test_official_truncation_cuts_the_joined_string(name, tokenizers):
    tokenizer = tokenizers[name]
    for room in (1, 2, 9, 40):
        most = len(tokenizer(PROMPT)["input_ids"]) + room
        sequences = ragged(tokenizer, TORTURE, truncation=True, max_length=most)
        found = rows(PromptSuffix(tokenizer, PROMPT, most)(sequences, keep_prompt=False))
        expected = tokenizer([text + PROMPT for text in TORTURE], truncation=True, max_length=most)["input_ids"]
        assert found == expected


@OF_T5
@pytest.mark.parametrize("prompt", [PROMPT, ""])
def test_an_end_of_sequence_in_a_text_is_the_unknown_token(name, prompt, tokenizers):
    tokenizer = tokenizers[name]
    found = rows(PromptSuffix(tokenizer, prompt, 512, escape_end=True)(ragged(tokenizer, TORTURE[:9:2])))
    replaced = [text.replace("</s>", "<unk>") + prompt for text in TORTURE[:9:2]]
    assert found == tokenizer(replaced, truncation=True, max_length=512)["input_ids"] or prompt
    assert all(row.count(tokenizer.eos_token_id) == 1 and row[-1] == tokenizer.eos_token_id for row in found)
    appended = PromptSuffix(tokenizer, prompt, 512, escape_end=True)
    text = "literal </s> inside </s></s>"
    expected = tokenizer("literal <unk> inside <unk><unk>" + prompt)["input_ids"]
    assert rows(appended(ragged(tokenizer, [text])))[0] == expected


@AND_JOINING
def test_the_template_renders_the_same_ids_and_is_read_back(name, tokenizers):
    tokenizer = tokenizers[name]
    for prompt, escape in ((PROMPT, False), (' Say "it" \\ {{ twice }} é:', False), (PROMPT, True), ("", True)):
        if escape and name not in OF_T5.args[1]:
            continue
        appended = PromptSuffix(tokenizer, prompt, 512, escape_end=escape)
        assert read_template(appended.template) == (prompt, escape)
        texts = [*(text for text in TORTURE if len(text) < 1000), "</s>x", "x</s> ", "▁x ▁", "▁"]
        messages = [[{"role": "user", "content": text}] for text in texts]
        rendered = tokenizer.apply_chat_template(messages, chat_template=appended.template, tokenize=True)
        found = rendered["input_ids"] if not isinstance(rendered, list) else rendered
        assert found == rows(appended(appended.strip_trailing_spaces(ragged(tokenizer, texts))))


def test_templates_of_others_are_not_ours(tokenizers):
    ours = PromptSuffix(tokenizers["t5"], PROMPT, 64).template
    for other in (
        "{{ messages[0]['content'] }}",
        "",
        ours + "x",
        ours.replace("message['content']", "message['role']"),
    ):
        assert read_template(other) is None


@pytest.mark.parametrize("name", ["tiny", "bert", "roberta", "t5"])
def test_a_prompt_that_grows_together_with_the_text_is_refused(name, tokenizers):
    with pytest.raises(InputError) as error:
        PromptSuffix(tokenizers[name], "s more", 64)
    assert (error.value.key, error.value.value) == ("prompt", repr("s more"))
    assert "space" in error.value.hint


def test_a_prompt_that_leaves_no_room_is_refused(tokenizers):
    length = len(tokenizers["t5"](PROMPT)["input_ids"])
    with pytest.raises(InputError) as error:
        PromptSuffix(tokenizers["t5"], PROMPT, length)
    assert (error.value.key, error.value.value) == ("max_length", length)
    assert str(length + 1) in error.value.expected
    assert PromptSuffix(tokenizers["t5"], PROMPT, length + 1).room == 1
