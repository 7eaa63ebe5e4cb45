import logging

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from torch import nn

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.encoders.sharding import load_weights
from contrastive_encoders.evaluation.callback import FinalScores, ScoreCallback
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints
from contrastive_encoders.training.callbacks.telemetry import is_last_step
from tests.embedders import OnTheCPU

NAME = "stsb-dev/cosine/spearman"
TEXTS = [f"sentence {i} {'x' * (i * 7 % 5)}" for i in range(24)]


def task(name: str, seed: int) -> RatedPairs:
    rng = np.random.default_rng(seed)
    left, right = rng.permutation(TEXTS), rng.permutation(TEXTS)
    return RatedPairs(name, left.tolist(), right.tolist(), rng.uniform(0, 5, len(TEXTS)), [name] * len(TEXTS))


FINAL, DURING = Suite([task("stsb", 0), task("stsb-dev", 1)]), Suite([task("stsb-dev", 1)])


class Encoder(OnTheCPU, nn.Module):
    """Encoder of bytes. ``embed`` draws random numbers and depends on the mode, to test that both are preserved."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.drop = nn.EmbeddingBag(256, 16, mode="mean"), nn.Dropout(0.5)
        self.frozen = nn.Dropout().eval()
        self.modes: list[bool] = []
        self.types: list[torch.dtype | None] = []

    def forward(self, texts):
        ids = [torch.tensor(list(text.encode())) for text in texts]
        return self.drop(self.table(nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=32)))

    def embed(self, texts, *, autocast=None, **_):
        torch.rand(3)
        self.modes.append(self.drop.training)
        self.types.append(autocast)
        return self(texts)


class Toy(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = Encoder()

    def training_step(self, batch, batch_idx):
        self.modes = (self.training, self.encoder.training, self.encoder.drop.training, self.encoder.frozen.training)
        return self.encoder([TEXTS[int(i)] for i in batch]).pow(2).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def fit(tmp_path, callbacks, steps=6, ckpt_path=None, **arguments):
    module = Toy()
    trainer = pl.Trainer(
        max_steps=steps,
        callbacks=callbacks,
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{
            "logger": False,
            "enable_checkpointing": any(isinstance(c, Checkpoint) for c in callbacks),
            **arguments,
        },
    )
    torch.manual_seed(1)
    trainer.fit(module, torch.utils.data.DataLoader(range(24), batch_size=4), ckpt_path=ckpt_path)
    return trainer, module


def test_scores_before_during_and_at_the_end(tmp_path, caplog):
    scorer = ScoreCallback(FINAL, DURING, every_n_steps=2)
    with caplog.at_level(logging.INFO, "contrastive_encoders"):
        trainer, module = fit(tmp_path, [scorer])
    assert list(scorer.history) == [0, 2, 4, 6]
    assert scorer.scores_before == scorer.history[0]
    assert "stsb/cosine/spearman" in scorer.scores_before
    assert not [name for name in scorer.history[2] if name.startswith("stsb/")]
    assert f"step 2: {NAME} {scorer.history[2][NAME]:.1f} (" in caplog.text
    assert sum(record.name == "contrastive_encoders.evaluation.callback" for record in caplog.records) == 4
    values, intervals, *_ = scorer.score(module)
    assert values[NAME] == scorer.history[6][NAME] == pytest.approx(trainer.callback_metrics[NAME].item(), abs=1e-4)
    assert set(values) == set(intervals) == set(scorer.scores_before)
    assert {name.split("/")[0] for name in scorer.history[2]} == {"stsb-dev"}
    assert not any(module.encoder.modes), "scored in evaluation mode"


@pytest.mark.parametrize(("every", "at_start", "steps"), [(None, True, [0]), (0, False, []), (4, False, [4])])
def test_when_it_scores(tmp_path, every, at_start, steps):
    scorer = ScoreCallback(FINAL, FINAL, every_n_steps=every, at_start=at_start)
    fit(tmp_path, [scorer])
    assert list(scorer.history) == steps


@pytest.mark.parametrize(
    ("every", "limit", "steps"),
    [
        (2, {"steps": 5}, [2, 4, 5]),
        (2, {"steps": 6}, [2, 4, 6]),
        (100, {"steps": 5}, [5]),
        (4, {"steps": -1, "max_epochs": 1}, [4, 6]),
        (4, {"steps": -1, "max_epochs": 1, "accumulate_grad_batches": 4}, [2]),
        (None, {"steps": 5}, []),
    ],
)
def test_the_last_step_is_scored_and_once(tmp_path, every, limit, steps):
    scorer = ScoreCallback(DURING, DURING, every_n_steps=every, at_start=False, is_last_step=is_last_step)
    trainer, module = fit(tmp_path, [scorer], **limit)
    assert list(scorer.history) == steps
    assert len(module.encoder.modes) == len(steps)
    assert trainer.global_step == (steps or [5])[-1]
    if steps:
        assert scorer.score(module).values[NAME] == scorer.history[steps[-1]][NAME]


def load_best(module, checkpoint):
    return load_weights(module, checkpoint["state_dict"])


def checkpoints_in(folder):
    return RunCheckpoints(folder, every_n_steps=None, every_n_minutes=10, monitor=NAME, mode="max", patience=None)


class Stop(pl.Callback):
    """Stop training, as a clock, Lightning's EarlyStopping, or a signal does."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == 3


@pytest.mark.parametrize(("cut_short", "steps"), [(False, [0, 3]), (True, [0])])
def test_a_run_that_something_else_ends_is_scored_before_the_best_is_chosen(tmp_path, cut_short, steps):
    scorer = ScoreCallback(FINAL, DURING, every_n_steps=100, is_last_step=is_last_step)
    checkpoints = checkpoints_in(tmp_path)
    final = FinalScores(scorer, checkpoints.best_path, skip=lambda: cut_short, load=load_best)
    fit(tmp_path, [scorer, final, Stop(), checkpoints])
    assert list(scorer.history) == steps
    assert checkpoints.best_step == (None if cut_short else 3)
    assert final.best_step == (0 if cut_short else 3)
    if not cut_short:
        assert checkpoints.best_score == pytest.approx(scorer.history[3][NAME], abs=1e-4)
        assert final.scores.values[NAME] == scorer.history[3][NAME]


@pytest.mark.parametrize(("monitor", "scores", "times"), [(None, [1.0, 2.0], 2), (NAME, [2.0, 1.0], 3)])
def test_the_end_encodes_again_what_other_weights_than_the_last_ones_are_to_be_scored_on(
    monitor, scores, times, tmp_path, monkeypatch
):
    """The last step's weights already encoded the same texts; the final scores are those of a new encoding."""
    scorer = ScoreCallback(DURING, DURING, every_n_steps=3, at_start=False, is_last_step=is_last_step)
    checkpoints = RunCheckpoints(
        tmp_path, every_n_steps=None, every_n_minutes=10, monitor=monitor, mode="max", patience=None
    )
    given = iter(scores)
    monkeypatch.setattr(
        "contrastive_encoders.evaluation.callback._publish",
        lambda trainer, _: trainer.callback_metrics.update({NAME: torch.tensor(next(given))}),
    )
    final = FinalScores(scorer, checkpoints.best_path, skip=lambda: False, load=load_best)
    _, module = fit(tmp_path, [scorer, final, checkpoints])
    assert len(module.encoder.modes) == times
    assert final.best_step == (6 if monitor is None else 3)
    assert final.scores.values == ScoreCallback(DURING, DURING).score(module).values


def test_the_untrained_encoder_is_never_the_best_of_a_continued_run(tmp_path):
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    fit(tmp_path, [ScoreCallback(FINAL, DURING, every_n_steps=4), keep], steps=1)
    scorer, checkpoints = ScoreCallback(FINAL, DURING, every_n_steps=4), checkpoints_in(tmp_path)
    fit(tmp_path, [scorer, checkpoints], steps=5, ckpt_path=tmp_path / "step=1.ckpt")
    assert list(scorer.history) == [0, 4]
    assert checkpoints.best_step == 4


def test_scoring_changes_nothing_in_training(tmp_path):
    _, with_scores = fit(tmp_path, [ScoreCallback(FINAL, FINAL, every_n_steps=1)])
    _, without = fit(tmp_path, [])
    assert len(with_scores.encoder.modes) == 7
    assert with_scores.modes == without.modes == (True, True, True, False)
    assert torch.equal(with_scores.encoder.table.weight, without.encoder.table.weight)


def test_monitor_picks_the_best_step_and_the_checkpoint_opens_without_code(tmp_path):
    scorer = ScoreCallback(DURING, DURING, every_n_steps=2)
    best = ModelCheckpoint(tmp_path, monitor=NAME, mode="max", every_n_train_steps=2, filename="{step}")
    fit(tmp_path, [best, scorer])
    during = {step: scores[NAME] for step, scores in scorer.history.items() if step}
    assert best.best_model_score.item() == pytest.approx(max(during.values()), abs=1e-4)
    assert best.best_model_path.endswith(f"step={max(during, key=during.get)}.ckpt")
    stored = torch.load(best.best_model_path, weights_only=True)["callbacks"]["ScoreCallback"]
    assert stored["history"] == {s: v for s, v in scorer.history.items() if s <= max(during, key=during.get)}


def test_a_continued_run_knows_its_scores(tmp_path):
    whole = ScoreCallback(FINAL, DURING, every_n_steps=2)
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=-1, filename="{step}")
    fit(tmp_path, [whole, keep])

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer, *_):
            seen.setdefault(trainer.global_step, float(trainer.callback_metrics[NAME]))

    seen, again = {}, ScoreCallback(FINAL, DURING, every_n_steps=2)
    _, module = fit(tmp_path, [again, Look()], ckpt_path=tmp_path / "step=3.ckpt")
    assert seen[3] == pytest.approx(whole.history[2][NAME], abs=1e-4), "what monitor read before the kill"
    assert list(again.history) == list(whole.history)
    assert again.scores_before == whole.scores_before
    assert again.found_before == whole.found_before
    for name, replicates_R in whole.items_before.replicates.items():
        assert np.array_equal(again.items_before.replicates[name], replicates_R)
    assert again.items_before.replicates.keys() == whole.scores_before.keys()
    assert again.items_before.digests == whole.items_before.digests
    assert len(module.encoder.modes) == 2, "steps 4 and 6 only"
