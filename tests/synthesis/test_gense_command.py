"""``generate recipe=gense``: from sentences or documents to triplets; kills, processes, bad input."""

import gzip
import json
import random
import re
import signal
from pathlib import Path

import pytest
from hydra.errors import HydraException

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import read_generator_prompts
from contrastive_encoders.datamodules.sources.row_schemas import TRIPLETS
from tests.data import RecordSource
from tests.guide import GUIDE, commands_of
from tests.synthesis.commands import here, refusal, rows_of, start
from tests.synthesis.toy_t5 import WORDS, save

pytestmark = pytest.mark.usefixtures("no_pictures")

OPEN = ["rules.agree=false", "rules.threshold=null", "rules.drop_near_copies=false"]  # a random model never passes
SMALL = ["max_new_tokens=16", "shard_size=20", "workers=1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gense")
    save(folder / "t5")
    pick = random.Random(2)
    lines = [" ".join(pick.choices(WORDS, k=pick.randint(3, 14))).capitalize() + "." for _ in range(160)]
    (folder / "in.txt").write_text("\n".join([*lines, *lines[:5], ""]), encoding="utf-8")
    documents = [{"text": " ".join(lines[first : first + 8])} for first in range(0, 160, 8)]
    with gzip.open(folder / "docs.json.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(one) for one in documents))
    return folder


def overrides_for(place, output, *overrides):
    given = [] if any(override.startswith("input=") for override in overrides) else [f"input={place / 'in.txt'}"]
    return ["recipe=gense", f"generator={place / 't5'}", f"output={output}", *given, *SMALL, *OPEN, *overrides]


def texts_of(folder):
    return [
        (row["premise"], [one["text"] for direction in ("entailment", "contradiction") for one in row[direction]])
        for row in rows_of(folder / "scored")
    ]


@pytest.fixture(scope="module")
def whole(place):
    here(*overrides_for(place, place / "whole"))
    return place / "whole"


def test_the_folder_trains_as_it_is(whole, place):
    records = list(RecordSource(whole, TRIPLETS))
    rows = rows_of(whole)
    assert len(records) == len(rows) > 40
    assert records[0].texts == (rows[0]["premise"], rows[0]["entailment"], rows[0]["contradiction"])
    manifest = json.loads((whole / "manifest.json").read_text())
    counts = manifest["counts"]
    assert manifest["complete"]
    assert counts["accepted"] == len(rows)
    assert counts["inputs"] == len(rows_of(whole / "scored")) == manifest["sentences"]["kept"]
    assert counts["samples"] - counts["accepted"] == sum(counts["rejected"].values())
    assert manifest["sentences"]["left_out"]["duplicate"] == sum(
        len(line.split()) >= 8 for line in (place / "in.txt").read_text().split("\n")[160:165]
    )
    scored = {row["premise"]: row for row in rows_of(whole / "scored")}
    for row in rows:
        [one] = scored[row["premise"]]["contradiction"]
        assert (row["contradiction"], row["p_contradiction"]) == (one["text"], round(1 - one["p_true"], 6))


def test_other_rules_filter_the_same_texts(whole, place, tmp_path):
    threshold = sorted(min(row["p_entailment"], row["p_contradiction"]) for row in rows_of(whole))[-10]
    again = ["recipe=gense_filter", f"input={whole}", f"output={tmp_path / 'again'}", "workers=2"]
    here(*again, *OPEN, f"rules.threshold={threshold}")
    wanted = [row for row in rows_of(whole) if min(row["p_entailment"], row["p_contradiction"]) >= threshold]
    assert rows_of(tmp_path / "again") == wanted
    assert len(wanted) >= 10
    curve = json.loads((whole / "manifest.json").read_text())["accepted_at_threshold"]
    assert curve["0.50"] == sum(min(row["p_entailment"], row["p_contradiction"]) >= 0.5 for row in rows_of(whole))
    here(*again, *OPEN, f"rules.threshold={threshold}")  # finished
    error = refusal(*again)
    assert (error.value, bool(re.search(r"rules\.threshold .*0\.9", error.expected))) == (tmp_path / "again", True)
    error = refusal("recipe=gense_filter", f"input={whole}", f"output={whole}", "overwrite=true")
    assert (error.key, error.value) == ("output", whole)


def test_documents_are_split_into_sentences(place, tmp_path):
    here(*overrides_for(place, tmp_path / "out", f"input={place / 'docs.json.gz'}", "input_kind=documents"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["sentences"]["texts"] == 20
    assert manifest["sentences"]["sentences"] == 160


def test_a_generator_is_prompted_as_in_training(place, tmp_path):
    """Without generator.json, the published prompts are used, as pieces.

    A run's folder may be given instead of the generator in it.
    """
    run = tmp_path / "run"
    save(run / "generator")
    prompts = {"entailment": {"prefix": "a ", "suffix": " b"}, "contradiction": {"prefix": "c ", "suffix": " d"}}
    prompts["discrimination"] = {"prefix": "if", "between": "is", "suffix": "?", "yes": "true", "no": "false"}
    kept = {"prompts": prompts, "prompt_assembly": "string"}
    (run / "generator" / "generator.json").write_text(json.dumps(kept))
    few = tmp_path / "few.txt"
    few.write_text("the cat sat on the mat in the park\n")
    here(*overrides_for(place, tmp_path / "out", f"generator={run}", f"input={few}"))
    identity = json.loads((tmp_path / "out" / "manifest.json").read_text())["identity"]["scored"]
    assert identity["prompts"] == kept == read_generator_prompts(run / "generator").to_json()
    error = refusal(
        *overrides_for(place, tmp_path / "other", f"generator={run}", f"input={few}", "prompt_assembly=pieces")
    )
    assert (error.key, error.value, "string" in error.expected) == ("prompt_assembly", "pieces", True)


@pytest.mark.slow  # two processes
def test_a_kill_and_two_processes_change_nothing(whole, place, tmp_path):
    """Texts are equal; their probabilities agree to the digits that float32 gives for any batch."""
    output = tmp_path / "out"
    process = start(*overrides_for(place, output))
    process.wait_for(lambda: list((output / "scored").glob("shard-*")))
    process.kill(signal.SIGKILL)
    process.finish()
    here(*overrides_for(place, output), "devices=2")
    assert texts_of(output) == texts_of(whole)
    assert json.loads((output / "manifest.json").read_text())["complete"]
    assert [row["premise"] for row in rows_of(output)] == [row["premise"] for row in rows_of(whole)]


GUIDED = [
    line.split()
    for line in commands_of(*GUIDE)
    if line.startswith("contrastive-encoders generate recipe=gense")
    and "instruct" not in line  # test_instruct, test_server
]


@pytest.mark.slow
def test_the_commands_of_the_guide_run(place, tmp_path):
    """The commands run as written and in order, except for generator and files."""
    assert len(GUIDED) >= 5
    for overrides in GUIDED:
        given = dict(override.split("=", 1) for override in overrides[2:])
        given["output"] = str(tmp_path / given["output"])
        models = ("generator", "forward.model", "backward.model")
        given |= {key: str(place / "t5") for key in models if key in given}
        if given["recipe"] == "gense_filter":
            given["input"] = str(tmp_path / given["input"])
        else:
            given["input"] = str(place / ("docs.json.gz" if "input_kind" in given else "in.txt"))
        here(*(f"{key}={value}" for key, value in given.items()), "workers=1")
        assert (Path(given["output"]) / "report.html").is_file()


def bad(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        (["generator=null"], ["generator=null: "]),
        (["input={empty}"], ["{empty}:1: ", "empty"]),
        (["input={blank}"], ["{blank}, input: ", "2 ", "(blank 2)"]),
        (["input={cut}"], ["{cut}:", "gzip"]),
        (["generator={bert}"], ["generator={bert}", "BertModel"]),
        (["generator={broken}"], ["{broken}/generator.json"]),
        (["candidates=two"], ["candidates=", "two"]),
        (["max_pair_tokens=0"], ["max_pair_tokens=0"]),
        (["spec=my.yaml"], ["Could not override 'spec'"]),  # Hydra's words
        (["recipe=gense_filter"], ["generator=", "null"]),
        (["recipe=gense_filter", "generator=null", "input={nothing}"], ["input={nothing}", "recipe=gense"]),
    ],
)
def test_wrong_input_is_refused_and_writes_no_shard(place, tmp_path, overrides, facts):
    files = {
        "empty": bad(tmp_path, "empty.txt", ""),
        "blank": bad(tmp_path, "blank.txt", "\n\n"),
        "cut": tmp_path / "cut.txt.gz",
        "nothing": tmp_path,
        "bert": tmp_path / "bert",
        "broken": tmp_path / "broken",
    }
    files["cut"].write_bytes(gzip.compress(b"one two three four five six seven eight nine\n" * 99)[:-12])
    files["bert"].mkdir()
    bad(files["bert"], "config.json", '{"model_type": "bert", "architectures": ["BertModel"]}')
    save(files["broken"])
    bad(files["broken"], "generator.json", "{")
    filled = [override.format(**files) for override in overrides]
    said = {override.split("=")[0] for override in filled}
    kept = [override for override in overrides_for(place, tmp_path / "out") if override.split("=")[0] not in said]
    if "recipe=gense_filter" in overrides:
        kept = [override for override in kept if override.split("=")[0] in ("generator", "input", "output")]
    with pytest.raises((InputError, HydraException)) as error:
        here(*kept, *filled)
    facts = [fact.format(**files) for fact in facts]
    assert not [fact for fact in facts if fact not in str(error.value)], error.value
    assert not list((tmp_path / "out").glob("shard-*"))
