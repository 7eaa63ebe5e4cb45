"""What is measured on a GPU: the same code on a CPU in tiny sizes; a cut run keeps what it had."""

import json

import pytest
import torch

from benchmarks import gpu

CPU = ["device=cpu", "size=tiny"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_ends_with_2_and_a_sentence(tmp_path, capsys):
    assert gpu.main([f"output={tmp_path / 'none'}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_what_failed_is_tried_again_and_what_is_done_is_passed_over(tmp_path, capsys, monkeypatch):
    words, unknown = [*CPU, f"output={tmp_path}", "part=step"], "gpu_step --keys model.no_such_key=1"
    monkeypatch.setitem(gpu.JOBS, "step", ["gpu_step --no-such-option", unknown, "sts_speed"])
    record = gpu.Record(tmp_path, gpu.machine_of(gpu.parse(words)))
    record.add("sts_speed", "step", lines=[["P7", "as it was", "s", 1.0, 4.0, 4.0, ">= 4x"]])
    assert gpu.main(words) == 1
    found = json.loads((tmp_path / "gpu.json").read_text())["jobs"]
    assert found["sts_speed"]["lines"][0][1] == "as it was"
    assert "no_such_key" in found[unknown]["not_there"]
    assert "error" in found["gpu_step --no-such-option"]
    assert [row.split("|")[3].strip()[:9] for row in (tmp_path / "gpu.md").read_text().splitlines()[4:]] == [
        "as it was",
        "gpu\\_step",
        "gpu\\_step",
    ]
    monkeypatch.setitem(gpu.JOBS, "step", [unknown, "sts_speed"])
    assert gpu.main(words) == 0
    assert gpu.main([*CPU[:1], *words[2:]]) == 2  # full sizes are another machine's, so to speak
    assert "say another output" in capsys.readouterr().err


@pytest.mark.slow
def test_every_part_on_a_cpu(tmp_path, minilm_path):
    assert gpu.main([*CPU, f"output={tmp_path}", "minutes=60"]) == 0
    before = (tmp_path / "gpu.json").read_bytes()
    jobs = json.loads(before)["jobs"]
    assert set(jobs) == {job for part in gpu.PARTS for job in gpu.JOBS[part]}
    assert all(job.get("lines") or "not_there" in job for job in jobs.values())
    assert (tmp_path / "profile.txt").exists()
    assert gpu.main([*CPU, f"output={tmp_path}"]) == 0
    assert (tmp_path / "gpu.json").read_bytes() == before
