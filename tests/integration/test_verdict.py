"""The verdict at the end of a run about the encoder that it started from, by the real command."""

import itertools
import json
import math
import random
import re
import shutil
from pathlib import Path

import pytest

from contrastive_encoders.export.model_card import model_card
from contrastive_encoders.io.item_scores import read_items
from contrastive_encoders.io.results import read_results
from contrastive_encoders.reports.tables import escape
from tests.data import write_rows
from tests.integration.conftest import TINY

SCORE = "mine/cosine/ndcg@10"
STEPS = 40


def pair(words):
    """Make a question in one language and its answer in another: shared words find nothing, and much can be learned."""
    return {"question": " ".join(f"q{word}q" for word in words), "answer": " ".join(f"x{word}z" for word in words)}


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    drawn = random.Random(0).sample(list(itertools.combinations("abcdefghijklmnopqrstuvwx", 3)), 480)
    for name, part in (("train", drawn[:400]), ("mine", drawn[400:])):
        write_rows(folder / f"{name}.jsonl", map(pair, part))
    run = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=32", f"max_steps={STEPS}"]
    run += [f"data.path={folder / 'train.jsonl'}", f"evaluation.custom_tasks={folder / 'mine.jsonl'}", "tiny.dropout=0"]
    return [*run, *TINY, "log_every_n_steps=2", "model.lr=0.01", "checkpoint.every_n_steps=5"]


@pytest.fixture(scope="module")
def better(overrides, train):
    return train(*overrides)


def verdict_in(folder):
    return read_results(folder / "results.json")["verdict"]


def test_a_run_that_improved_the_encoder_reports_the_gain(overrides, better, command):
    folder, outcome = better
    results, verdict = read_results(folder / "results.json"), verdict_in(folder)
    assert (verdict["outcome"], verdict["scores"], verdict["items"]) == ("better", [SCORE], 80)
    assert verdict["before"] == results["scores_before"][SCORE]
    assert verdict["after"] == results["scores"][SCORE]
    assert verdict["tfidf"] == results["baselines"]["mine/tfidf/ndcg@10"]
    low, high = verdict["interval"]
    assert 0 < low < verdict["after"] - verdict["before"] < high
    assert re.match(r"Better.*80 queries.*TF-IDF", verdict["sentence"])
    assert verdict["suggestions"] == []
    again = command(*overrides, f"output_dir={folder}")
    assert (again.status, "overwrite=true" in again.err, verdict["sentence"] in again.err) == (0, True, True)
    assert verdict["sentence"] in outcome.out
    assert escape(verdict["sentence"]) in (folder / "encoder" / "README.md").read_text(encoding="utf-8")
    items = read_items(folder / "item_scores.npz")
    assert items.values_before[SCORE].mean() == pytest.approx(verdict["before"])


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("rate", "outcome", "begin", "shown"),
    [
        ("1e-9", "inconclusive", "Inconclusive: ", "400 examples.*data.path="),
        ("3", "worse", "Worse: ", "model.lr=3.0e-02"),
    ],
)
def test_a_run_that_did_not_improve_reports_suggestions(
    rate, outcome, begin, shown, overrides, better, command, tmp_path
):
    done = command(
        *overrides, f"backbone={better[0]}", f"model.lr={rate}", "max_steps=16", f"output_dir={tmp_path / 'run'}"
    )
    assert done.status == 0, done.err
    verdict = verdict_in(tmp_path / "run")
    assert (verdict["outcome"], verdict["before"]) == (outcome, pytest.approx(verdict_in(better[0])["after"], abs=0.01))
    assert verdict["sentence"].startswith(begin)
    assert ("Keep " in verdict["sentence"]) == (outcome == "worse")
    assert any(re.search(shown, one) for one in verdict["suggestions"]), verdict["suggestions"]
    assert verdict["suggestions"][0] in done.out


def ndcg(folder, rows):
    """Return nDCG@10 of stock sentence-transformers, by hand: each question has one answer."""
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    asked, told = (
        library.encode([row[key] for row in rows], normalize_embeddings=True) for key in ("question", "answer")
    )
    gains = []
    for place, cosines in enumerate(asked @ told.T):
        rank = 1 + int((cosines > cosines[place]).sum())
        gains.append(1 / math.log2(rank + 1) if rank <= 10 else 0.0)
    return 100 * sum(gains) / len(gains)


def test_before_is_the_score_of_the_backbone_also_if_its_pooling_is_changed(overrides, better, command, tmp_path):
    common = [*overrides, f"backbone={better[0]}/encoder", "model.lr=1e-9", "max_steps=1"]
    common.remove("model.pooling=mean")
    changed = command(*common, "model.pooling=cls", f"output_dir={tmp_path / 'changed'}")
    kept = command(*common, f"output_dir={tmp_path / 'kept'}")
    assert (changed.status, kept.status) == (0, 0), changed.err + kept.err
    rows = [json.loads(line) for line in (task_file(overrides)).read_text().splitlines()]
    with_cls = shutil.copytree(better[0] / "encoder", tmp_path / "with_cls")
    pooling = with_cls / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"pooling_mode": "cls"}))
    before, at_start = ndcg(better[0] / "encoder", rows), ndcg(with_cls, rows)
    assert before > at_start + 5
    results = read_results(tmp_path / "changed" / "results.json")
    assert results["changed_keys"] == {"model.pooling": ["mean", "cls"]}
    assert results["scores_before"][SCORE] == pytest.approx(before, abs=1e-3)
    assert results["scores_at_start"][SCORE] == pytest.approx(at_start, abs=1e-3)
    verdict = results["verdict"]
    assert (verdict["outcome"], verdict["before"]) == ("worse", results["scores_before"][SCORE])
    assert (verdict["at_start"], verdict["after"]) == pytest.approx([at_start, at_start], abs=1e-3)
    assert re.search(rf"model\.pooling=cls.* {at_start:.1f} ", verdict["sentence"])
    assert re.search(r"model\.pooling=cls.* model\.pooling=mean", changed.err)
    assert not any("distinguish" in one for one in verdict["suggestions"])  # the start is not that of the verdict
    results = read_results(tmp_path / "kept" / "results.json")
    assert results["scores_before"][SCORE] == pytest.approx(before, abs=1e-3)
    assert {"changed_keys", "scores_at_start"}.isdisjoint(results)
    assert "at_start" not in results["verdict"]
    assert "changed " not in kept.err


def task_file(overrides):
    return Path(
        next(override for override in overrides if override.startswith("evaluation.custom_tasks=")).partition("=")[2]
    )


@pytest.mark.rotates
def test_the_verdict_of_stages_compares_with_the_initial_encoder(overrides, command, tmp_path):
    stages = ["+stages.one.max_steps=20", "+stages.two.max_steps=4", "stages.two.model.lr=1e-9"]
    outcome = command(*overrides, *stages, f"output_dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    whole, one, two = (verdict_in(tmp_path / part) for part in ("", "stage-one", "stage-two"))
    assert [found["outcome"] for found in (whole, one, two)] == ["better", "better", "inconclusive"]
    assert (whole["before"], whole["after"]) == (one["before"], two["after"])
    assert two["before"] == pytest.approx(one["after"], abs=0.01)
    assert whole["interval"][0] > 0
    assert "stages.two.data.path=" in two["suggestions"][-1]
    assert escape(whole["sentence"]) in (tmp_path / "encoder" / "README.md").read_text(encoding="utf-8")
    assert read_results(tmp_path / "results.json")["stages"].keys() == {"one", "two"}
    assert model_card(read_results(tmp_path / "results.json"))
