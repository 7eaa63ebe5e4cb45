"""The generator's step and its held-out scores on 1, 2 and 3 processes: the same loss, gradient and numbers."""

import json
from types import SimpleNamespace

import pytest
import torch

from contrastive_encoders.evaluation.generator_dev import GeneratorDev
from tests.data import as_rank, data_module
from tests.decoders import save_decoder
from tests.distributed import steps
from tests.distributed.steps import assert_same_step, stepped, stepping
from tests.objectives import built

ROWS = [(f"The ferry {i} leaves{' early' * (i % 4)}.", f"Ferry {i} goes.", f"No {i}.") for i in range(9)]
OPTIONS = {"whole": {}, "recomputed": {"token_budget": 60, "activation_checkpointing": "on"}}


CASES = {f"{kind} {name}": (kind, options) for kind in ("t5", "llama") for name, options in OPTIONS.items()}


def every_case(rank: int, world: int, backbones: dict, prompts: dict, folder: str, cases: dict) -> dict:
    found = {}
    for name, (kind, options) in cases.items():
        backbone = backbones[kind]
        options = {"token_budget": 10**6, "activation_checkpointing": "off"} | options
        model = built("gense_generator", backbone, prompts=prompts, eval_batch_size=4, **options).eval()
        rows = f"{folder}/rows.jsonl"
        keys = {"path": rows, "tokenizer": backbone, "batch_size": 6, "dev_path": rows, "cache_dir": folder}
        data = as_rank(data_module("nli_generation", prompts=prompts, **keys), rank, world)
        model._trainer = SimpleNamespace(datamodule=data, global_step=0)
        step = stepped(stepping(model, world), next(iter(data.train_dataloader())))
        with torch.no_grad():
            scores = GeneratorDev().score(model, intervals=True).values
        found[name] = (*step, scores)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    names = ("premise", "entailment", "contradiction")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def backbones(tiny_t5, tmp_path_factory):
    llama = save_decoder("llama", tmp_path_factory.mktemp("llama"))
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 400}))
    return {"t5": str(tiny_t5), "llama": str(llama)}


@pytest.fixture(scope="module")
def cases(request):
    return steps.selected(request, CASES)


@pytest.fixture(scope="module")
def alone(backbones, gense_prompts, folder, cases):
    return every_case(0, 1, backbones, gense_prompts, str(folder), cases)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, alone, backbones, gense_prompts, folder, cases):
    return steps.together(every_case, request.param, folder, backbones, gense_prompts, str(folder), cases)


@pytest.mark.rotates
@pytest.mark.parametrize("name", CASES)
def test_a_step_and_the_scores_do_not_depend_on_the_number_of_processes(name, alone, together):
    assert set(alone[name][1]) == {"generation_loss", "discrimination_loss", "accuracy"}
    assert_same_step(alone[name], [rank[name] for rank in together])
    for rank in together:
        assert rank[name][3] == alone[name][3]  # identical to the last bit: the same batches, computed by any process
