"""Runs on a mixture: logs of its parts, resumed after a kill, on two processes, against plain training."""

import json
import re

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from contrastive_encoders.io.metrics import read_rows
from tests.data import write_rows
from tests.forks import TRAIN, run_command
from tests.integration.conftest import TINY
from tests.integration.curves import without_times
from tests.integration.test_objectives import rows_of

STEPS = 9
BASE = [
    "model=simcse",
    *TINY,
    "tiny.dropout=0.3",
    "model.mlp=false",
    "batch_size=8",
    f"max_steps={STEPS}",
    "model.lr=0.003",
]
COLUMNS = {"triplets": ("anchor", "positive", "negative"), "qa": ("question", "answer"), "sentences": ("text",)}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, columns in COLUMNS.items():
        write_rows(folder / f"{name}.jsonl", rows_of(columns))
    return folder


@pytest.fixture(scope="module")
def overrides(tables):
    """Return the arguments of a run on three kinds of data, with dropout."""
    parts = [
        override
        for name in COLUMNS
        for override in (f"data.parts.{name}.data={name}", f"data.parts.{name}.path={tables / name}.jsonl")
    ]
    return [*BASE, "data=mixture", *parts, "log_every_n_steps=4", "checkpoint.every_n_steps=2"]


def losses(folder):
    return [
        {name: float(cell) for name, cell in row.items() if name.startswith("train/loss") and cell}
        for row in read_rows(folder / "metrics.csv")
    ]


@pytest.mark.rotates
def test_the_loss_of_a_part_is_the_mean_of_its_steps(overrides, reference, command, tmp_path):
    done = command(*overrides, f"output_dir={tmp_path / 'each'}", "log_every_n_steps=1")
    assert done.status == 0, done.err
    assert re.search(r"7 .*qa, 7 .*sentences, 15 .*triplets", done.err)  # negatives: each row of the last has one
    each = losses(tmp_path / "each")
    parts = [next(name for name in row if name != "train/loss") for row in each]
    assert len(set(parts)) == 3
    assert all(row["train/loss"] == row[part] for row, part in zip(each, parts, strict=True))
    for row, (first, last) in zip(losses(reference), ((0, 4), (4, 8), (8, 9)), strict=True):
        for name in {*parts[first:last]}:
            steps = [each[at]["train/loss"] for at in range(first, last) if parts[at] == name]
            assert row[name] == pytest.approx(sum(steps) / len(steps), rel=1e-6)
    [data] = json.loads((reference / "results.json").read_text())["data"]
    assert {name: part["used"] for name, part in data["parts"].items()} == dict.fromkeys(COLUMNS, 44)


@pytest.mark.slow  # two processes
def test_two_processes_have_the_losses_of_one(overrides, command, tmp_path):
    overrides = [
        *(override for override in overrides if "sentences" not in override),
        "tiny.dropout=0",
        "max_steps=5",
        "log_every_n_steps=1",
    ]
    for mixed in ("true", "false"):
        if mixed == "false":  # rows with equal columns only
            overrides = [*overrides, "data.parts.triplets.columns=[anchor,positive]", "data.homogeneous=false"]
        folders = [tmp_path / f"{mixed}-{number}" for number in (1, 2)]
        assert command(*overrides, f"output_dir={folders[0]}").status == 0
        two = run_command(
            [
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                TRAIN,
                *overrides,
                f"output_dir={folders[1]}",
            ]
        )
        assert two.returncode == 0, two.stderr
        one, other = (losses(folder) for folder in folders)
        assert len(one) == 5
        for ours, theirs in zip(one, other, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.rotates
def test_one_part_trains_as_plain_data(tables, command, tmp_path):
    path, prompts = tables / "triplets.jsonl", "prompts=['ask: ','tell: ','']"
    plain = command(
        *BASE,
        "data=triplets",
        f"data.path={path}",
        f"data.{prompts}",
        f"output_dir={tmp_path / 'plain'}",
        "log_every_n_steps=1",
    )
    mixed = command(
        *BASE,
        "data=mixture",
        "data.parts.it.data=triplets",
        f"data.parts.it.path={path}",
        f"data.parts.it.{prompts}",
        f"output_dir={tmp_path / 'mixed'}",
        "log_every_n_steps=1",
    )
    assert (plain.status, mixed.status) == (0, 0), mixed.err
    rows = [
        [{name: cell for name, cell in row.items() if name != "train/loss/it"} for row in without_times(tmp_path / run)]
        for run in ("plain", "mixed")
    ]
    assert rows[0] == rows[1]
    for run in ("plain", "mixed"):  # what precedes the texts also precedes those of the library's user
        encoder = SentenceTransformer(str(tmp_path / run / "encoder"), device="cpu")
        plainly = encoder.encode(["ask: a ferry", "tell: a ferry", "a ferry"])
        named = encoder.encode_query("a ferry"), encoder.encode_document("a ferry"), encoder.encode("a ferry")
        torch.testing.assert_close(torch.tensor(np.stack(named)), torch.tensor(plainly), rtol=0, atol=1e-5)


BAD = [
    (["data.parts.qa.data=qa", "data.max_length=9"], "data.parts.qa.max_length"),
    (["data.parts.nli.path=x"], "data.parts.nli.data=null: "),
    (["data.parts.nli.data=triplets"], "data.parts.nli.path=null: "),
    (["data.parts.nli.data=triplets", "data.parts.nli.pth=x"], " data.parts.nli.path."),
    (["data.parts.nli.data=mixture"], "data.parts.nli.data=mixture: "),
    (
        ["data.parts.nli.data=triplets", "data.parts.nli.path={path}", "data.parts.nli.fraction=2"],
        "data.parts.nli.fraction=2: ",
    ),
    (["data.parts.qa.data=qa", "data.parts.qa.path={qa}", "monitor=train/loss/aq"], " train/loss/qa"),
    (
        ["data.parts.qa.data=qa", "data.parts.qa.path={qa}", "model.hard_negative_weight=1"],
        "data.parts.qa: model.hard_negative_weight=1: ",
    ),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("added", "said"), BAD)
def test_a_wrong_key_of_a_part_is_refused_before_training(added, said, tables, command, tmp_path):
    given = [override.format(path=tables / "triplets.jsonl", qa=tables / "qa.jsonl") for override in added]
    outcome = command(*BASE, "data=mixture", *given, f"output_dir={tmp_path / 'run'}")
    assert (outcome.status, outcome.err.count("Traceback")) == (2, 0), outcome.err
    assert said in outcome.err
