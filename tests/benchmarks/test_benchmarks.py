"""Every benchmark runs with --quick and prints its table. No time is asserted: that is what the full runs are for."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import all as every

ROOT = Path(__file__).resolve().parents[2]
COMPARED = {  # ratios that a quick run has
    **{"P1": 2, "P14": 3, "P3": 1, "P4": 1, "P2": 2, "P5": 1, "P6": 3, "P7": 2, "P8": 2, "P11": 0, "memory": 1},
    **{"P10": 2, "P15": 1, "E5": 0, "P18": 0, "P24": 2, "P12": 0},
}


def run(name, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("job", every.JOBS, ids=lambda job: job.words)
def test_quick_run_of_all_that_is_measured(job):
    """In the words that `benchmarks.all` gives it, which the last of an option overrides."""
    if "--cluster" in job.words:
        pytest.importorskip("ray", reason="the cluster is Ray's")
    if job.words.startswith("pair_training"):
        pytest.importorskip("accelerate", reason="the trainer of sentence-transformers needs accelerate")
    if job.words == "improve":  # the others have more texts to score
        job = job._replace(words="improve --sets qa")
    found = every.measure(job, quick=True)
    assert "error" not in found, found["error"]
    assert {line["figure"] for line in found["lines"]} - {""} == set(job.figures)
    if job.figure in COMPARED:
        lines = [line for line in found["lines"] if line["figure"] == job.figure]
        assert sum(line["ratio"] is not None for line in lines) == COMPARED[job.figure]
    if job.words == "many_rows":
        assert any("20,000 rows" in line["case"] for line in found["lines"])
    for line in found["lines"]:
        if "beyond torch" not in line["case"] and "theirs" not in line["unit"]:  # seconds; scores of a few rows
            # a largest difference; what is wasted; what memory grew by
            may_be_zero = line["unit"] == "points" or line["target"] == "0"
            may_be_zero |= any(words in line["case"] for words in ("difference", "finished rows"))
            assert line["ours"] >= 0 if may_be_zero else line["ours"] > 0, line


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_step_on_a_gpu(tmp_path):
    assert run("gpu_step", "--quick").count("P13") == 2


def test_sides_take_turns_and_the_ratio_is_of_the_rounds():
    from benchmarks.sides import alternate, median_ratio

    seen = []
    sides = {name: lambda name=name: seen.append(name) or float(len(seen)) for name in ("ours", "theirs")}
    measured = alternate(sides, 2)
    assert seen == ["ours", "theirs", "ours", "theirs"]
    assert measured == {"ours": [1.0, 3.0], "theirs": [2.0, 4.0]}
    # a slow round of both sides changes neither ratio; the ratio of the medians would be another
    assert median_ratio([2.0, 20.0, 30.0], [1.0, 10.0, 10.0]) == 2.0


@pytest.mark.slow
def test_bare_loop_and_trainer_end_at_the_same_weights(tmp_path, minilm_path):
    from transformers import AutoModelForMaskedLM

    from benchmarks import declutr_step, materials
    from benchmarks.sides import CLOCKS

    backbone = materials.tiny(tmp_path / "tiny")
    data = materials.span_data(tmp_path, backbone, 4, 8, 64)
    work = declutr_step.Work(backbone, data, "fp32", 2, CLOCKS["wall"], tmp_path / "run")
    (_, ours), (_, bare) = declutr_step.ours(work), declutr_step.bare(work)
    assert declutr_step.largest_difference(ours, bare) < 1e-6
    start = AutoModelForMaskedLM.from_pretrained(backbone).state_dict()
    assert declutr_step.largest_difference(ours, start) > 1e-5  # they did move


def test_flops_against_a_count_by_hand():
    """One layer of width 4: 6 per weight and token, 12 T^2 D, 6 D (D + V) a prediction."""
    import numpy as np
    from transformers import RobertaConfig, RobertaForMaskedLM

    from benchmarks.gpu_step import flops
    from contrastive_encoders.core import Ragged, SpanBatch

    model = RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=11,
            hidden_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            max_position_embeddings=20,
        )
    )
    anchors, positives = (Ragged(torch.zeros(5, dtype=torch.int64), np.array([2, 3])) for _ in range(2))
    labels = torch.tensor([-100, 7, -100, -100, 3])
    batch = SpanBatch(anchors, anchors.ids, labels, positives, np.array([0]))
    attention_weights = 4 * (4 * 4 + 4) + 2 * 4
    feed_forward_weights = 4 * 8 + 8 + 8 * 4 + 4 + 2 * 4
    by_hand = 6 * (attention_weights + feed_forward_weights) * 10 + 12 * 4 * 2 * (4 + 9) + 6 * 4 * (4 + 11) * 2
    assert float(flops(model, batch)) == by_hand
