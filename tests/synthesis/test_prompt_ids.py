"""GenSE's prompts as ids: the published assembly, the other one, and keeping a generator's own."""

import json
from pathlib import Path

import pytest
import yaml

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import (
    PromptIds,
    parse_prompts,
    read_generator_prompts,
    write_generator_prompts,
)
from tests.synthesis.toy_t5 import tokenizer

FOUND = yaml.safe_load((Path(__file__).resolve().parents[2] / "configs/prompts/gense.yaml").read_text(encoding="utf-8"))


def assembled(assembly="pieces", **changes):
    return PromptIds(parse_prompts(FOUND | changes, assembly, "test"), tokenizer(), alone=False)


def tokens_of(text):
    """Return ids without the end of sequence."""
    return tokenizer()(text)["input_ids"][:-1]


def test_published_ids_are_those_of_the_pieces_one_after_the_other():
    premise, hypothesis = "A man plays.", "the cat sat"
    ids = assembled()
    for direction, word in (("entailment", "entailment"), ("contradiction", "contradictory")):
        wanted = tokens_of(f'Write two sentences that are {word}. Sentence 1: "')
        wanted += tokens_of(premise) + tokens_of('" Sentence 2:') + [1]
        assert ids.generation(direction, [premise], 96) == [wanted]
    wanted = tokens_of('if "') + tokens_of(premise) + tokens_of('", does this mean that "')
    wanted += tokens_of(hypothesis) + tokens_of('"? true or false') + [1]
    assert ids.discrimination([premise], [hypothesis], 128) == [wanted]


def test_pieces_begin_with_a_blank_and_the_joined_text_does_not_have_it():
    """Facts about the published generator: it sees Sentence 1: " A man plays. " Sentence 2:."""
    [pieces] = assembled().generation("entailment", ["A man plays."], 96)
    [joined] = assembled("string").generation("entailment", ["A man plays."], 96)
    written = 'Write two sentences that are entailment. Sentence 1: "{}" Sentence 2:</s>'
    assert tokenizer().decode(pieces) == written.format(" A man plays. ")
    assert tokenizer().decode(joined) == written.format("A man plays.")
    assert joined == tokenizer()(written.removesuffix("</s>").format("A man plays."))["input_ids"]


@pytest.mark.parametrize("assembly", ["pieces", "string"])
def test_sentences_are_cut_and_prompts_never(assembly):
    ids = assembled(assembly)
    long = " ".join(["cat"] * 50)
    [cut], [short] = (ids.generation("entailment", [text], 7) for text in (long, " ".join(["cat"] * 7)))
    assert cut == short
    assert cut[-1] == 1
    [pair] = ids.discrimination([long], [long], 7)
    assert pair == ids.discrimination([" ".join(["cat"] * 7)], [" ".join(["cat"] * 7)], 7)[0]
    assert tokenizer().decode(pair).endswith('"? true or false</s>')


def test_the_answers_are_the_first_ids_of_their_words():
    assert assembled().answers() == (tokens_of("true")[0], tokens_of("false")[0])


@pytest.mark.parametrize(("yes", "no"), [("true", "true"), ("true", ""), ("xa", "xb")])
def test_answers_that_cannot_be_told_apart_are_refused(yes, no):
    words = FOUND["discrimination"] | {"yes": yes, "no": no}
    with pytest.raises(InputError) as error:
        assembled(discrimination=words).answers()
    assert "prompts.discrimination" in str(error.value)


def test_a_generator_keeps_its_prompts(tmp_path):
    assert read_generator_prompts(tmp_path) is None
    prompts = parse_prompts(FOUND, "string", "test")
    write_generator_prompts(tmp_path, prompts)
    assert read_generator_prompts(tmp_path) == prompts
    kept = json.loads((tmp_path / "generator.json").read_text())
    assert kept["prompt_assembly"] == "string"
    assert kept["prompts"] == {key: FOUND[key] for key in ("entailment", "contradiction", "discrimination")}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("{", "JSON"),
        ('{"prompt_assembly": "words"}', "pieces, string"),
        ('{"prompt_assembly": "pieces"}', "prompts.entailment.prefix"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, fact):
    (tmp_path / "generator.json").write_text(text)
    with pytest.raises(InputError) as error:
        read_generator_prompts(tmp_path)
    assert fact in str(error.value)
    assert str(tmp_path) in str(error.value)
