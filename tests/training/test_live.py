"""The page of a run while it trains, and the neighbours that stand on it."""

import json
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import toy
from pytorch_lightning.callbacks import Timer

from contracts import PairTask
from evaluation.callback import ScoreCallback
from evaluation.neighbours import NEAREST, SENTENCES, Neighbours
from evaluation.suite import Suite
from evaluation.vectors import embed_pool
from tests.browser import needs_browser, opened
from training.callbacks.live import Live
from training.callbacks.telemetry import Telemetry
from training.curve import Reference
from training.live_page import PAGE, LivePage, State
from training.metrics_csv import MetricsCSV

SCORE = "stsb-dev/cosine/spearman"
TEXTS = [f"text {number} <b>{'x' * (number * 7 % 5)}</b>" for number in range(24)]


class Embedder:
    """A text's vector is drawn by its number, another one at each ``age``."""

    def __init__(self, age: int) -> None:
        self.age, self.asked = age, 0

    def embed(self, texts):
        self.asked += len(texts)
        rows = [np.random.default_rng((self.age, TEXTS.index(text))).normal(size=8) for text in texts]
        return torch.tensor(np.array(rows), dtype=torch.float32)


def suite() -> Suite:
    gold = np.random.default_rng(0).uniform(0, 5, 12)
    return Suite([PairTask("stsb-dev", TEXTS[:12], TEXTS[12:], gold, ["all"] * 12)])


def scored(neighbours: Neighbours, steps: list[int]) -> Embedder:
    for step in steps:
        embedder = Embedder(step)
        suite().run(embedder, intervals=False, taken=neighbours.take)
        neighbours.record(step, embedder)
    return embedder


def test_neighbours_are_the_nearest_and_cost_no_encoding():
    neighbours = Neighbours(suite().tasks)
    embedder = scored(neighbours, [4])
    assert embedder.asked == len(TEXTS)  # those of the suite alone
    assert len(set(neighbours.sentences)) == SENTENCES
    vectors = {text: embedder.embed([text])[0].double().numpy() for text in TEXTS}
    for sentence, found in zip(neighbours.sentences, neighbours.history[4], strict=True):
        cosines = {
            text: float(vectors[sentence] @ vector / np.linalg.norm(vectors[sentence]) / np.linalg.norm(vector))
            for text, vector in vectors.items()
            if text != sentence
        }
        nearest = sorted(cosines, key=cosines.get, reverse=True)[:NEAREST]
        assert [text for text, _ in found] == nearest
        assert [cosine for _, cosine in found] == pytest.approx([cosines[text] for text in nearest], abs=1e-4)


def test_what_no_suite_has_embedded_is_embedded_and_a_continued_run_has_what_was_before():
    whole, first, second = (Neighbours(suite().tasks) for _ in range(3))
    whole.record(0, Embedder(0))
    whole.take(embed_pool(Embedder(2), [TEXTS[:5]]))
    whole.record(2, Embedder(2))
    first.record(0, Embedder(0))
    second.load_state_dict(first.state_dict())
    second.record(2, Embedder(2))
    assert second.history == whole.history
    assert list(second.history) == [0, 2]


def run(folder: Path, *steps: int, losses: bool = True) -> None:
    logger = MetricsCSV(folder)
    for step in steps:
        if losses and step:
            logger.log_metrics({"train/loss": 5.0 / step, "train/lr": 1e-3, "time/elapsed_s": 2.0 * step}, step=step)
        logger.log_metrics({SCORE: 50.0 + step - step**2 / 40}, step=step)


def written(folder: Path) -> dict:
    page = (folder / PAGE).read_text(encoding="utf-8")
    return json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.S)[1])


@needs_browser
def test_the_page_follows_the_run_and_steps_through_the_neighbours(tmp_path):
    neighbours, page = Neighbours(suite().tasks), LivePage(tmp_path, SCORE, less_is_better=False)
    page.write(State("Training.", 0, 60, 0.0, None), Reference(), None, 9.0)  # nothing has been logged
    run(tmp_path, 0)
    page.write(State("Training.", 0, 60, 0.0, None), Reference(), None, 9.0)  # a point is no curve, and costs nothing
    assert (written(tmp_path)["figures"], page._drawn) == ({}, {})
    run(tmp_path, 20)
    scored(neighbours, [0, 20])
    page.write(State("Training.", 20, 60, 40.0, 80.0), Reference(before={SCORE: 50.0}), neighbours, 9.0)
    compiled = page._drawn
    run(tmp_path, 40)
    scored(neighbours, [40])
    page.write(State("Training.", 40, 60, 80.0, 40.0), Reference(before={SCORE: 50.0}), neighbours, 9.0)
    assert page._drawn is compiled  # only numbers are new
    (points,) = [one for one in written(tmp_path)["figures"]["score"][0]["data"] if one["name"] == "points"]
    assert points["values"] == [{"step": step, "value": 50 + step - step**2 / 40} for step in (0.0, 20.0, 40.0)]
    with opened(tmp_path / PAGE, width=390, dark=True) as shown:
        assert "Step 40 of 60 (67%), 0:01:20 so far, about 0:00:40 left." in shown.locator("#state").inner_text()
        row = shown.locator("#nearest tbody tr").first
        for at, key in ((40, None), (20, "ArrowLeft"), (0, "ArrowLeft")):
            if key:
                shown.locator("#moment").press(key)
            assert shown.locator("#moment-says").inner_text() == (f"step {at}" if at else "before training")
            assert row.locator("td").all_inner_texts() == [
                f"{text} {cosine:.2f}" for text, cosine in neighbours.history[at][0]
            ]
        shown.locator("[data-signal=metric]").select_option("train/lr")
        shown.reload()
        shown.evaluate("report.drawAll()")
        assert shown.locator("#moment-says").inner_text() == "before training"
        assert shown.locator("[data-signal=metric]").input_value() == "train/lr"
        assert shown.locator("#reloads").is_checked()
    finished = State("Finished.", 60, 60, 120.0, None, True)
    page.write(finished, Reference(20, {SCORE: 61.5}, {SCORE: [55.0, 65.0]}), neighbours, 9.0)
    with opened(tmp_path / PAGE) as shown:
        assert "Finished." in shown.locator("#state").inner_text()
        assert not shown.locator("#reloads").count()
        assert "61.50\t55.00 to 65.00" in shown.locator("#table-scores").inner_text()


def test_the_page_of_a_run_scored_at_its_start_alone_ends_with_the_final_score(tmp_path):
    run(tmp_path, 0)
    MetricsCSV(tmp_path).log_metrics({"train/loss": 1.0}, step=20)
    page = LivePage(tmp_path, None, less_is_better=False)
    page.write(State("Finished.", 20, 20, 120.0, None, True), Reference(20, {SCORE: 61.5}), None, 9.0)
    (points,) = [one for one in written(tmp_path)["figures"]["score"][0]["data"] if one["name"] == "points"]
    assert points["values"] == [{"step": 0.0, "value": 50.0}, {"step": 20.0, "value": 61.5}]


def live_of(folder: Path) -> Live:
    telemetry = Telemetry(every_n_steps=1)
    return Live(LivePage(folder, None, less_is_better=False), ScoreCallback([]), telemetry, skip=lambda: False)


def test_a_clock_that_has_run_out_leaves_nothing(tmp_path):
    clock = Timer(duration=timedelta(milliseconds=1))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=5,
        logger=False,
        callbacks=[clock, live_of(tmp_path)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(toy.Toy(), toy.Stream())
    assert re.search(r"Step 1 of 5 \(20%\), [\d:]+ so far, about 0:00:00 left", (tmp_path / PAGE).read_text())


def test_a_run_goes_on_without_its_page_where_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "metrics.csv").write_text("step,train/loss\n1,edited by hand\n", encoding="utf-8")
    live = live_of(tmp_path)
    for _ in range(2):
        live.finish(Reference())
    (said,) = caplog.messages
    assert said.startswith(f"{tmp_path / PAGE} is not written any more: could not convert")
