"""Estimates of a run: counts by hand, memory against torch's own shapes, and a run that is equal without them."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from transformers import AutoTokenizer

from contrastive_encoders.training.callbacks.estimate import RunEstimate, run_probe, shown, tokens_of_step
from tests.data import data_module, write_rows
from tests.objectives import built

ROWS = [{"question": f"why {'rain ' * (n % 7)}?", "answer": f"because of {'fog ' * (n % 50)}"} for n in range(90)]


@pytest.fixture(scope="module")
def data(tmp_path_factory, tiny_bert):
    folder = tmp_path_factory.mktemp("estimate")
    path = write_rows(folder / "qa.jsonl", ROWS)
    data = data_module("qa", path=path, tokenizer=tiny_bert, batch_size=30, cache_dir=folder / "cache")
    data.prepare_data()
    data.setup()
    return data


@pytest.fixture
def module(tiny_bert):
    return built("pairs", tiny_bert)


def test_tokens_of_a_step_are_those_of_the_tokenizer(data, module, tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    texts = [[row["question"], row["answer"]] for row in ROWS]
    lengths = [
        sum(map(len, tokenizer(pair, truncation=True, max_length=data.max_length)["input_ids"])) for pair in texts
    ]
    step = tokens_of_step(module, data)
    assert step.mean == pytest.approx(30 * np.mean(lengths))
    drawn = np.random.default_rng(0).choice(lengths, (1_000, 30)).sum(1)
    assert step.percentile_99 == pytest.approx(np.quantile(drawn, 0.99), rel=0.05)


def test_a_probe_changes_nothing_and_counts_its_tokens(data, module):
    weights = {name: one.clone() for name, one in module.state_dict().items()}
    module.eval()
    torch.manual_seed(3)
    probe = run_probe(module, data)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert drawn == torch.rand(1)
    assert not module.training
    assert all(torch.equal(one, weights[name]) for name, one in module.state_dict().items())
    assert all(one.grad is None for one in module.parameters())
    assert 0 < probe.tokens <= 5_000
    config = module.transformer.config
    least = config.num_hidden_layers * (2 * config.hidden_size + config.intermediate_size) * 4
    assert least < probe.saved_bytes / probe.tokens < 20 * least


def test_an_estimate_is_one_line_with_time_and_memory():
    line = shown("before step 1", 130.4, 12, 2.44 * 2**30)
    assert re.search(r"before step 1: 0:02:10 .*0:00:12 .* 2\.4 GiB", line)
    assert "\n" not in line
    assert "evaluation" not in shown("after 3 steps", 1, 0, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 40_000.0  # a machine that has been up for hours

    def monotonic(self) -> float:
        return self.now


class Timed(pl.LightningModule):
    """A module whose first step takes 30 seconds, others 2 seconds; a scorer that takes 100 seconds."""

    def __init__(self, clock: Clock, scorer: SimpleNamespace) -> None:
        super().__init__()
        self.weight, self.clock, self.scorer = torch.nn.Parameter(torch.zeros(1)), clock, scorer

    def training_step(self, batch, batch_idx):
        self.clock.now += 2 if batch_idx else 30
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Scoring(pl.Callback):
    def on_train_batch_end(self, trainer, pl_module, *_):
        scorer = pl_module.scorer
        if scorer.every_n_steps and trainer.global_step % scorer.every_n_steps == 0:
            pl_module.clock.now += scorer.seconds
            scorer.seconds_in_total += scorer.seconds


@pytest.mark.parametrize(
    ("every", "accumulate", "expected"),
    [
        (None, 1, "0:00:48"),  # 30 + 9 * 2
        (None, 2, "0:01:08"),  # 30 + 19 * 2
        (2, 1, "0:09:08"),  # and 5 evaluations
        (4, 1, "0:05:48"),  # and evaluations after 4, 8, and 10 steps
    ],
)
def test_time_after_three_steps(every, accumulate, expected, monkeypatch, caplog):
    clock, scorer = Clock(), SimpleNamespace(seconds=100.0, seconds_in_total=0.0, every_n_steps=every, during=["stsb"])
    monkeypatch.setattr("contrastive_encoders.training.callbacks.estimate.time", clock)
    trainer = pl.Trainer(
        max_steps=10,
        accumulate_grad_batches=accumulate,
        callbacks=[Scoring(), RunEstimate(scorer, quiet=False)],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with caplog.at_level("INFO", "contrastive_encoders"):
        trainer.fit(Timed(clock, scorer), torch.utils.data.DataLoader(range(100)))
    (line,) = [one.getMessage() for one in caplog.records if "after 3 steps" in one.getMessage()]
    assert f": {expected} " in line
