"""Run folders with known truth: similarities are the ratings plus noise of a chosen size."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from contrastive_encoders.core import RECORD_VERSION, ItemScores, Results, RunCost
from contrastive_encoders.io.item_scores import write_items
from contrastive_encoders.io.manifest import read_record, write_record
from contrastive_encoders.io.results import write_results
from contrastive_encoders.statistics.bootstrap import average, spearman

TASKS = ("sts12", "stsb")
PAIRS = 150


def make_run(folder: Path, objective: str, seed: int, noise: float, **recipe) -> Path:
    """Make a finished run of two tasks; a smaller ``noise`` makes it better."""
    rng = np.random.default_rng((seed, int(1000 * noise), len(objective)))
    cosines, gold, scores, estimates = {}, {}, {}, {}
    for place, task in enumerate(TASKS):
        gold[task] = np.random.default_rng(place).integers(0, 26, PAIRS) / 5
        cosines[task] = np.clip(gold[task] / 5 + noise * rng.standard_normal(PAIRS), -1, 1)
        name = f"{task}/{'all' if task == 'sts12' else 'cosine'}/spearman"
        estimates[name] = spearman(torch.from_numpy(cosines[task]), torch.from_numpy(gold[task]), task)
        scores[name] = estimates[name].value
    subsets = {"sts12": np.array(["news"] * 100 + ["forum"] * 50), "stsb": np.array(["stsb"] * PAIRS)}
    folder.mkdir(parents=True)
    write_items(
        folder / "item_scores.npz",
        ItemScores(
            cosines,
            gold,
            subsets,
            dict.fromkeys(TASKS, "0123456789abcdef"),
            {name: one.replicates_R.numpy() for name, one in estimates.items()},
        ),
    )
    assert average(list(estimates.values())).value > 0
    lines = ["step,stsb-dev/cosine/spearman,time/elapsed_s,train/loss"]
    lines += [
        f"{step},{scores['stsb/cosine/spearman'] * step / 30},{step / 10},{3 - step / 20}" for step in (10, 20, 30)
    ]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_results(
        folder / "results.json",
        Results(
            version=RECORD_VERSION,
            objective=objective,
            backbone="tiny",
            recipe={"seed": seed, "output_dir": str(folder), "batch_size": 8, "model": {"lr": 0.001}, **recipe},
            scores=scores,
            intervals={},
            best_step=30,
            cost=RunCost(
                steps=30, examples=240, real_tokens=3000, padded_tokens=10, wall_seconds=3.0, peak_memory_bytes=2**26
            ),
            seeds=[seed],
            versions={},
            device="cpu",
            processes=1,
            git_commit=None,
            data=[],
            overlap={"sts12": {"checked": 50, "found": 3 if objective == "leaky" else 0}},
        ),
    )
    return folder


@pytest.fixture(scope="session")
def run_folder() -> Callable[..., Path]:
    return make_run


@pytest.fixture(scope="session")
def race_folder(tmp_path_factory) -> Path:
    """Two arms that tie and one far better arm, each with two seeds; one folder is damaged, one of another release."""
    root = tmp_path_factory.mktemp("head_to_head")
    for seed in (1, 2):
        make_run(root / f"good-{seed}", "good", seed, 0.15)
        make_run(root / f"even-{seed}", "even", seed, 0.6)
        make_run(root / f"leaky-{seed}", "leaky", seed, 0.6)
    damaged = make_run(root / "damaged", "good", 3, 0.15)
    text = (damaged / "results.json").read_text(encoding="utf-8")
    (damaged / "results.json").write_text(text[: len(text) // 2], encoding="utf-8")
    other = make_run(root / "other-release", "good", 4, 0.15)
    write_record(other / "results.json", read_record(other / "results.json") | {"version": 99})
    (root / "unfinished").mkdir()
    (root / "unfinished" / "metrics.csv").write_text("step\n1\n", encoding="utf-8")
    return root
