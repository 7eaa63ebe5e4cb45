"""Check that every benchmark runs with --quick and that ``all`` keeps finished results. No time is asserted."""

import argparse
import json

import numpy as np
import pytest
import torch

from benchmarks import runner
from benchmarks.texts import shared_data

FIGURES = {
    "start_up": {"P11"},
    "scale": {"S1", "S2", "S3", "S4", "S5"},
    "nt_xent": {"P3"},
    "equal_texts": {"P24"},
    "chunk_memory": {"P6"},
    "sts_speed": {"P7"},
    "embedding": {"E1", "P16"},
    "embedding_runtimes": {"E5"},
    "distillation": {"P24"},
    "triplet_synthesis": {"P10"},
    "self_debiased_generation": {"P9"},
    "lora_training": {"P14"},
    "pair_training": {"P1", "P25"},
    "senteval_classifiers": {"P8"},
    "gpu_smoke": {"smoke"},
    "gpu_step": {"P13"},
}


def test_every_job_is_a_benchmark_that_is_tested():
    assert {job.split()[0] for jobs in runner.JOBS.values() for job in jobs} == set(FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_quick_run(name, tmp_path):
    if name == "senteval_classifiers" and shared_data() is None:
        pytest.skip("needs the tables of SHARED_DATA")
    part, job = next((part, job) for part in runner.JOBS for job in runner.JOBS[part] if job.split()[0] == name)
    run = runner.run_in_process if part == "cpu" else runner.run_here
    result = run(job, argparse.Namespace(quick=True, output=tmp_path, device="cpu"))
    assert "error" not in result, result["error"]
    assert {line["figure"] for line in result["lines"]} == FIGURES[name]
    assert all(line["ours"] >= 0 for line in result["lines"])
    assert (tmp_path / "profile.txt").exists() == ("--profile" in job)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_step_on_a_gpu(tmp_path):
    found = runner.measure("gpu_step", runner.parse("gpu_step", ["--quick"]))
    assert [line.figure for line in found] == ["P13", "P13"]


@pytest.fixture
def run_all(monkeypatch, tmp_path, capsys):
    """Return a function that runs ``all`` with options and returns the exit code, the output, and stored results."""

    def call(*words):
        status = runner.main(["all", "--quick", "--output", str(tmp_path), *words])
        path = tmp_path / "figures.json"
        return status, capsys.readouterr().out, json.loads(path.read_text()) if path.exists() else {}

    return call


@pytest.mark.slow  # two starts
def test_what_is_done_is_kept_and_what_failed_is_due_again(monkeypatch, run_all, tmp_path):
    """One job runs; the other fails because the option does not exist."""
    monkeypatch.setattr(runner, "JOBS", {"cpu": ["nt_xent", "nt_xent --no-such"]})
    status, printed, kept = run_all("--list")
    assert (status, kept) == (0, {})
    assert "2 are due" in printed
    status, _, kept = run_all()
    assert status == 1
    assert kept["nt_xent"]["lines"][0]["figure"] == "P3"
    assert "--no-such" in kept["nt_xent --no-such"]["error"]
    assert len((tmp_path / "figures.md").read_text().splitlines()) == 3 + len(kept["nt_xent"]["lines"])
    assert "1 are due" in run_all("--list")[1]
    kept["nt_xent"]["commit"] = "another"
    (tmp_path / "figures.json").write_text(json.dumps(kept))
    assert "2 are due" in run_all("--list")[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_all_ends_with_2(run_all):
    with pytest.raises(SystemExit) as ended:
        run_all("--part", "gpu", "--device", "cuda")
    assert ended.value.code == 2


def test_sides_take_turns_and_the_ratio_is_of_the_rounds():
    calls = []
    sides = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in ("ours", "theirs")}
    results = runner.alternate(sides, 2)
    assert calls == ["ours", "theirs", "ours", "theirs"]
    assert results == {"ours": [1.0, 3.0], "theirs": [2.0, 4.0]}
    # a slow round of both sides changes neither ratio; the ratio of the medians would change
    assert runner.median_ratio([2.0, 20.0, 30.0], [1.0, 10.0, 10.0]) == 2.0


def test_flops_against_a_count_by_hand():
    """One layer of width 4: 6 per weight and token, 12 T^2 D, and 6 D (D + V) per prediction."""
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
