"""Classes of settings: messages about wrong values; configs, checks and values are made from the fields."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import UNSET, build, config_field, inherit, keys_of, read, unset_keys
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.training.composition.config_store import config_node


@dataclass(frozen=True, kw_only=True)
class Below:
    share: float = config_field(0.1, "of all", ge=0, lt=1)


@dataclass(frozen=True, kw_only=True)
class Base:
    number: int = config_field(2, "of them", ge=1, le=9)
    seed: int = config_field(inherits_from="seed", meaning="of the order")


@dataclass(frozen=True, kw_only=True)
class Example(Base):
    target = "package.module.Example"

    name: str = config_field(meaning="what it is called")
    way: Literal["up", "down"] | None = config_field(None, "where to")
    betas: Sequence[float] = config_field((0.9, 0.999), "of the optimizer", ge=0, lt=1)
    rate: float = config_field(1.0, gt=0)
    weights: Mapping[str, float] | None = config_field(None)
    below: Below = dataclasses.field(default_factory=Below)


def test_the_element_of_a_list_with_the_wrong_type_is_shown():
    with pytest.raises(InputError) as error:
        build(Example, {"name": "x", "betas": [0.5, "a"]})
    assert error.value.key == "betas"
    assert error.value.hint.startswith("a ")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_of_a_config_equal_it(again):
    config = Example(name="x", rate=2.0)
    assert config.seed is UNSET
    assert again(config) == config
    assert again(UNSET) is UNSET


def test_a_config_has_the_defaults_of_the_fields():
    assert config_node(Example) == {
        "_target_": "package.module.Example",
        "name": "???",
        "way": None,
        "betas": [0.9, 0.999],
        "rate": 1.0,
        "weights": None,
        "below": {"share": 0.1},
        "number": 2,
        "seed": "${seed}",
    }


def test_a_config_is_built_from_values_and_defaults():
    made = build(Example, {"name": "a", "seed": 3, "rate": 2, "below": {"share": 0.5}})
    assert made == Example(name="a", seed=3, rate=2, below=Below(share=0.5))
    assert (made.number, made.below.share, Example(name="a").seed) == (2, 0.5, UNSET)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.number = 3


@pytest.mark.parametrize(
    ("values", "key", "value", "words"),
    [
        ({}, "x.name", None, {"string"}),
        ({"name": "a", "numbr": 3}, "x.numbr", 3, {"key"}),
        ({"name": 5}, "x.name", 5, {"string"}),
        ({"name": "a", "number": 2.5}, "x.number", 2.5, {"integer"}),
        ({"name": "a", "number": 10}, "x.number", 10, {"1", "9"}),
        ({"name": "a", "way": "left"}, "x.way", "left", {"up", "down", "null"}),
        ({"name": "a", "betas": [0.9, 1]}, "x.betas", [0.9, 1], {"0", "1"}),
        ({"name": "a", "rate": 0}, "x.rate", 0, {"0"}),
        ({"name": "a", "below": {"share": 1}}, "x.below.share", 1, {"0", "1"}),
        ({"name": "a", "weights": [1]}, "x.weights", [1], {"keys", "null"}),
    ],
)
def test_an_invalid_value_is_refused_with_its_key(values: dict[str, Any], key: str, value: Any, words: set[str]):
    with pytest.raises(InputError) as refused:
        build(Example, values, "x.")
    error = refused.value
    assert (error.key, error.value) == (key, value)
    assert words <= set(re.findall(r"\w+", str(error.expected)))


@pytest.mark.parametrize("kind", DATA_CONFIGS.values(), ids=list(DATA_CONFIGS))
def test_every_key_of_data_has_a_meaning(kind):
    assert [one.name for one in keys_of(kind) if not one.meaning] == []


@dataclass(frozen=True, kw_only=True)
class Follower:
    length: int | None = config_field(128, "of a text", inherits_from=("asked_length", "usual.length"))
    below: Base = dataclasses.field(default_factory=Base)


@pytest.mark.parametrize(
    ("run", "given", "length"),
    [
        ({"asked_length": 16, "usual": {"length": 32}}, {}, 16),
        ({"asked_length": None, "usual": {"length": 32}}, {}, 32),
        ({}, {}, 128),
        ({"asked_length": 16}, {"length": 8}, 8),
        ({"asked_length": 16}, {"length": None}, None),
    ],
)
def test_unset_keys_inherit_from_the_run_as_in_hydra(run, given, length):
    config = read(Follower, {**config_node(Follower), **given})
    found = inherit(config, {"seed": 7, **run}, unset_keys(config, "x"), "x")
    assert (found.length, found.below.seed) == (length, 7)
    cfg = OmegaConf.create({"seed": 7, **run, "data": {**config_node(Follower), **given}})
    assert (cfg.data.length, cfg.data.below.seed) == (length, 7)
