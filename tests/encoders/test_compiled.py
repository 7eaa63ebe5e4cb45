"""Truth: the same step without torch's compiler, in float32."""

import signal
import subprocess

import numpy as np
import pytest
import torch

from contrastive_encoders.core import InputError, ScoredPairBatch
from contrastive_encoders.encoders.kernels import compiler
from tests import gpu_steps
from tests.decoders import save_decoder
from tests.distributed.steps import Step, stepped
from tests.objectives import built

PADDED = {"attn_implementation": "sdpa"}


@pytest.fixture(scope="module")
def backbones(tiny_mlm, tiny_t5, tmp_path_factory):
    return {"masked": tiny_mlm, "t5": tiny_t5, "decoder": save_decoder("llama", tmp_path_factory.mktemp("decoder"))}


def step_of(case, backbones, **keys):
    """Return the names of weights, loss and gradient of a step in several chunks, without dropout."""
    module = gpu_steps.module_of(case, backbones, **keys).eval()
    if case.startswith("reranker"):  # new weights score all alike, and the remaining gradient is rounding
        with torch.no_grad():
            for weight in module.parameters():
                if weight.ndim == 2:
                    weight.mul_(10)
    loss, _, gradient = stepped(Step(module), gpu_steps.CASES[case][2]())
    return list(module.state_dict()), loss, gradient


def assert_same(ours, theirs):
    assert ours[0] == theirs[0]
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
    assert (ours[2] - theirs[2]).norm() <= 1e-5 * theirs[2].norm()


def compiled_and_not(backend, case, backbones, **keys):
    ours, theirs = (step_of(case, backbones, compile=how, **keys) for how in (backend, False))
    assert all(compiler.cost())
    assert_same(ours, theirs)


@pytest.mark.rotates
@pytest.mark.parametrize("keys", [pytest.param(PADDED, marks=pytest.mark.slow), {"attn_implementation": "unpadded"}])
def test_a_compiled_step_is_the_same(keys, backbones):
    compiled_and_not("eager", "sroberta", backbones, **keys)


@pytest.mark.slow
def test_other_sizes_are_not_compiled_anew(backbones):
    """Exceptions are a single text, and texts without padding, which are separate cases."""
    torch.compiler.reset()
    module = built("sroberta", backbones["masked"], compile="eager", token_budget=48, **PADDED)
    before = compiler.cost().graphs
    for seed in range(12):
        texts = [gpu_steps.ragged(4 + seed, 2 * seed + side) for side in (0, 1)]
        batch = ScoredPairBatch(*texts, torch.linspace(0, 1, 4 + seed), np.arange(4 + seed))
        module.training_step(batch, 0)["loss"].backward()
    assert 1 <= compiler.cost().graphs - before <= 4


@pytest.mark.slow
@pytest.mark.parametrize("case", gpu_steps.CASES)
def test_every_objective_compiled_is_the_same(case, backbones):
    compiled_and_not("aot_eager", case, backbones)


@pytest.mark.slow  # g++
@pytest.mark.parametrize("keys", [PADDED, {}])
def test_a_step_by_the_usual_compiler_is_the_same(keys, backbones):
    compiled_and_not(True, "declutr", backbones, **keys)


def test_a_signal_to_all_processes_ends_no_compiler():
    """Truth: a process that signals itself, as the terminal does with g++."""

    def backend(graph, inputs):
        subprocess.run(["sh", "-c", "kill -INT $$; kill -TERM $$"], check=True)
        return graph.forward

    torch.compiler.reset()
    compiler.configure_compiler()
    before = compiler.cost()
    assert torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(1)) == 1
    assert compiler.cost().seconds > before.seconds
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(compiler.GROUP_SIGNALS)


@pytest.mark.parametrize("how", ["fast", "", 3])
def test_a_backend_that_is_none_is_refused(how, backbones):
    with pytest.raises(InputError) as error:
        built("sroberta", backbones["masked"], compile=how)
    assert (error.value.key, error.value.value) == ("model.compile", how)


def test_where_nothing_can_be_compiled_one_sentence_says_so(monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", (None, "no-such-compiler"))
    compiler.compiler_error.cache_clear()
    with pytest.raises(InputError) as refused:
        compiler.check_compiler(torch.device("cpu"), compiler.DEFAULT_BACKEND)
    assert (refused.value.key, refused.value.value) == ("model.compile", True)
    compiler.compiler_error.cache_clear()
