"""A baseline that is killed: the same command goes on, and leaves what one that nobody killed leaves."""

import json
import random
import signal

import pytest

from tests.synthesis.commands import here, rows_of, start
from tests.synthesis.toy_t5 import WORDS, save

pytestmark = pytest.mark.usefixtures("no_pictures")

NUMBER = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    save(folder / "t5")
    save(folder / "there", seed=3)
    pick = random.Random(7)
    lines = [" ".join(pick.choices(WORDS, k=pick.randint(8, 14))).capitalize() + "." for _ in range(NUMBER)]
    (folder / "in.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def words_for(recipe, place, output):
    given = {"recipe": recipe, "output": output, "input": place / "in.txt", "shard_size": 3, "workers": 1}
    given |= {"rules.agree": "false", "rules.threshold": "null", "rules.min_hypothesis_words": 0}
    if recipe == "gense_retrieval":
        given |= {"generator": place / "t5", "bm25.top": 8}
    else:
        given |= {"there.model": place / "there", "back.model": place / "t5", "rules.drop_cut": "false"}
        given |= {"search.max_tokens": 10, "search.beams": 1}
    return [f"{key}={value}" for key, value in given.items()]


def without_probabilities(rows):
    """Those move in the last digit with the numbers of rows that are read together."""
    return [
        {key: [one["text"] for one in value] if isinstance(value, list) else value for key, value in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("recipe", ["gense_retrieval", "gense_back_translation"])
def test_a_killed_baseline_goes_on(recipe, place, tmp_path):
    output = tmp_path / "out"
    scored = output / "scored"
    process = start(*words_for(recipe, place, output))
    process.wait_for(lambda: len(list(scored.glob("shard-*"))) >= 2)
    process.kill(signal.SIGKILL)
    assert process.finish().status == -signal.SIGKILL
    before = {path.name: path.read_bytes() for path in scored.glob("shard-*")}
    assert 2 <= len(before) < NUMBER // 3
    assert json.loads((scored / "manifest.json").read_text())["complete"] is False
    assert json.loads((output / "manifest.json").read_text())["complete"] is False
    here(*words_for(recipe, place, output))
    here(*words_for(recipe, place, tmp_path / "whole"))
    for name, data in before.items():
        assert (scored / name).read_bytes() == data, "what was whole stays"
    assert without_probabilities(rows_of(scored)) == without_probabilities(rows_of(tmp_path / "whole" / "scored"))
    assert len(rows_of(scored)) == NUMBER
    assert [row["premise"] for row in rows_of(output)] == [row["premise"] for row in rows_of(tmp_path / "whole")]
    assert json.loads((output / "manifest.json").read_text())["complete"]
    assert (output / "report.md").is_file()
