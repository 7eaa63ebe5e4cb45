"""Checkpoints of sharded weights: resumed by other numbers of processes and by DDP, with the result of one process."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from contrastive_encoders.io.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow  # each starts train.py three times
ROOT = Path(__file__).resolve().parents[2]
STEPS, SAVED = 6, 3
LORA = "model.lora.rank=4"


@pytest.fixture(scope="module")
def train(tiny_mlm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = [{"anchor": f"A ferry of {n} tons.", "positive": f"Ship number {n}"} for n in range(12)]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))

    def run(output: Path, *overrides: str) -> tuple[int, str]:
        keys = f"""model=pairs data=triplets data.path={folder}/pairs.jsonl backbone={tiny_mlm} batch_size=6
            max_steps={STEPS} checkpoint.every_n_steps={SAVED} checkpoint.keep_all=true data.num_workers=0 quiet=true
            trainer.accelerator=cpu
            data.cache_dir={folder}/cache model.lr=1e-3 output_dir={output}""".split()
        environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / "train.py"), *keys, *overrides]
        found = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=300)
        return found.returncode, found.stderr

    return run


@pytest.fixture(scope="module", params=["all weights", "adapter"])
def runs(request, train, tmp_path_factory):
    """Return the arguments of the run, the folder of one process, and that of two with sharded weights."""
    overrides, folder = [LORA] if request.param == "adapter" else [], tmp_path_factory.mktemp("runs")
    assert train(folder / "alone", *overrides)[0] == 0
    assert train(folder / "sharded", *overrides, "trainer=fsdp", "devices=2")[0] == 0
    return overrides, folder / "alone", folder / "sharded"


def weights_of(folder: Path) -> torch.Tensor:
    weights = load_file(folder / "encoder" / "model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def test_the_files_hold_what_one_process_writes(runs):
    """Names and values are equal; the files of an adapter contain only the adapter."""
    _, alone, sharded = runs
    ours, theirs = (load_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in (sharded, alone))
    assert set(ours["state_dict"]) == set(theirs["state_dict"])
    # AdamW moves a weight whose gradient is nearly 0 by as much as others, so single ones may differ
    difference = sum((ours["state_dict"][name] - one).square().sum() for name, one in theirs["state_dict"].items())
    assert difference <= 1e-10 * sum(one.square().sum() for one in theirs["state_dict"].values())
    assert {path.name for path in (sharded / "checkpoints").iterdir()} == {
        "last.ckpt",
        "best.ckpt",
        "previous.ckpt",
        f"shards-{SAVED}",
        f"shards-{STEPS}",
    }


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer=fsdp", "devices=2"],
        ["trainer=ddp", "devices=2"],
        pytest.param([], id="one process"),
        ["trainer=fsdp", "devices=3"],
    ],
    ids=lambda overrides: " ".join(overrides),
)
def test_a_run_resumed_from_it_has_the_same_result(runs, train, overrides, tmp_path):
    own, alone, sharded = runs
    resumed = f"resume={sharded}/checkpoints/previous.ckpt"
    assert train(tmp_path / "continued", *own, *overrides, resumed)[0] == 0
    expected, found = weights_of(alone), weights_of(tmp_path / "continued")
    assert (found - expected).norm() <= 1e-5 * expected.norm()
    if overrides == ["trainer=fsdp", "devices=2"]:
        assert torch.equal(found, weights_of(sharded))


def test_sharded_weights_go_on_from_a_file_of_one_process(runs, train, tmp_path):
    own, alone, _ = runs
    resumed = f"resume={alone}/checkpoints/previous.ckpt"
    assert train(tmp_path / "continued", *own, "trainer=fsdp", "devices=2", resumed)[0] == 0
    expected, found = weights_of(alone), weights_of(tmp_path / "continued")
    assert (found - expected).norm() <= 1e-5 * expected.norm()


def test_lost_shards_are_refused_by_name(runs, train, tmp_path):
    own, _, sharded = runs
    shutil.copy(sharded / "checkpoints" / "last.ckpt", tmp_path)
    status, said = train(tmp_path / "continued", *own, f"resume={tmp_path}/last.ckpt")
    assert status == 2
    assert f"shards-{STEPS}" in said
    assert os.strerror(errno.ENOENT) in said
