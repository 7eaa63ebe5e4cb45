"""A run killed by SIGKILL and resumed by another interpreter equals the uninterrupted one, bit for bit, with dropout.

Forks share state that their parent has initialized already; state that a process initializes once, and late, is tested
only here.
"""

import json
import signal

import pytest
import torch

from contrastive_encoders.io.metrics import read_rows
from tests.data import write_rows
from tests.integration.conftest import NOUNS, TINY
from tests.integration.curves import without_times

STEPS, KILLED_AT, SCORED = 10, 5, [0, 4, 8, 10]  # the last checkpoint before the kill is from step 3
SCORE = "stsb-dev/cosine/spearman"
KILL = """
import os, signal
import pytorch_lightning as pl

class Kill(pl.Callback):
    def on_train_batch_start(self, trainer, *_):
        if str(trainer.global_step) == os.environ.get("KILLED_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def overrides(tmp_path_factory, small_eval):
    folder = tmp_path_factory.mktemp("words")
    (folder / "killing.py").write_text(KILL)
    texts = [(f"A {NOUNS[n % 12]} by the {NOUNS[n % 7]}.", f"The {NOUNS[n % 5]}, {n}.") for n in range(40)]
    rows = [{"text_a": left, "text_b": right, "label": n % 9 / 9} for n, (left, right) in enumerate(texts)]
    write_rows(folder / "pairs.jsonl", rows)
    return folder, [
        *("model=sroberta", "data=dino", f"data.path={folder}/pairs.jsonl", "batch_size=8", "model.lr=0.003"),
        *(*TINY, "tiny.dropout=0.3", f"max_steps={STEPS}", "max_epochs=null"),
        *("log_every_n_steps=1", "checkpoint.every_n_steps=3", "checkpoint.keep_all=true"),
        f"evaluation.data_root={small_eval}",
        *("evaluation.suite=stsb-dev", "evaluation.every_n_steps=4", "evaluation.at_start=true", f"monitor={SCORE}"),
        *("+callbacks.kill._target_=killing.Kill", "allow_targets=[killing]", "quiet=true"),
    ]


@pytest.mark.slow
def test_a_new_interpreter_continues_as_if_nothing_had_happened(overrides, command, run_train, tmp_path, monkeypatch):
    """In a fork, late initialization of the process has already happened, in the full run and in the killed one."""
    folder, overrides = overrides
    monkeypatch.syspath_prepend(folder)
    reference, parts = tmp_path / "whole", tmp_path / "parts"
    done = command(*overrides, f"output_dir={reference}")
    assert done.status == 0, done.err
    killed = command(*overrides, f"output_dir={parts}", KILLED_AT=str(KILLED_AT))
    assert killed.status == -signal.SIGKILL, killed.err
    assert load(parts, "last")["global_step"] == 3
    assert max(int(row["step"]) for row in read_rows(parts / "metrics.csv")) == KILLED_AT
    done = run_train([*overrides, f"output_dir={parts}"], PYTHONPATH=str(folder))
    assert done.returncode == 0, done.stderr
    for name in ("last", "best"):
        ours, theirs = load(parts, name), load(reference, name)
        assert ours["global_step"] == theirs["global_step"]
        assert same(ours["state_dict"], theirs["state_dict"])
        assert same(ours["optimizer_states"], theirs["optimizer_states"])
    assert without_times(parts) == without_times(reference)
    assert [int(row["step"]) for row in without_times(reference) if SCORE in row] == SCORED
    assert scores(parts) == scores(reference)


def load(folder, name):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


def same(one, other):
    """Compare to the last bit of every tensor."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def scores(folder):
    return json.loads((folder / "results.json").read_text())["scores"]
