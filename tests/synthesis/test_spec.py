"""Task specs: the published prompts, the published JSON schema, and errors."""

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
    ("found", "key", "value"),
    [
        (spec_of(a={**GOOD, "counter_labels": ["b"]}), "labels.a.counter_labels", "b"),
        (spec_of(a={"instruction": "x"}), "labels.a.instruction", "'x'"),
        (spec_of(a={"instruction": '<X1> <X1> "'}), "labels.a.instruction", "2 times"),
        ({"task_name": "t", "labels": {}}, "labels", "none"),
        ({"task_name": "a b", "labels": {"a": GOOD}}, "task_name", "a b"),
        ({"task_name": "t", "labels": {1: GOOD, "1": GOOD}}, "labels", "1, 1"),
    ],
)
def test_an_invalid_spec_is_refused(found, key, value):
    with pytest.raises(InputError) as error:
        parse_spec(found, "spec=mine.yaml")
    assert (error.value.location, error.value.key, error.value.value) == ("spec=mine.yaml", key, value)


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        (spec_of(a={**GOOD, "counter_label": []}), ["labels.a.counter_label", "counter_labels"]),
        (spec_of(a={**GOOD, "decay": -1}), ["labels.a.decay=-1"]),
    ],
)
def test_an_invalid_key_of_a_label_is_refused(found, facts):
    with pytest.raises(InputError) as error:
        parse_spec(found, "spec=mine.yaml")
    assert all(fact in str(error.value) for fact in ["spec=mine.yaml", *facts])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a: [", "YAML"), ("- 1", "mapping"), ("task_name: 2024-13-45", "YAML")],
)
def test_an_invalid_spec_file_is_refused(tmp_path, text, expected):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        read_spec_file(tmp_path / "a.yaml")
    assert (error.value.location, expected in error.value.expected) == (str(tmp_path / "a.yaml"), True)
