"""Inputs with quotation marks: the model's text for them is not cut at an inner mark. The models are scripts."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from contrastive_encoders.core.gense_prompts import parse_prompts
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding
from contrastive_encoders.synthesis.questions.generation import question_in
from contrastive_encoders.synthesis.recipe_configs import Plan
from contrastive_encoders.synthesis.recipes.dino import DinoShardBuilder, x2_units
from contrastive_encoders.synthesis.recipes.gense import GenseShardBuilder, GenseShards
from contrastive_encoders.synthesis.rules.filters import CUT
from contrastive_encoders.synthesis.sentences.quotations import is_cut, quote_for_prompt
from contrastive_encoders.synthesis.shards.sharded_dataset import ShardInputs
from contrastive_encoders.synthesis.task_spec import parse_spec

CONFIGS = Path(__file__).parents[2] / "configs"
STS, GENSE = CONFIGS / "instructions" / "sts_x2.yaml", CONFIGS / "prompts" / "gense_instruct.yaml"
DECODING = Decoding(
    max_new_tokens=9,
    top_p=None,
    top_k=None,
    temperature=1.0,
    stop='"',
    seed=1,
    decode_batch_size=None,
    kv_cache_tokens=1,
)
SPEC = parse_spec(yaml.safe_load(STS.read_text()), "spec")
SENTENCES = [
    'He said "go home" and left the room.',
    '"Quoted from start to end."',
    '"Go home," he said.',
    'She calls it ("the thing").',
    "A sentence with \uff02wide\uff02 marks.",
    'Two "quotations" in one "sentence".',
]


def written(sentences, model):
    """Return the shard that DINO makes; ``model`` returns a text of any length for each prompt."""
    job = DinoShardBuilder(SPEC, Plan(per_label=1), [WorkItem(0, ShardInputs(0, list(x2_units(SPEC, sentences))))])
    shard = None
    for prompt in job.prompts():
        text, mark, _ = model(prompt.text).partition('"')
        shard = job.take(Continuation(prompt, 0, text, bool(mark), 9))
    return shard


def copied(prompt):
    """Return the text of a model that repeats sentence 1 and closes it."""
    return prompt.partition('Sentence 1: "')[2].rpartition('"\nSentence 2: "')[0] + '" and more'


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_model_that_repeats_the_input_is_not_cut(sentence):
    shard = written([sentence], copied)
    texts = [entry["text_b"] for entry in shard.rows]
    assert texts == [sentence.replace("\uff02", '"')] * 3
    assert {entry["text_a"] for entry in shard.rows} == {sentence}, "the pair has the input as it is"


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_prompt_has_no_other_straight_marks_than_its_own(sentence):
    for label in SPEC.labels:
        for text in (
            SPEC.prompt(label, quote_for_prompt(sentence)),
            *SPEC.counter_prompts(label, quote_for_prompt(sentence)),
        ):
            assert text.count('"') == 3
            assert "\uff02" not in text


@pytest.mark.parametrize(
    "answer", ['She said "go away" and stayed."', '\u201cGo away" is what she said."', 'Leave," he said."', '("x")"']
)
def test_a_text_that_is_cut_at_an_inner_mark_is_rejected_and_counted(answer):
    shard = written([SENTENCES[0]], lambda prompt: answer)
    assert shard.rows == []
    assert all(counts["rejected"] == Counter({CUT: 1}) for counts in shard.labels.values())


def test_inputs_without_marks_are_asked_and_answered_as_published():
    sentences = ["A man plays a guitar.", " It's 5 o'clock. ", "The critics' choice."]
    asked = []

    def model(prompt):
        asked.append(prompt)
        return 'He said "go home"'

    shard = written(sentences, model)
    published = [label.instruction.replace("<X1>", x1) for x1 in sentences for label in SPEC.labels]
    assert asked == published
    assert [entry["text_b"] for entry in shard.rows] == ["He said "] * 9


@pytest.mark.parametrize(
    "sentence",
    [
        "Der Lehrer sagte „setzt euch hin“ und ging.",
        "Il a crié « au secours » dans la rue.",
        "She whispered “never again” and left.",
        "The ‘masterpiece’ failed.",
        "The sign read 'no entry' in red.",
        "Er sagte »komm« zu ihr.",
    ],
)
def test_inputs_with_other_marks_get_no_texts_that_are_cut(sentence):
    asked = []

    def model(prompt):
        asked.append(prompt)
        return 'He said "go home"' if len(asked) == 1 else f'{sentence}"'

    shard = written([sentence], model)
    assert asked == [label.instruction.replace("<X1>", sentence) for label in SPEC.labels], "prompts are as published"
    assert [entry["text_b"] for entry in shard.rows] == [sentence] * 2
    assert [dict(counts["rejected"]) for counts in shard.labels.values()] == [{CUT: 1}, {}, {}]


def test_typographic_marks_stay_where_the_input_has_them():
    shard = written(['He said “go "far" home”.'], copied)
    assert {entry["text_b"] for entry in shard.rows} == {"He said “go “far” home”."}


def test_an_input_stands_on_one_line_of_the_prompt():
    assert quote_for_prompt("one\r\ntwo\n\nthree") == "one two three"


def test_what_ends_a_text():
    whole = ["He left.", "He said “go home”", "“All of it.”", "5 €", "A 15” monitor", "„Geh“, sagte er.", "Er »ging«"]
    assert not any(map(is_cut, [*whole, "« Va »", "„Sag ‚ja‘“", "“He said „geh“ twice”"]))
    assert all(map(is_cut, ["He said ", "He said: ", "Go home,", "(", "“Go", "„Geh", "« Va", "Er »ging", "“a” „b"]))


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ('What does "who am I?" mean? Query: identity', 'What does "who am I?" mean?'),
        ('"Who am I?" is what kind of question?', '"Who am I?" is what kind of question?'),
        ("Is “Wer bin ich?” a quotation? Yes", "Is “Wer bin ich?” a quotation?"),
        ('"How do bees dance?"', "How do bees dance?"),
        ("“How do bees dance?”", "How do bees dance?"),
        ('"How do bees dance?" Query: dance', "How do bees dance?"),
        ('How do "bees dance? Query: dance', 'How do "bees dance?'),
        ('bees "waggle dance"', 'bees "waggle dance"'),
        ('"waggle dance" bees', '"waggle dance" bees'),
        ('"the "waggle dance" of bees"', 'the "waggle dance" of bees'),
        ('"waggle dance"', "waggle dance"),
        ('"', ""),
    ],
)
def test_a_question_may_contain_quotation_marks(answer, question):
    assert question_in(answer) == question


class Judge:
    """Judge with marks around the premise, for which everything is true."""

    def questions(self, direction, premises, most):
        return [f'Sentence 1: "{premise}"\n{direction}: "' for premise in premises]

    def __call__(self, pairs):
        return [1.0] * len(pairs)


@pytest.mark.parametrize("sentence", [*SENTENCES, "Without any."])
def test_triplets_of_an_instruct_model_are_not_cut_at_an_inner_mark(sentence):
    shards = GenseShards(DECODING, parse_prompts(yaml.safe_load(GENSE.read_text()), "string", "prompts"), 1, 96, 96)
    job = GenseShardBuilder(shards, Judge(), [WorkItem(0, ShardInputs(0, [sentence]))])
    shard = None
    for prompt in job.prompts():
        inside = prompt.text.removeprefix('Sentence 1: "').rpartition('"\n')[0]
        text, mark, _ = (inside if prompt.key[1] == "entailment" else 'He said "no').partition('"')
        shard = job.take(Continuation(prompt, 0, text, bool(mark) or prompt.key[1] == "entailment", 9))
    [row] = shard.rows
    assert row["premise"] == sentence
    assert row["entailment"][0]["text"] == sentence.replace("\uff02", '"')
    assert row["contradiction"][0]["closed"] == (sentence == "Without any."), "left out by rules.drop_cut"


def test_a_long_blank_is_quoted_in_linear_time():
    assert quote_for_prompt(f"a{' ' * 200_000}b \n c") == quote_for_prompt(f"a{' ' * 200_000}b c")
