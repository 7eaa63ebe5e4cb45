"""The comparison with a commit finds equal what is equal, and names what differs or failed."""

import pytest

from benchmarks.frozen import CASES, ROOT, Case, compared

SAME = {"losses": {".": "0.5"}, "vectors": {"text 1": "00ff"}}


def test_a_difference_in_one_digit_is_found():
    assert compared(SAME, SAME).startswith("identical")
    other = SAME | {"vectors": {"text 1": "00fe"}}
    assert compared(SAME, other) == "differs  vectors, text 1: 00ff -> 00fe"


@pytest.mark.parametrize(
    "sides", [(SAME, {"failed": "2: no such key"}), ({"failed": "2: no such key"}, SAME), ({}, {})]
)
def test_what_failed_or_left_nothing_is_not_identical(sides):
    assert compared(*sides).startswith("failed")


def test_what_one_side_lacks_differs():
    assert compared(SAME, {"losses": SAME["losses"]}) == "differs  vectors, text 1: 00ff -> absent"
    assert compared({"losses": SAME["losses"]}, SAME) == "differs  vectors, text 1: absent -> 00ff"


def test_a_word_may_have_another_name_at_the_commit():
    case = Case("renamed", ("new=1", "kept=2", "added=3"), earlier={"new=1": "old=1", "added=3": ""})
    assert case.words_at(True) == ["old=1", "kept=2", "output_dir={out}"]
    assert case.words_at(False) == ["new=1", "kept=2", "added=3", "output_dir={out}"]


def test_every_recipe_has_a_case():
    recipes = {path.stem for path in (ROOT / "configs" / "experiment").glob("*.yaml")}
    assert recipes == {name.removeprefix("experiment=") for name in CASES if name.startswith("experiment=")}
