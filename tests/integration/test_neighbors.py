"""A run with batches of neighbors: those that its encoder finds near, on two processes and after a kill."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.metrics import read_rows
from tests.forks import TRAIN, run_command

THINGS = "ferry violin orchard clock engine choir bread referee river swallow glass comet".split()


@pytest.fixture(scope="module")
def overrides(tmp_path_factory, tiny_bert):
    path = tmp_path_factory.mktemp("qa") / "qa.jsonl"
    rows = [(f"where is the {thing} number {n}?", f"{thing} {n}") for thing in THINGS for n in range(8)]
    np.random.default_rng(1).shuffle(rows)
    path.write_text("".join(json.dumps({"question": one, "answer": other}) + "\n" for one, other in rows))
    run = ["model=pairs", "data=qa", f"data.path={path}", f"backbone={tiny_bert}", "batch_size=32", "max_steps=6"]
    return [
        *run,
        "data.neighbor_group_size=4",
        "model.dropout=0",
        "model.eps=0.001",
        "log_every_n_steps=1",
        "trainer=cpu",
    ]


def groups_in(folder):
    (path,) = (folder / "neighbors").iterdir()
    return np.load(path)


def losses(folder):
    return [float(row["train/loss"]) for row in read_rows(folder / "metrics.csv")]


def test_groups_contain_the_nearest_rows_of_the_initial_encoder(reference, overrides, tiny_bert):
    """Compare one pair at a time; of rows whose questions or answers have the same tokens, a group has the first."""
    (path,) = (override.partition("=")[2] for override in overrides if override.startswith("data.path="))
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    encoder = load_encoder(str(tiny_bert), pooling="mean", device="cpu")
    vectors = encoder.embed([row["question"] for row in rows]).numpy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokens = [[tuple(tokenizer(row[name]).input_ids) for row in rows] for name in ("question", "answer")]
    groups = groups_in(reference)
    assert sorted(groups[groups >= 0].tolist()) == list(range(len(rows)))
    first, *others = groups[0]
    near = np.argsort(-(vectors @ vectors[first]), kind="stable")
    seen, wanted = [{column[first]} for column in tokens], []
    for row in near[:32]:  # eight candidates for each of four positions
        if all(column[row] not in known for column, known in zip(tokens, seen, strict=True)):
            wanted.append(float(vectors[row] @ vectors[first]))
            for column, known in zip(tokens, seen, strict=True):
                known.add(column[row])
    found = [float(vectors[row] @ vectors[first]) for row in others if row >= 0]
    assert found == pytest.approx(wanted[:3], abs=1e-4)


@pytest.mark.slow  # two processes
def test_two_processes_train_as_one_does(reference, overrides, tmp_path):
    done = run_command([TRAIN, *overrides, "trainer.strategy=ddp", "devices=2", f"output_dir={tmp_path / 'two'}"])
    assert done.returncode == 0, done.stderr
    assert np.array_equal(groups_in(tmp_path / "two"), groups_in(reference))
    assert losses(tmp_path / "two") == pytest.approx(losses(reference), rel=1e-4)


@pytest.mark.rotates
def test_a_resumed_run_keeps_its_groups(reference, overrides, command, tmp_path):
    few = [override for override in overrides if not override.startswith("max_steps=")]
    half = tmp_path / "half"
    assert command(*few, "max_epochs=1", "model.lr_schedule=constant", f"output_dir={half}").status == 0
    more = [*few, "max_epochs=2", "model.lr_schedule=constant"]
    assert command(*more, f"output_dir={tmp_path / 'reference'}").status == 0
    resume = f"resume={half / 'checkpoints' / 'last.ckpt'}"
    assert command(*more, resume, f"output_dir={tmp_path / 'more'}").status == 0
    assert losses(half) + losses(tmp_path / "more") == losses(tmp_path / "reference")


@pytest.mark.parametrize("parts", [(), ("all", "few")])
def test_more_steps_continue_with_the_rows_that_were_grouped(parts, overrides, command, tmp_path):
    """Two steps of 32 need 64 of the 96 rows. Each further pass over them is a permutation of the same groups."""
    (path,) = (override.partition("=")[2] for override in overrides if override.startswith("data.path="))
    data = [override for override in overrides if override.startswith("data") and "neighbor" not in override]
    if parts:
        keys = ("data=qa", f"path={path}", "neighbor_group_size=2", "max_length=32")
        data = ["data=mixture", *(f"data.parts.{name}.{key}" for name in parts for key in keys)]
    run = [override for override in overrides if not override.startswith(("data", "max_steps="))]
    run += [*data, *([] if parts else ["data.neighbor_group_size=4"])]
    names = [tmp_path / name for name in ("two", "three", "five")]
    assert command(*run, "max_steps=2", f"output_dir={names[0]}").status == 0
    for steps, before, after in zip((3, 5), names[:-1], names[1:], strict=True):  # the second resumes a resumed run
        resume = f"resume={before / 'checkpoints' / 'last.ckpt'}"
        outcome = command(*run, resume, f"max_steps={steps}", f"output_dir={after}")
        assert outcome.status == 0, outcome.err
        assert outcome.err.count("that the first run grouped") == max(1, len(parts))
        for groups in (before / "neighbors").iterdir():
            assert np.array_equal(np.load(groups), np.load(after / "neighbors" / groups.name))
    assert len(losses(names[2])) == 2
    if not parts:
        assert (groups_in(names[2]) >= 0).sum() == 64


@pytest.mark.rotates
@pytest.mark.parametrize("change", ["rows", pytest.param("damage", marks=pytest.mark.slow)])
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_as_a_new_one(change, overrides, command, tmp_path):
    """The rows have changed by then, or the file of groups is truncated."""
    path = tmp_path / "qa.jsonl"
    (given,) = (Path(override.partition("=")[2]) for override in overrides if override.startswith("data.path="))
    rows = given.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[:64] if change == "rows" else rows), encoding="utf-8")
    overrides = [*overrides, f"data.path={path}"]
    assert command(*overrides, f"output_dir={tmp_path / 'run'}").status == 0
    for name in ("checkpoints", "encoder"):
        shutil.rmtree(tmp_path / "run" / name)
    (tmp_path / "run" / "results.json").unlink()
    (groups,) = (tmp_path / "run" / "neighbors").iterdir()
    if change == "damage":
        groups.write_bytes(groups.read_bytes()[:200])
    path.write_text("".join(rows), encoding="utf-8")
    again = command(*overrides, f"output_dir={tmp_path / 'run'}")
    assert again.status == 0, again.err
    assert (f"{groups} is" in again.err) == (change == "damage")
    assert command(*overrides, f"output_dir={tmp_path / 'new'}").status == 0
    assert losses(tmp_path / "run") == losses(tmp_path / "new")


def test_parts_of_a_mixture_are_drawn_by_the_sizes_of_their_files(overrides, command, tmp_path):
    """This is also true if there are more rows than the steps take: 96 and 48 rows are six batches and three."""
    (given,) = (Path(override.partition("=")[2]) for override in overrides if override.startswith("data.path="))
    few = tmp_path / "few.jsonl"
    few.write_text("".join(given.read_text(encoding="utf-8").splitlines(keepends=True)[:48]), encoding="utf-8")
    of_parts = [
        f"data.parts.{name}.{key}"
        for name, file in (("all", given), ("few", few))
        for key in ("data=qa", f"path={file}", "neighbor_group_size=2", "max_length=32")
    ]
    plain = [override for override in overrides if not override.startswith(("data", "batch_size", "max_steps"))]
    outcome = command(
        *plain, "data=mixture", *of_parts, "batch_size=16", "max_steps=2", f"output_dir={tmp_path / 'run'}"
    )
    assert outcome.status == 0, outcome.err
    (data,) = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))["data"]
    assert {name: part["share"] for name, part in data["parts"].items()} == pytest.approx({"all": 2 / 3, "few": 1 / 3})
