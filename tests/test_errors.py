"""Fields and message of InputError."""

import pickle

import pytest

from contrastive_encoders.core import InputError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"key": "batch_size", "value": -1, "expected": "an integer of 1 or more", "hint": "Set batch_size=64."},
            "batch_size=-1: expected an integer of 1 or more. Set batch_size=64.",
        ),
        ({"key": "data.path", "expected": "a file"}, "data.path: expected a file."),
        ({"key": "data.path", "value": None, "expected": "a file"}, "data.path=null: expected a file."),
        ({"key": "resume", "value": True, "expected": "a path"}, "resume=true: expected a path."),
        (
            {"location": "faq.csv, line 3", "expected": "2 cells", "value": "1"},
            "faq.csv, line 3: expected 2 cells, got 1.",
        ),
        (
            {"location": "faq.csv", "key": "data.columns", "expected": "2 names"},
            "faq.csv, data.columns: expected 2 names.",
        ),
    ],
)
def test_message_of_fields(fields, message):
    error = InputError(**fields)
    assert str(error) == message
    assert {name: getattr(error, name) for name in fields} == fields


def test_value_is_shortened():
    assert len(str(InputError(key="stages", value="x" * 100_000, expected="a name"))) < 300


def test_fields_survive_a_process_border():
    error = InputError(key="seed", value=None, expected="an integer", hint="Set seed=1.")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.__dict__) == (str(error), error.__dict__)
