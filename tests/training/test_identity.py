"""The identity of a run: the same for the same keys and values, wherever classes lie."""

from omegaconf import OmegaConf

from training.identity import identity_of


def identity(**changed):
    model = {"_target_": "encoders.simcse.SimCSE", "temperature": 0.05, "prompt": None} | changed
    return identity_of(OmegaConf.create({"output_dir": "x", "model": model, "seed": 1}))


def test_it_is_over_keys_and_values_and_not_over_class_paths_or_keys_without_a_value():
    plain = identity()
    for same in ({"_target_": "losses.room.SimCSE"}, {"new_key": None}, {"_convert_": "all"}):
        assert identity(**same) == plain
    for other in ({"temperature": 0.1}, {"prompt": " It is:"}, {"_target_": "encoders.simcse.Other"}):
        assert identity(**other) != plain


def test_an_adapter_that_is_off_says_nothing_and_one_that_is_on_says_what_it_is():
    off = identity(lora={"rank": None, "alpha": None, "dropout": 0.0, "seed": 3})
    assert off == identity()
    four = identity(lora={"rank": 4, "seed": 3}, frozen_weights="fp32")
    eight, narrow = identity(lora={"rank": 8, "seed": 3}), identity(lora={"rank": 4, "seed": 3}, frozen_weights="bf16")
    assert len({off, four, eight, narrow}) == 4
