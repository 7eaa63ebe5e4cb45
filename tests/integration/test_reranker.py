"""A reranker from the command line: mined, trained, killed and resumed, scored before and after, loaded by others."""

import json

import numpy as np
import pytest

from contrastive_encoders.io.metrics import read_rows
from tests.data import write_rows
from tests.integration.conftest import NOUNS, TINY
from tests.integration.curves import assert_same_run

STEPS = 8
SCORE = "held_out/reranked/ndcg@10"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    found = []
    for number in range(80):
        noun, other = NOUNS[number % 12], NOUNS[(number * 5 + 1) % 12]
        row = {"anchor": f"Where is {noun} {number}?", "positive": f"The {noun} {number} is by the {other}."}
        found.append(row | {f"negative_{n}": f"The {noun} {number + n} is by the {other}." for n in (1, 2)})
    return write_rows(tmp_path_factory.mktemp("rows") / "mined.jsonl", found)


@pytest.fixture(scope="module")
def overrides(rows, tiny_mlm):
    run = ["model=reranker", "data=triplets", f"data.path={rows}", *TINY, "tiny.dropout=0.3", "model.loss=listwise"]
    run += ["batch_size=8", f"max_steps={STEPS}", "model.lr=0.003", f"model.retriever={tiny_mlm}"]
    run += ["data.held_out_fraction=0.2", "model.rerank_top=10", "log_every_n_steps=1", "checkpoint.every_n_steps=2"]
    return [*run, "evaluation.every_n_steps=4", "evaluation.during_training=[held_out]"]


@pytest.mark.rotates
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(overrides, reference, train_killed, tmp_path):
    train_killed(tmp_path / "run", overrides, [5])
    assert assert_same_run(tmp_path / "run", reference, ["reranker"]) == STEPS


def test_it_is_scored_against_its_retriever_and_judged(reference, tiny_mlm):
    scored = {int(row["step"]): float(row[SCORE]) for row in read_rows(reference / "metrics.csv") if row.get(SCORE)}
    assert sorted(scored) == [0, 4, 8]
    results = json.loads((reference / "results.json").read_text())
    assert results["scores_before"][SCORE] == pytest.approx(scored[0], rel=1e-5)
    assert results["scores"][SCORE] == pytest.approx(scored[8], rel=1e-5)
    assert results["verdict"]["before"] == pytest.approx(results["scores_before"][SCORE])
    assert not (reference / "encoder").exists()


def test_the_library_evaluation_mining_and_another_run_read_the_folder(
    reference, overrides, rows, tiny_mlm, command, tmp_path
):
    from sentence_transformers import CrossEncoder

    from contrastive_encoders.cli import mine_negatives
    from contrastive_encoders.encoders.cross_encoder import load_reranker
    from tests.in_process import run_here

    pairs = [(f"Where is {noun}?", f"The {noun} is here.") for noun in NOUNS]
    theirs = CrossEncoder(str(reference / "reranker"), device="cpu").predict(pairs)
    ours = load_reranker(reference, device="cpu").score_pairs(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    two = [{key: row[key] for key in ("anchor", "positive")} for row in map(json.loads, rows.read_text().splitlines())]
    path = write_rows(tmp_path / "two.jsonl", two[:20])
    given = (f"encoder={tiny_mlm}", f"input={path}", f"output={tmp_path / 'again.jsonl'}", f"reranker={reference}")
    assert run_here("mine-negatives", mine_negatives.run, (*given, "device=cpu")) == 0
    row = json.loads((tmp_path / "again.jsonl").read_text().splitlines()[0])
    score = CrossEncoder(str(reference / "reranker"), device="cpu").predict([(row["anchor"], row["positive"])])
    assert row["scores"][0] == pytest.approx(float(score[0]), abs=2e-6)
    others = [
        override for override in overrides if not override.startswith(("backbone", "tiny.", "max_steps", "evaluation"))
    ]
    outcome = command(*others, f"backbone={reference}", "max_steps=1", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data=qa", "contrastive-encoders mine-negatives"),
        ("model.loss=triplet", "model.loss=triplet: .*binary, listwise"),
        ("data=sentences", "data=sentences: .*model=reranker"),
        ("model.retriever=nowhere/at/all", "model.retriever=nowhere/at/all:"),
    ],
)
def test_a_wrong_word_is_refused_with_one_message(override, message, overrides, rows, command, tmp_path):
    import re

    replaced = ("data=", "data.held", "evaluation") if override.startswith("data=") else ()
    given = [one for one in overrides if not one.startswith(replaced)]
    if override == "data=qa":
        given.append("data.columns=[anchor,positive]")
    outcome = command(*given, override, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 2, outcome.err
    assert re.search(message, outcome.err)
    assert not (tmp_path / "run" / "reranker").exists()
