"""DeCLUTR over its own data on 1, 2 and 3 processes: the same batches, losses, gradients and weights."""

import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.utilities import rank_zero_only

from contrastive_encoders.core import IGNORED_LABEL, Ragged, SpanBatch
from tests.data import data_module
from tests.objectives import built
from tests.processes import statuses

GLOBAL_BATCH, STEPS = 6, 2
CASES: dict[str, dict[str, Any]] = {
    "both": {},
    "mlm_only": {"contrastive_weight": 0.0},
    "contrastive_only": {"mlm_weight": 0.0},
    "unmasked_anchors": {"mask_anchors_for_contrast": False},
    "recomputed": {"token_budget": 40, "activation_checkpointing": "on"},
    "metric_loss": {"metric_loss": "NTXentLoss", "mlm_weight": 0.5},
    "paper_contrastive_only": {"mlm_weight": 0.0, "ddp_gradient": "per_rank"},
}
EXACT = [name for name in CASES if not name.startswith("paper")]


class Step(NamedTuple):
    """Values of one optimizer step on one rank; the gradients are those after DDP's average, before clipping."""

    loss: float
    documents: list[int]
    predicted: int
    batch: dict[int, list[torch.Tensor]]  # document -> its anchors, masked anchors, labels and positives
    gradients: dict[str, torch.Tensor | None]
    weights: dict[str, torch.Tensor]  # after the step


class Witness(pl.Callback):
    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.steps.append(
            {
                "documents": batch.rows.tolist(),
                "predicted": int((batch.labels != IGNORED_LABEL).sum()),
                "batch": by_document(batch),
            }
        )

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps[-1]["gradients"] = {
            name: None if weight.grad is None else weight.grad.clone() for name, weight in pl_module.named_parameters()
        }

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.steps[-1]["loss"] = float(outputs["loss"])
        self.steps[-1]["weights"] = {name: weight.detach().clone() for name, weight in pl_module.named_parameters()}


def by_document(batch: SpanBatch) -> dict[int, list[torch.Tensor]]:
    beside = [Ragged(ids, batch.anchors.lengths) for ids in (batch.masked_ids, batch.labels)]
    found: dict[int, list[torch.Tensor]] = {document: [] for document in batch.rows.tolist()}
    for part in (batch.anchors, *beside, batch.positives):
        sequences = part.ids.split(part.lengths.tolist())
        per_document = len(sequences) // len(batch.rows)
        for place, document in enumerate(batch.rows.tolist()):
            found[document].append(torch.cat(sequences[place * per_document : (place + 1) * per_document]))
    return found


def train(case: str, corpus: Path, backbone: Path, world: int) -> list[dict[str, Any]]:
    witness = Witness()
    pl.seed_everything(5, verbose=False)
    keys = {"path": corpus, "tokenizer": backbone, "batch_size": GLOBAL_BATCH, "min_span": 3, "max_span": 24}
    data = data_module("text", **keys)
    data.prepare_data()
    model = built("declutr", backbone, lr=1e-3, lr_schedule="constant", **CASES[case])
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        max_steps=STEPS,
        max_epochs=-1,
        gradient_clip_val=1.0,
        use_distributed_sampler=False,
        logger=False,
        callbacks=[witness],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    return witness.steps


def as_rank(rank: int, world: int, port: int, folder: Path, corpus: Path, backbone: Path) -> None:
    """Set what torchrun would set, in a process that has imported everything already."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "test"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)
    rank_zero_only.rank = rank
    torch.save({case: train(case, corpus, backbone, world) for case in CASES}, folder / f"{rank}.pt")
    if dist.is_initialized():
        dist.destroy_process_group()


def on(world: int, folder: Path, corpus: Path, backbone: Path) -> list[dict[str, list[Step]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=as_rank, args=(rank, world, port, folder, corpus, backbone)) for rank in range(world)
    ]
    for child in children:
        child.start()
    assert statuses(children, timeout=120) == [0] * world
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]
    return [{case: [Step(**step) for step in steps] for case, steps in found.items()} for found in ranks]


@pytest.fixture(scope="module")
def alone(corpus_file, tiny_mlm, tmp_path_factory) -> dict[str, list[Step]]:
    return on(1, tmp_path_factory.mktemp("alone"), corpus_file, tiny_mlm)[0]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, corpus_file, tiny_mlm, tmp_path_factory) -> list[dict[str, list[Step]]]:
    return on(request.param, tmp_path_factory.mktemp("together"), corpus_file, tiny_mlm)


def distance(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Return the relative difference in size, and one minus the cosine of the angle."""
    a, b = (torch.cat([tensors[name].double().flatten() for name in sorted(theirs)]) for tensors in (ours, theirs))
    return float(abs(a.norm() / b.norm() - 1)), float(1 - torch.dot(a, b) / a.norm() / b.norm())


@pytest.mark.rotates
def test_the_ranks_share_the_same_batches(alone, together):
    for number in range(STEPS):
        whole = alone["both"][number]
        shares = [rank["both"][number] for rank in together]
        assert len(whole.documents) == GLOBAL_BATCH
        for place, document in enumerate(whole.documents):  # distributed round-robin
            share = shares[place % len(shares)]
            assert share.documents[place // len(shares)] == document
            for ours, theirs in zip(share.batch[document], whole.batch[document], strict=True):
                assert torch.equal(ours, theirs)
    first, second = alone["both"]
    assert not set(first.documents) & set(second.documents)


def test_the_ranks_predict_unequal_numbers_of_tokens(together):
    """Otherwise a mean of the ranks' means would equal the mean over all tokens."""
    assert all(len({rank["both"][number].predicted for rank in together}) > 1 for number in range(STEPS))


@pytest.mark.parametrize("case", EXACT)
def test_loss_gradients_and_weights_do_not_depend_on_the_number_of_processes(case, alone, together):
    for number in range(STEPS):
        whole, shares = alone[case][number], [rank[case][number] for rank in together]
        assert np.mean([share.loss for share in shares]) == pytest.approx(whole.loss, rel=1e-5)
        for share in shares:
            size, angle = distance(share.gradients, whole.gradients)
            assert size < 1e-4
            assert angle < 1e-6
            for name, weight in whole.weights.items():
                # Adam divides by the gradient's size, and some gradients (a key's bias) are rounding noise
                torch.testing.assert_close(share.weights[name], weight, rtol=1e-4, atol=2e-5)
            assert all(torch.equal(share.weights[name], shares[0].weights[name]) for name in share.weights)


@pytest.mark.parametrize("case", CASES)
def test_every_parameter_has_a_gradient(case, alone, together):
    for steps in (alone[case], *(rank[case] for rank in together)):
        for step in steps:
            assert [name for name, gradient in step.gradients.items() if gradient is None] == []


def test_chunks_and_recomputation_change_nothing(alone):
    for chunked, whole in zip(alone["recomputed"], alone["both"], strict=True):
        assert chunked.loss == pytest.approx(whole.loss, rel=1e-5)
        size, angle = distance(chunked.gradients, whole.gradients)
        assert size < 1e-5
        assert angle < 1e-8


def test_the_published_scale_divides_the_contrastive_gradient_by_the_processes(alone, together):
    whole = alone["contrastive_only"][0]
    assert distance(alone["paper_contrastive_only"][0].gradients, whole.gradients) == (0, pytest.approx(0, abs=1e-12))
    world = len(together)
    for rank in together:
        step = rank["paper_contrastive_only"][0]
        scaled = {name: gradient * world for name, gradient in step.gradients.items()}
        size, angle = distance(scaled, whole.gradients)
        assert size < 1e-4
        assert angle < 1e-6
    assert np.mean([rank["paper_contrastive_only"][0].loss for rank in together]) == pytest.approx(whole.loss, rel=1e-5)
