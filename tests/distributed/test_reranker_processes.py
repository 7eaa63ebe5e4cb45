"""The reranker's step and its scores on 1, 2 and 3 processes: the same loss, gradient and numbers."""

import pytest
import torch

from contrastive_encoders.core import RetrievalData
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.reranking import RerankingScorer
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from tests.conftest import SENTENCES
from tests.data import as_rank, data_module, write_rows
from tests.distributed import steps
from tests.distributed.steps import assert_same_step, stepped, stepping
from tests.objectives import built

OPTIONS = {
    "binary": {"loss": "binary"},
    "listwise": {"loss": "listwise"},
    "recomputed": {"loss": "listwise", "token_budget": 60, "activation_checkpointing": "on"},
}


def every_case(rank: int, world: int, backbone: str, folder: str) -> dict:
    found = {}
    data = data_module(
        "triplets", path=f"{folder}/rows.jsonl", tokenizer=backbone, batch_size=6, cache_dir=f"{folder}/cache{world}"
    )
    (batch,) = list(as_rank(data, rank, world).train_dataloader())[:1]
    task = RetrievalTask(RetrievalData("mine", SENTENCES[:5], [text[5:] for text in SENTENCES]))
    for name, options in OPTIONS.items():
        model = built("reranker", backbone, dropout=0.0, **options).double()
        for weight in model.transformer.classifier.parameters():
            weight.data *= 20  # a new head hardly has a gradient
        step = stepped(stepping(model, world), batch)
        reranking = RerankingScorer([task], lambda: load_encoder(backbone, device="cpu"), 7)
        scores = reranking.score(model, intervals=True).values, reranking.before(model, intervals=True).values
        found[name] = (*step, scores)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    texts = [[f"{SENTENCES[(3 * row + n) % 12]} {n}" * (1 + (row + n) % 2) for n in range(4)] for row in range(6)]
    names = ("anchor", "positive", "negative_1", "negative_2")
    write_rows(folder / "rows.jsonl", (dict(zip(names, text, strict=True)) for text in texts))
    return folder


@pytest.fixture(scope="module")
def alone(tiny_mlm, folder):
    return every_case(0, 1, str(tiny_mlm), str(folder))


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, alone, tiny_mlm, folder):
    return steps.together(every_case, request.param, folder, str(tiny_mlm), str(folder))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_and_the_scores_do_not_depend_on_the_number_of_processes(name, alone, together):
    assert_same_step(alone[name], [rank[name] for rank in together])
    for rank in together:
        assert rank[name][3] == alone[name][3]
    assert torch.isfinite(alone[name][0])
