"""What a run speaks for trying; the curves are those of real runs."""

import pytest

from training.to_try import MOST, Facts, end_of, of_manifest, to_try

# all-MiniLM-L6-v2 on questions and answers that it matches already
KNOWN = [0.1069, 0.0301, 0.2283, 0.2203, 0.3064, 0.1235, 0.0695, 0.1093, 0.2272, 0.0743, 0.1157, 0.0645]
# random weights on 400 pairs, at rates of 1e-3, 1e-5 and 1e-2
LEARNT = [
    3.415,
    3.294,
    3.094,
    2.872,
    2.561,
    1.975,
    1.642,
    0.965,
    0.635,
    0.289,
    0.243,
    0.111,
    0.09,
    0.049,
    0.047,
    0.04,
    0.03,
    0.024,
    0.022,
    0.018,
]
TOO_SLOW = [
    3.489,
    3.52,
    3.485,
    3.482,
    3.528,
    3.476,
    3.531,
    3.499,
    3.541,
    3.47,
    3.506,
    3.515,
    3.504,
    3.474,
    3.442,
    3.472,
    3.476,
    3.4,
    3.516,
    3.438,
]
FAST = [0.095, 0.023, 0.029, 0.017, 0.017, 0.009, 0.004, 0.004, 0.002, 0.003, 0.002, 0.001, 0.001, 0.002, 0.003, 0.002]
ENOUGH = Facts(examples=5_000, steps=300, rate=2e-5)


@pytest.mark.parametrize(
    ("losses", "end"),
    [
        (LEARNT, "floor"),
        (LEARNT[:10], "falling"),
        (FAST, "floor"),
        (TOO_SLOW, "still"),
        (KNOWN, "still"),
        (LEARNT[::-1], ""),
        (LEARNT[:7], ""),
        ([], ""),
    ],
)
def test_the_end_of_a_curve(losses, end):
    assert end_of(losses) == end


@pytest.mark.parametrize(
    ("shown", "fact", "words"),
    [
        ({"worse": True, "scores": [42.0, 30.0]}, "The score fell from the first scoring on: ", "model.lr=6.7e-06."),
        ({"scores": [42.0, 41.0, 41.5]}, "The score fell from the first scoring on: ", "model.lr=6.7e-06."),
        ({"cut": 0.31, "length": 32, "longer": "null"}, "31% of the tokens lie behind token 32", "max_length=null."),
        ({"losses": LEARNT[:10]}, "The loss was still falling", " max_steps=600."),
        ({"losses": LEARNT[:10], "epochs_said": True}, "The loss was still falling", " max_steps=600 max_epochs=null."),
        ({"losses": FAST}, "The loss was at its floor for the last half of the 300 steps", "150, or more texts."),
        ({"losses": TOO_SLOW}, "The loss did not move in 300 steps: ", "too slowly, model.lr=6.0e-05."),
        (
            {"losses": KNOWN, "rate": None},
            "The loss did not move",
            "already, or it learns too slowly.",
        ),
        ({"copies": 0.12}, "12% of the examples are copies of others", "one of each in data.path."),
        ({"scores": [98.8, 99.1]}, "It had 98.8 of 100 before", "harder ones, evaluation.tasks=[FILE]."),
        (
            {"scores": [60.0, 61.0], "queries": 100, "doubt": 2.0},
            "100 are few to tell +1.0 from chance, about 440 would do",
            "give more, evaluation.tasks=[FILE].",
        ),
        ({"worse": True, "scores": [98.0, 10.0], "copies": 0.5, "examples": 9}, "More than half", "model.lr=2.0e-07."),
        ({"examples": 420}, "420 examples are few: ", " data.path=[FILE,ANOTHER]."),
        ({"examples": 420, "before": "stages.nli."}, "420 examples", " stages.nli.data.path=[FILE,ANOTHER]."),
    ],
)
def test_each_reason_is_a_number_of_the_run_with_the_words_to_type(shown, fact, words):
    [said] = to_try(ENOUGH._replace(**shown))
    assert said.startswith(fact)
    assert said.endswith(words)


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"scores": [42.0, 41.9]},  # may be chance
        {"scores": [42.0, 41.0, 43.0], "worse": True},
        {"cut": 0.31, "length": 256},  # all that the encoder reads
        {"cut": 0.01, "length": 32, "longer": "64"},
        {"losses": LEARNT[:10], "worse": True},  # what it learns is not what is scored
        {"losses": TOO_SLOW, "worse": True},  # its weights moved
        {"copies": 0.01},
        {"scores": [60.0, 59.9], "queries": 100, "doubt": 2.0},
        {"scores": [60.0, 60.1], "queries": 100, "doubt": 2.0},  # 40,000 queries
        {"scores": [60.0, 63.0], "queries": 4, "doubt": 2.0},  # what is lacking is a permutation
    ],
)
def test_without_a_reason_nothing_is_said(shown):
    assert to_try(ENOUGH._replace(**shown)) == []


def test_at_most_three_the_strongest_first():
    every = {"examples": 420, "worse": True, "scores": [42.0, 30.0], "cut": 0.3, "length": 32, "longer": "64"}
    found = to_try(ENOUGH._replace(**every, losses=FAST, copies=0.5))
    assert len(found) == MOST
    assert [one.split()[1] for one in found] == ["score", "of", "loss"]


def test_what_the_data_count_is_taken_where_they_count_it():
    assert of_manifest({"used": 7}) == {"examples": 7}
    cut = {"of": "texts", "max_length": 32, "share_behind": 0.4, "wanted": None}
    found = of_manifest({"used": 7, "kept": 10, "repeated": 2, "cuts": [{**cut, "share_behind": 0.1}, cut]})
    assert found == {"examples": 7, "copies": 0.2, "cut": 0.4, "length": 32, "longer": "null"}
    assert "longer" not in of_manifest({"used": 7, "cuts": [cut | {"wanted": 500}]})
    assert of_manifest({"used": 7, "cuts": [cut | {"of": "spans"}]})["longer"] == "64"
    parts = {"parts": {"a": {"used": 3, "kept": 3, "cuts": [cut]}, "b": {"used": 4, "kept": 5, "repeated": 4}}}
    assert of_manifest(parts) == {"examples": 7, "copies": 0.5}
