"""The generator's step and its held-out scores on 1, 2 and 3 processes: the same loss, gradient and numbers."""

import json
from types import SimpleNamespace

import pytest
import torch

from evaluation.generator_dev import GeneratorDev
from tests.data import as_rank, data_module
from tests.distributed import steps
from tests.distributed.steps import stepping
from tests.objectives import built

ROWS = [(f"The ferry {i} leaves{' early' * (i % 4)}.", f"Ferry {i} goes.", f"No {i}.") for i in range(9)]
OPTIONS = {"whole": {}, "recomputed": {"token_budget": 60, "recompute": "on"}}


def every_case(rank: int, world: int, backbone: str, prompts: dict, folder: str) -> dict:
    found = {}
    for name, options in OPTIONS.items():
        options = {"token_budget": 10**6, "recompute": "off", "log_every_n_steps": 1} | options
        model = built("gense_generator", backbone, prompts=prompts, dev_batch_size=4, **options).eval()
        rows = f"{folder}/rows.jsonl"
        keys = {"path": rows, "tokenizer": backbone, "batch_size": 6, "dev_path": rows, "cache_dir": folder}
        data = as_rank(data_module("nli_generation", prompts=prompts, **keys), rank, world)
        model._trainer = SimpleNamespace(datamodule=data, global_step=0)
        step = stepping(model, world)
        outcome = step(next(iter(data.train_dataloader())))
        outcome["loss"].backward()
        gradient = torch.cat([weight.grad.flatten() for weight in model.parameters()])
        with torch.no_grad():
            scores = GeneratorDev().run(model).values
        found[name] = (outcome["loss"].detach(), outcome["metrics"], gradient, scores)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    names = ("premise", "entailment", "contradiction")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def alone(tiny_t5, gense_prompts, folder):
    return every_case(0, 1, str(tiny_t5), gense_prompts, str(folder))


@pytest.fixture(scope="module", params=[2, 3])
def together(request, alone, tiny_t5, gense_prompts, folder):
    return steps.together(every_case, request.param, folder, str(tiny_t5), gense_prompts, str(folder))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_and_the_scores_do_not_depend_on_the_number_of_processes(name, alone, together):
    loss, metrics, gradient, scores = alone[name]
    losses = torch.stack([rank[name][0] for rank in together])
    torch.testing.assert_close(losses.mean(), loss, rtol=1e-5, atol=1e-6)
    assert set(metrics) == {"generation_loss", "discrimination_loss", "accuracy"}
    for metric, value in metrics.items():
        found = torch.stack([rank[name][1][metric] for rank in together]).mean()
        torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)
    assert gradient.norm() > 1e-3
    for rank in together:
        assert (rank[name][2] - gradient).norm() <= 2e-4 * gradient.norm()
        assert rank[name][3] == scores  # to the last bit: the same batches, whoever computes them
