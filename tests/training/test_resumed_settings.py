"""A resumed run has the settings of its config. Weights, moments, and counts are all that a checkpoint restores."""

import copy
import re

import numpy as np
import pytest
import torch
import toy
from pytorch_lightning.callbacks import EarlyStopping
from torch import nn

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.optimizers import NAMES, adafactor, adamw, linear, linear_constant, names_of_groups
from contrastive_encoders.training.callbacks.config_record import ConfigRecord
from contrastive_encoders.training.changed_settings import MAX_CHANGES, changes, changes_in, described
from contrastive_encoders.training.resume import check_settings, resumption

SETTINGS = {"lr": 0.1, "weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-3, "bias_correction": True}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def step(module, made, seed):
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)
    made["optimizer"].step()
    made["lr_scheduler"]["scheduler"].step()


def saved(module, made):
    """Return the states as in a checkpoint."""
    state = made["optimizer"].state_dict()
    for group, names in zip(state["param_groups"], names_of_groups(made["optimizer"], module), strict=True):
        group[NAMES] = names
    return copy.deepcopy(state), copy.deepcopy(made["lr_scheduler"]["scheduler"].state_dict())


def restored(module, made, states):
    made["optimizer"].load_state_dict(states[0])
    made["lr_scheduler"]["scheduler"].load_state_dict(states[1])
    return made


def slow_adamw(weight, grad, moments, number, *, lr, weight_decay, betas, eps):
    """Compute one step of AdamW (Loshchilov and Hutter 2019, algorithm 2), in double precision."""
    first = betas[0] * moments[0] + (1 - betas[0]) * grad
    second = betas[1] * moments[1] + (1 - betas[1]) * grad**2
    ahead = first / (1 - betas[0] ** number) / (np.sqrt(second / (1 - betas[1] ** number)) + eps)
    return weight - lr * weight_decay * weight - lr * ahead


def test_a_restored_optimizer_steps_with_the_settings_of_its_config():
    module = net()
    before = adamw(module, **SETTINGS, schedule=linear(4, warmup_ratio=0.25), rates={})
    for seed in range(3):
        step(module, before, seed)
    states = saved(module, before)
    now = {"lr": 0.02, "weight_decay": 0.7, "betas": (0.7, 0.95), "eps": 1e-2}
    made = restored(module, adamw(module, **SETTINGS | now, schedule=linear(10, warmup_ratio=0), rates={}), states)
    weight = module[0].weight
    moments = [made["optimizer"].state[weight][name].double().numpy().copy() for name in ("exp_avg", "exp_avg_sq")]
    start = weight.detach().double().numpy().copy()
    step(module, made, 9)
    rate = 0.02 * 7 / 10  # three of ten steps are done
    expected = slow_adamw(start, weight.grad.double().numpy(), moments, 4, **now | {"lr": rate})
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-5)
    assert made["optimizer"].param_groups[0]["lr"] == pytest.approx(0.02 * 6 / 10)


def test_a_longer_constant_phase_equals_the_uninterrupted_schedule():
    """Learning rates of the first steps are equal, so that weights are equal bit by bit."""
    whole, parts = net(), net()
    long, short = (linear_constant(steps, warmup_ratio=0.5) for steps in (12, 6))
    uninterrupted = adamw(whole, **SETTINGS, schedule=long, rates={})
    for seed in range(12):
        step(whole, uninterrupted, seed)
    made = adamw(parts, **SETTINGS, schedule=short, rates={})
    for seed in range(3):
        step(parts, made, seed)
    made = restored(parts, adamw(parts, **SETTINGS, schedule=long, rates={}), saved(parts, made))
    for seed in range(3, 12):
        step(parts, made, seed)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), parts.parameters(), strict=True))


def test_moments_follow_their_weights_into_other_groups():
    """Weights are grouped by their learning rates. The first run has one rate, the second one a rate for each layer."""
    module = net()
    before = adamw(module, **SETTINGS, schedule=linear(8, warmup_ratio=0), rates={})
    step(module, before, 0)
    states = saved(module, before)
    moments = {weight: before["optimizer"].state[weight]["exp_avg"].clone() for weight in module.parameters()}
    rates = dict.fromkeys(module[0].parameters(), 0.01)
    made = restored(module, adamw(module, **SETTINGS, schedule=linear(8, warmup_ratio=0), rates=rates), states)
    assert len(made["optimizer"].param_groups) == 2 * len(before["optimizer"].param_groups)
    for weight, moment in moments.items():
        assert torch.equal(made["optimizer"].state[weight]["exp_avg"], moment)
    of_weight = {weight: group for group in made["optimizer"].param_groups for weight in group["params"]}
    assert of_weight[module[0].weight]["lr"] == pytest.approx(0.01 * 7 / 8)
    assert of_weight[module[1].weight]["lr"] == pytest.approx(0.1 * 7 / 8)


def test_adafactor_is_restored_with_the_rate_and_decay_of_the_config():
    module = net()
    make = {"schedule": linear(8, warmup_ratio=0), "scaled": False, "rates": {}}
    before = adafactor(module, lr=0.1, weight_decay=0.0, **make)
    step(module, before, 0)
    made = restored(module, adafactor(module, lr=0.5, weight_decay=0.25, **make), saved(module, before))
    [group] = made["optimizer"].param_groups
    assert (group["lr"], group["weight_decay"]) == (pytest.approx(0.5 * 7 / 8), 0.25)


def test_the_state_of_other_weights_is_refused():
    module = net()
    before = adamw(module, **SETTINGS, schedule=linear(8, warmup_ratio=0), rates={})
    step(module, before, 0)
    states = saved(module, before)
    module[0].requires_grad_(False)
    with pytest.raises(InputError) as refused:
        restored(module, adamw(module, **SETTINGS, schedule=linear(8, warmup_ratio=0), rates={}), states)
    assert refused.value.location == "resume"
    assert re.findall(r"\d+", f"{refused.value.expected} {refused.value.value}") == ["2", "4"]


@pytest.mark.parametrize("patience", [2, 50])
def test_a_callback_keeps_its_arguments_and_restores_its_counts(tmp_path, patience):
    """Lightning's EarlyStopping restores its patience from the checkpoint."""

    def run(steps, patience):
        stop = EarlyStopping("train/loss", min_delta=1e6, patience=patience, check_on_train_epoch_end=True)
        toy.train(
            tmp_path,
            max_steps=steps,
            save_every=None,
            log_every=1,
            monitor=None,
            callbacks=[ConfigRecord({}, {}), stop],
        )
        return stop

    first = run(20, 30)  # two epochs of ten steps
    stop = run(30, patience)
    assert stop.patience == patience
    assert stop.wait_count > first.wait_count == 1  # the first epoch is the best


# ------------------------------------------------------------------------------------------ settings that differ


def recipe(**changed):
    """Return all keys of a small run."""
    of_model = {"_target_": "a.Model", "optimizer": "adamw", "lr": 0.1, "lr_schedule": "linear", "warmup_ratio": 0.0}
    model = {**of_model, "schedule_ratio": 32.0, "backbone": "b/x", **changed.pop("model", {})}
    plain = {"backbone": "b/x", "batch_size": 4, "seed": 1, "max_steps": 8, "max_epochs": None, "tiny": {"heads": 4}}
    plain |= changed
    limits = {"max_steps": plain["max_steps"], "max_epochs": plain["max_epochs"] or -1}
    return {**plain, "model": model, "data": {"path": "f", "batch_size": plain["batch_size"]}, "trainer": limits}


def test_a_setting_is_named_once_with_both_values():
    found = changes(recipe(), recipe(max_steps=9, batch_size=8, output_dir="other", model={"lr": 1e-6}))
    assert {one.key: (one.before, one.now) for one in found} == {
        "max_steps": (8, 9),
        "batch_size": (4, 8),
        "model.lr": (0.1, 1e-6),
    }
    assert [one.key for one in found if not one.can_be_resumed] == ["batch_size"]
    assert changes(recipe(), recipe(quiet=True, resume="x")) == []


def test_another_class_is_one_change():
    [found] = changes(recipe(), recipe(model={"_target_": "b.Other", "temperature": 1}))
    assert (found.key, found.before, found.now) == ("model", recipe()["model"]["_target_"], "b.Other")


def test_a_message_lists_so_many_changes_at_most():
    many = {f"key{number}": number for number in range(MAX_CHANGES + 3)}
    assert described(changes(recipe(), recipe(**many))).endswith("; and 3 more")


def test_settings_that_are_not_recorded_are_no_changes(tmp_path):
    assert changes_in(tmp_path, recipe()) == []
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("{")
    assert changes_in(tmp_path, recipe()) == []


@pytest.mark.parametrize(
    ("changed", "override"),
    [
        ({"model": {"optimizer": "adafactor"}}, "model.optimizer=adamw"),
        ({"tiny": {"heads": 8}}, "tiny.heads=4"),
        ({"freeze": "embeddings"}, "freeze=null"),
        ({"model": {"keep_layers": [0, 2]}}, "model.keep_layers=null"),
        ({"model": {"pooling": "mean"}}, "model.pooling=null"),
        ({"model": {"normalize": True}}, "model.normalize=null"),
        ({"model": {"mlp": False}}, "model.mlp=null"),
        ({"backbone": "b/y", "model": {"backbone": "b/y"}}, "backbone=b/x"),
    ],
)
def test_settings_that_tensors_belong_to_are_refused(changed, override):
    with pytest.raises(InputError) as refused:
        check_settings("run/last.ckpt", {"config": recipe()}, recipe(**changed))
    assert (refused.value.key, refused.value.value) == ("resume", "run/last.ckpt")
    assert refused.value.hint.endswith(f" set {override}.")


@pytest.mark.parametrize(
    "changed",
    [
        {"model": {"lr": 1.0, "weight_decay": 0.5, "lr_schedule": "constant"}},
        {"max_steps": 99, "early_stopping": 3, "log_every_n_steps": 1},
        {"tiny": {"heads": 4, "dropout": 0.5}},
        {"backbone": "moved/x", "model": {"backbone": "moved/x"}},
    ],
)
def test_other_settings_are_applied(changed):
    check_settings("run/last.ckpt", {"config": recipe()}, recipe(**changed))


def test_more_steps_are_expected_than_the_checkpoint_has(tmp_path):
    checkpoint = {"global_step": 8, "config": recipe()}

    def resumed(**changed):
        return resumption("run/last.ckpt", checkpoint, recipe(**changed), tmp_path, batches=6, examples=24)

    with pytest.raises(InputError) as refused:
        resumed()
    assert (refused.value.key, refused.value.value) == ("max_steps", 8)
    assert "max_steps=9" in refused.value.hint
    with pytest.raises(InputError) as refused:
        resumed(max_steps=-1, max_epochs=1)
    assert refused.value.key == "max_epochs"
    assert "max_epochs=2" in refused.value.hint
    assert resumed(max_steps=9).total_steps == 9
    assert resumed(max_steps=-1, max_epochs=2).total_steps == 12


def test_all_changes_of_settings_are_kept_in_their_order(tmp_path):
    def resumed(step, before, now, earlier):
        checkpoint = {"global_step": step, "config": before, "resumed": earlier}
        return resumption("run/last.ckpt", checkpoint, now, tmp_path, batches=6, examples=24).history

    first, second, third = recipe(), recipe(max_steps=20), recipe(max_steps=30, model={"lr": 0.5})
    once = resumed(8, first, second, [])
    assert once == [{"step": 8, "changed": {"max_steps": [8, 20]}}]
    assert resumed(12, second, second, once) == once, "nothing has changed since"
    twice = resumed(20, second, third, once)
    assert twice == [*once, {"step": 20, "changed": {"max_steps": [20, 30], "model.lr": [first["model"]["lr"], 0.5]}}]


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ({"lr_schedule": "linear"}, {"lr_schedule": "linear"}, True),
        ({"lr_schedule": "constant"}, {"lr_schedule": "constant"}, False),
        # constant over 5 of 10 steps, and over 8 of 16: the 4 finished steps have the full rate in both
        ({"lr_schedule": "linear_constant", "warmup_ratio": 0.5},) * 2 + (False,),
        ({"lr_schedule": "constant"}, {"lr_schedule": "constant", "lr": 0.2}, True),
        ({"lr_schedule": "constant"}, {"lr_schedule": "constant", "layer_decay": 0.9}, True),
    ],
)
def test_the_summary_tells_whether_earlier_steps_had_the_rates_of_an_uninterrupted_run(tmp_path, before, now, differ):
    checkpoint = {"global_step": 4, "config": recipe(max_steps=10, model=before)}
    other = recipe(max_steps=16, model=now)
    found = resumption("run/last.ckpt", checkpoint, other, tmp_path, batches=6, examples=24)
    assert found.rates_differ is differ
    assert dict(found.facts())["changed"].count("max_steps=16 (was 10)") == 1
    # facts about the checkpoint's own past stay
    checkpoint |= {"config": other, "rates_differ": differ}
    again = resumption("run/last.ckpt", checkpoint, other, tmp_path, batches=6, examples=24)
    assert (again.rates_differ, again.changed) == (differ, [])
    assert ("schedule" in dict(again.facts())) is differ


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), True),  # its own learning rate
        (nn.Linear(2, 2), False),
    ],
)
def test_dropout_is_found_where_there_is_some(part, expected):
    assert has_dropout(nn.Sequential(nn.Linear(2, 2), part)) is expected
