"""A step that is not logged makes the host wait for nothing, because a GPU that waits for the host is idle."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from pytorch_lightning.plugins import Precision
from torch.utils import backend_registration

from tests import gpu_steps
from tests.decoders import save_decoder


@pytest.fixture(scope="module")
def backbones(tiny_mlm, tiny_t5, tmp_path_factory):
    decoder = save_decoder("llama", tmp_path_factory.mktemp("decoder"))
    return {"masked": str(tiny_mlm), "t5": str(tiny_t5), "decoder": str(decoder)}


def waits(backbones, cases):
    """Count waits in a separate process: torch accepts one such device, for the life of the process."""
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip(f"torch {torch.__version__} has no devices that are written in Python")
    command = [sys.executable, "-m", "tests.gpu_steps", *backbones.values(), *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_step_asks_the_device_for_nothing_and_whoever_asks_is_found_out(backbones):
    found = waits(backbones, gpu_steps.QUICK)
    assert {name for name, asked in found.items() if asked} == {
        f"control: {name}" for name in gpu_steps.CONTROLS if name != "nothing"
    }, "\n".join(line for case in gpu_steps.QUICK for line in found[case])


@pytest.mark.slow
def test_no_objective_asks_the_device_for_anything(backbones):
    found = waits(backbones, gpu_steps.CASES)
    assert {case: asked for case, asked in found.items() if asked and case in gpu_steps.CASES} == {}


@pytest.mark.parametrize("clipped_at", [0.5, 1e6])
def test_gradients_are_clipped_as_lightning_clips_them_and_the_norm_is_kept(backbones, clipped_at):
    ours = gpu_steps.module_of("sroberta, adapters", backbones)  # the frozen weights have no gradient
    theirs = copy.deepcopy(ours)
    for module in (ours, theirs):
        drawn = torch.Generator().manual_seed(1)
        for weight in module.parameters():
            weight.grad = torch.randn(weight.shape, generator=drawn) if weight.requires_grad else None
    ours.configure_gradient_clipping(gpu_steps.optimizer_of(ours), clipped_at, None)
    before = torch.cat([one.grad.flatten() for one in theirs.parameters() if one.grad is not None]).double()
    Precision().clip_gradients(gpu_steps.optimizer_of(theirs), clipped_at)
    assert float(ours.gradient_norm) == pytest.approx(float(before.norm()), rel=1e-6)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        if own.grad is not None:
            torch.testing.assert_close(own.grad, other.grad, rtol=1e-6, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", gpu_steps.CASES)
def test_a_step_on_a_gpu_waits_for_nothing(backbones, case):
    import pytorch_lightning as pl

    module = gpu_steps.module_of(case, backbones).cuda()
    batch = module.on_before_batch_transfer(gpu_steps.CASES[case][2](), 0)
    batch = pl.LightningModule.transfer_batch_to_device(module, batch, module.device, 0)
    optimizer = gpu_steps.optimizer_of(module)
    with torch.autocast("cuda", torch.bfloat16):
        gpu_steps.step(module, batch, optimizer)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            gpu_steps.step(module, batch, optimizer)
        finally:
            torch.cuda.set_sync_debug_mode("default")
