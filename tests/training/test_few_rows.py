"""Batch size and steps by the number of rows, and the steps of an epoch."""

import logging

import numpy as np
import pytest

import contrastive_encoders.encoders  # noqa: F401  silences the warning of a package of its optional ones
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.prepare import fit_to_rows, rows_of
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.startup_summary import steps_of_epoch
from tests.data import data_module, write_rows


@pytest.mark.parametrize(
    ("rows", "overrides", "batch_size", "steps"),
    [
        (100_000, [], 256, 24),
        (1_000, [], 256, 24),
        (999, [], 256, 7),  # 2 * 999 / 256
        (524, [], 256, 4),
        (350, [], 168, 4),
        (9, [], 4, 4),
        (2, [], 1, 4),
        (524, ["batch_size=32"], 32, 24),  # the 32 steps of two epochs exceed the config's
        (200, ["batch_size=32"], 32, 12),
        (524, ["max_steps=7"], 256, 7),
        (524, ["batch_size=32", "max_steps=99"], 32, 99),
        (524, ["few_rows_epochs=null"], 256, 24),
        (1_000, ["data=text"], 64, 80),
        (999, ["data=text"], 64, 31),  # 2 * 999 / 64
        (100, ["data=text"], 48, 4),
    ],
)
def test_few_rows_take_the_steps_of_few_epochs(rows, overrides, batch_size, steps):
    run = resolve(compose(["experiment=improve", "data.path=rows.csv", *overrides]))
    fitted = fit_to_rows(run, rows)
    assert (fitted.batch_size, fitted.max_steps) == (batch_size, steps)
    assert (fitted.data.batch_size, fitted.trainer_arguments["max_steps"]) == (batch_size, steps)


def test_other_recipes_are_left_alone():
    run = resolve(compose(["model=simcse", "data=qa", "data.path=rows.csv", "max_steps=24"]))
    assert fit_to_rows(run, 10) == run


@pytest.fixture
def data(tmp_path, tiny_bert):
    rows = [{"question": f"which {n}", "answer": f"that {n}"} for n in range(350)]
    path = write_rows(tmp_path / "qa.jsonl", rows)
    data = data_module("qa", path=path, tokenizer=tiny_bert, batch_size=32, cache_dir=tmp_path / "cache")
    data.prepare_data()
    return data


def test_rows_are_counted_before_a_length_is_settled(data):
    assert rows_of(data) == 350
    assert data.max_length is None


@pytest.mark.parametrize(("drop_last", "steps"), [(True, 10), (False, 11)])
def test_an_epoch_has_the_steps_of_all_rows_if_groups_hold_fewer(drop_last, steps, data):
    data.setup()
    data.drop_last = drop_last
    assert steps_of_epoch(data, len(data.epoch_batches())) == steps
    data.groups = list(np.arange(64).reshape(16, 4))  # as many as two steps take
    assert len(data.epoch_batches()) == 2
    assert steps_of_epoch(data, len(data.epoch_batches())) == steps


def test_no_warning_of_a_kernel_in_4_bits_is_shown():
    assert not logging.getLogger("bitsandbytes.backends.cpu.ops").isEnabledFor(logging.WARNING)
