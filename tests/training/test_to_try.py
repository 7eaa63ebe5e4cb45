"""Suggestions of a run; the curves are those of real runs, except for two that are made."""

import re
import shlex

import pytest

from contrastive_encoders.datamodules.sources.records import list_setting
from contrastive_encoders.training.advice import MAX_REASONS, Facts, end_of, manifest_facts, suggestions
from contrastive_encoders.training.checks import check_values
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.data_summary import multilingual
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.run_verdict import logged_losses, sources_of

# all-MiniLM-L6-v2 on questions and answers that it matches already
KNOWN = [0.1069, 0.0301, 0.2283, 0.2203, 0.3064, 0.1235, 0.0695, 0.1093, 0.2272, 0.0743, 0.1157, 0.0645]
# random weights on 400 pairs, at learning rates of 1e-3, 1e-5 and 1e-2
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
# Made for this test, not from a run: a noisy fall from 1.21 to 0.13 that continues in the last half
TICKETS = [1.21, 1.13, 1.02, 0.93, 0.88, 0.71, 0.66, 0.62, 0.48, 0.51, 0.42, 0.36]
TICKETS += [0.39, 0.28, 0.31, 0.24, 0.27, 0.19, 0.22, 0.16, 0.18, 0.14, 0.17, 0.13]
# Made, too: a straight fall, to precede a floor
DOWN = [1 - 0.9 * n / 8 for n in range(8)]
ENOUGH = Facts(examples=5_000, steps=300, rate=2e-5)


@pytest.mark.parametrize(
    ("losses", "end"),
    [
        (LEARNT, ""),  # it halves three times in the last half: no floor, and no overall fall
        (LEARNT + LEARNT[-8:] * 4, "floor"),
        (TICKETS, "falling"),
        ([*DOWN, *[0.1, 0.11, 0.09, 0.1, 0.1, 0.09, 0.11, 0.1] * 2], "floor"),
        ([*DOWN, *[0.1, 0.4, 0.02, 0.3, 0.1, 0.01, 0.35, 0.1] * 2], ""),  # noisy enough that it may fall
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
    ("facts", "numbers", "overrides"),
    [
        ({"worse": True, "scores": [42.0, 30.0]}, [], "model.lr=6.7e-06."),
        ({"scores": [42.0, 41.0, 41.5]}, [], "model.lr=6.7e-06."),
        ({"cut": 0.31, "length": 32, "longer": "null"}, ["32", "31%"], "max_length=null."),
        ({"losses": LEARNT[:10]}, [], " max_steps=600."),
        (
            {"losses": LEARNT[:10], "limits": "max_epochs=null max_time=null", "key_prefix": "stages.nli."},
            [],
            " stages.nli.max_steps=600 stages.nli.max_epochs=null stages.nli.max_time=null.",
        ),
        ({"losses": FAST}, ["300"], " max_steps=150."),
        ({"losses": TOO_SLOW}, ["300"], " model.lr=6.0e-05."),
        ({"losses": KNOWN, "rate": None}, ["300"], " low."),
        ({"copies": 0.12, "files": "faq.csv"}, ["12%"], " faq.csv."),
        (
            {"examples": 270, "unknown": "9.0% of the tokens are unknown", "multilingual": "backbone=OWNER/NAME"},
            ["9.0%"],
            " backbone=OWNER/NAME.",
        ),
        ({"scores": [98.8, 99.1]}, ["98.8", "100"], " evaluation.custom_tasks=[FILE]."),
        (
            {"scores": [60.0, 61.0], "items": 100, "doubt": 2.0},
            ["100", "+1.0", "440"],
            " evaluation.custom_tasks=[FILE].",
        ),
        ({"worse": True, "scores": [98.0, 10.0], "copies": 0.5, "examples": 9}, [], "model.lr=2.0e-07."),
        ({"examples": 420, "more": "data.path=[a.csv,FILE]"}, ["420"], " data.path=[a.csv,FILE]."),
        (
            {"examples": 420, "more": "data.fraction=1.0", "key_prefix": "stages.nli."},
            ["420"],
            " stages.nli.data.fraction=1.0.",
        ),
        ({"examples": 420}, ["420"], "more."),
    ],
)
def test_each_suggestion_has_its_numbers_and_the_settings(facts, numbers, overrides):
    [suggestion] = suggestions(ENOUGH._replace(**facts))
    assert re.findall(r"(?<![\w.])[+]?\d[\d.,]*%?(?= |$|,)", suggestion.removesuffix(overrides)) == numbers
    assert suggestion.endswith(overrides)


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"scores": [42.0, 41.9]},  # may be chance
        {"scores": [42.0, 41.0, 43.0], "worse": True},
        {"cut": 0.31, "length": 256},  # the encoder's maximum
        {"cut": 0.01, "length": 32, "longer": "64"},
        {"losses": LEARNT[:10], "worse": True},  # training examples differ from the scored ones
        {"losses": TOO_SLOW, "worse": True},  # its weights moved
        {"losses": LEARNT[:10], "stops_early": True},  # the score decides
        {"losses": FAST, "stops_early": True},
        {"losses": TICKETS[:7]},  # too short a curve
        {"losses": LEARNT[8:]},  # neither a floor nor a fall is certain
        {"copies": 0.01, "files": "faq.csv"},
        {"copies": 0.12},  # of rows that are in no file of the user
        {"scores": [94.0, 94.0]},
        {"examples": 1_000},
        {"worse": True, "scores": [42.0, 42.1]},
        {"scores": [60.0, 59.9], "items": 100, "doubt": 2.0},
        {"scores": [60.0, 60.1], "items": 100, "doubt": 2.0},  # 40,000 queries
        {"scores": [60.0, 63.0], "items": 4, "doubt": 2.0},  # a permutation is missing
    ],
)
def test_without_a_reason_there_is_no_suggestion(shown):
    assert suggestions(ENOUGH._replace(**shown)) == []


def test_there_are_at_most_three_suggestions_the_strongest_first():
    every = {"examples": 420, "worse": True, "scores": [42.0, 30.0], "cut": 0.3, "length": 32, "longer": "64"}
    found = suggestions(ENOUGH._replace(**every, losses=FAST, copies=0.5, files="faq.csv"))
    assert len(found) == MAX_REASONS
    assert [re.findall(r"([\w.]+)=", one) for one in found] == [["model.lr"], ["data.max_length"], ["max_steps"]]


CUT = {"of": "texts", "max_length": 32, "share_behind": 0.4, "wanted": None}


def test_facts_are_read_from_the_manifest_of_the_data():
    assert manifest_facts({"used": 7}) == {"examples": 7}
    found = manifest_facts({"used": 7, "kept": 10, "repeated": 2, "cuts": [{**CUT, "share_behind": 0.1}, CUT]}, 256)
    assert found == {"examples": 7, "copies": 0.2, "cut": 0.4, "length": 32, "longer": "null"}
    labeled = manifest_facts({"used": 7, "kept": 10, "repeated": 4, "relabeled": 3})
    assert labeled["copies"] == 0.1, "rows with another label are not copies"
    parts = {"parts": {"a": {"used": 3, "kept": 3, "cuts": [CUT]}, "b": {"used": 4, "kept": 5, "repeated": 4}}}
    assert manifest_facts(parts, 256) == {"examples": 7, "copies": 0.5}


@pytest.mark.parametrize(
    ("cut", "reads", "longer"),
    [
        ({}, 33, "null"),
        ({}, 32, None),  # the encoder's maximum
        ({}, None, None),  # without an encoder
        ({"wanted": 500}, 256, None),  # chosen by the texts and the encoder
        ({"of": "spans"}, 256, "64"),
        ({"of": "spans"}, 48, "48"),  # a larger value would be refused
        ({"of": "spans"}, 32, None),
    ],
)
def test_a_longer_length_is_one_that_the_encoder_reads(cut, reads, longer):
    assert manifest_facts({"used": 7, "cuts": [CUT | cut]}, reads).get("longer") == longer


@pytest.mark.parametrize(
    ("counts", "shares"),
    [
        ({"unknown": 10, "rows_affected": 0}, ["1.0%", "0.0%"]),
        ({"unknown": 9, "rows_affected": 4}, []),
        ({"unknown": 0, "rows_affected": 5}, ["5.0%"]),
    ],
)
def test_unknown_tokens_are_a_reason_from_the_same_shares_as_in_the_summary(counts, shares):
    counts = {"tokens": 1_000, "rows": 100, **counts}
    found = manifest_facts({"used": 100, "unknown_tokens": counts}).get("unknown")
    assert re.findall(r"[\d.]+%", found or "") == shares


@pytest.mark.parametrize(("resume", "losses"), [("auto", [3.0, 2.0]), ("a/checkpoints/last.ckpt", [])])
def test_losses_of_half_a_run_are_not_judged(resume, losses, tmp_path):
    (tmp_path / "metrics.csv").write_text("step,train/loss\n1,3.0\n2,2.0\n")
    run = resolve(compose(["experiment=improve", "data.path=x.csv", f"output_dir={tmp_path}", f"resume={resume}"]))
    assert logged_losses(run) == losses


@pytest.mark.parametrize("unit", ["queries", "pairs"])
def test_test_items_have_the_unit_of_their_score(unit):
    [found] = suggestions(ENOUGH._replace(scores=[60.0, 61.0], items=100, unit=unit, doubt=2.0))
    assert re.findall("queries|pairs", found) == [unit]


ADVISED = [
    {"worse": True, "scores": [98.0, 10.0]},
    {"worse": True, "scores": [42.0, 30.0]},
    {"scores": [98.8, 99.1]},
    {"scores": [60.0, 61.0], "items": 100, "doubt": 2.0},
    {"cut": 0.31, "length": 32, "longer": "null"},
    {"cut": 0.31, "length": 32, "longer": "64"},
    {"losses": LEARNT[:10], "limits": "max_epochs=null max_time=null"},
    {"losses": FAST},
    {"losses": TOO_SLOW},
    {"unknown": "9.0% of the tokens are unknown", "multilingual": multilingual(None)},
    {"examples": 9, "more": "data.fraction=1.0"},
    {"examples": 9, "more": list_setting("data.path", ["my faq (1).csv", "FILE"])},
]


@pytest.mark.parametrize("before", ["", "stages.nli."])
@pytest.mark.advice(
    "contrastive_encoders.training.advice:suggestions#1",
    "contrastive_encoders.training.advice:suggestions#2",
    "contrastive_encoders.training.advice:suggestions#3",
    "contrastive_encoders.training.advice:suggestions#4",
    "contrastive_encoders.training.advice:suggestions#5",
)
def test_a_run_accepts_the_settings_of_each_piece_of_advice(before):
    stages = ["+stages.nli.max_steps=2", "+stages.next.max_steps=2"] if before else []
    overrides = ["experiment=improve", "data.path=faq.csv", "max_epochs=3", "max_time=00:01:00:00", *stages]
    left = list[str]()
    for shown in ADVISED:
        [advice] = suggestions(ENOUGH._replace(key_prefix=before, **shown))
        settings = [override.rstrip(".") for override in shlex.split(advice) if "=" in override]
        assert settings, advice
        left += settings
    assert len(left) == len(ADVISED) + 2
    while left:
        together = {setting.partition("=")[0]: setting for setting in reversed(left)}.values()  # a run takes one each
        run = resolve(compose([*overrides, *together]))
        for one in (run, *run.all_stages):
            check_values(one)
        left = [setting for setting in left if setting not in together]


@pytest.mark.parametrize(
    ("overrides", "manifest", "more", "files"),
    [
        (["data=qa", "data.path=faq.csv"], {"used": 9}, "data.path=[faq.csv,ANOTHER_FILE]", "faq.csv"),
        (["data=qa", "data.path=faq.csv"], {"used": 9, "fraction": 0.5}, "data.fraction=1.0", "faq.csv"),
        (["data=qa", "data.path=OWNER/NAME"], {"used": 9}, "", ""),  # a data set on the hub
        (["data=pydocs_pairs"], {"used": 9}, "", ""),  # none of its keys names files
        (
            ["data=mixture", *(f"data.parts.{name}.{key}" for name in "ab" for key in ("data=qa", f"path={name}.csv"))],
            {"parts": {"a": {"used": 9}, "b": {"used": 4}}},
            "data.parts.b.path=[b.csv,ANOTHER_FILE]",
            "a.csv, b.csv",
        ),
    ],
)
def test_more_examples_come_from_where_the_data_come_from(overrides, manifest, more, files):
    assert sources_of(resolve(compose(["model=pairs", *overrides])), manifest) == (more, files)
