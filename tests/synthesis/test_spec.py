"""Task specs: the published prompts to the letter, the published JSON, and one sentence for each error."""

import json
from pathlib import Path

import pytest
import yaml

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.task_spec import parse_spec, read_spec_file

INSTRUCTIONS = Path(__file__).resolve().parents[2] / "configs" / "instructions"
MEAN = "Task: Write two sentences that mean the same thing."
SIMILAR = "Task: Write two sentences that are somewhat similar."
DIFFERENT = "Task: Write two sentences that are on completely different topics."


def published(name):
    return parse_spec(yaml.safe_load((INSTRUCTIONS / f"{name}.yaml").read_text()), name)


def spec_of(**labels):
    return {"task_name": "t", "labels": labels}


def test_x2_prompts_are_the_published_ones():
    spec = published("sts_x2")
    x1 = 'He said <X1> & "hi".'
    expected = {
        label: f'{task}\nSentence 1: "{x1}"\nSentence 2: "'
        for label, task in {"1": MEAN, "0.5": SIMILAR, "0": DIFFERENT}.items()
    }
    assert {label.name: spec.prompt(label, x1) for label in spec.labels} == expected
    assert [label.name for label in spec.labels] == ["1", "0.5", "0"]
    counters = {label.name: spec.counter_prompts(label, x1) for label in spec.labels}
    assert counters == {"1": (), "0.5": (expected["1"],), "0": (expected["1"], expected["0.5"])}
    assert spec.takes_input


def test_x1_prompts_are_the_published_ones():
    spec = published("sts_x1")
    assert [spec.prompt(label, None) for label in spec.labels] == [
        f'{task}\nSentence 1: "' for task in (MEAN, SIMILAR, DIFFERENT)
    ]
    assert all(not label.counters for label in spec.labels)
    assert not spec.takes_input


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_the_published_schema_is_read_from_json_and_yaml(tmp_path, suffix):
    published = {
        "task_name": "imdb-reviews",
        "labels": {
            "0": {"instruction": 'Task: bad.\nMovie: "<X1>"\nReview: "', "counter_labels": ["1"]},
            "1": {"instruction": 'Task: good.\nMovie: "<X1>"\nReview: "', "counter_labels": ["0"]},
        },
    }
    path = tmp_path / f"spec.{suffix}"
    path.write_text(json.dumps(published, indent=2) if suffix == "json" else yaml.safe_dump(published))
    spec = parse_spec(read_spec_file(path), "spec")
    assert spec.to_json() == published
    assert spec.counter_prompts(spec.label("0"), "Jaws") == ('Task: good.\nMovie: "Jaws"\nReview: "',)


GOOD = {"instruction": 'x "'}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (spec_of(a={**GOOD, "counter_labels": ["b"]}), ["'a'", "'b'", "none of the labels"]),
        (spec_of(a={"instruction": "x"}), ["labels.a", "must end in a straight quotation mark"]),
        (spec_of(a={"instruction": '<X1> <X1> "'}), ["<X1> 2 times"]),
        ({"task_name": "t", "labels": {}}, ["wanted labels"]),
        ({"task_name": "a b", "labels": {"a": GOOD}}, ["task_name", "'a b'"]),
        (spec_of(a={**GOOD, "counter_label": []}), ["labels.a.counter_label:", "counter_labels"]),
        (spec_of(a={**GOOD, "decay": -1}), ["decay=-1"]),
        ({"task_name": "t", "labels": {1: GOOD, "1": GOOD}}, ["got 1, 1"]),
    ],
)
def test_a_wrong_spec_is_refused_in_a_sentence(found, words):
    with pytest.raises(InputError) as error:
        parse_spec(found, "spec=mine.yaml")
    assert all(word in str(error.value) for word in ["spec=mine.yaml", *words])


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.yaml", "a: [", "spec="),
        ("a.yaml", "- 1", "wanted a mapping"),
        ("a.yaml", "task_name: 2024-13-45", "spec="),
    ],
)
def test_a_file_that_is_no_spec(tmp_path, name, text, word):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=word):
        read_spec_file(tmp_path / name)
