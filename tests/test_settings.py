"""Classes of settings: messages about wrong values; configs, checks and values are made from the fields."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

from contrastive_encoders.composition.config_store import config_node
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import UNSET, build, config_field, inherit, keys_of, read, unset_keys
from contrastive_encoders.datamodules.data_configs import KINDS


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


def test_a_value_is_made_of_what_is_given_and_the_defaults():
    made = build(Example, {"name": "a", "seed": 3, "rate": 2, "below": {"share": 0.5}})
    assert made == Example(name="a", seed=3, rate=2, below=Below(share=0.5))
    assert (made.number, made.below.share, Example(name="a").seed) == (2, 0.5, UNSET)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.number = 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"^x\.name has no value, and has to be given: x\.name="),
        ({"name": "a", "numbr": 3}, r"^x\.numbr=3: expected a key that exists.*nearest is x\.number"),
        ({"name": 5}, r"^x\.name=5: wanted a text, got int"),
        ({"name": "a", "number": 2.5}, r"^x\.number=2\.5: wanted a whole number, got float"),
        ({"name": "a", "number": 10}, r"^x\.number=10: wanted 1 to 9"),
        ({"name": "a", "way": "left"}, r"^x\.way='left': wanted up, down or null\.$"),
        ({"name": "a", "betas": [0.9, 1]}, r"^x\.betas=\[0\.9, 1\]: wanted 0 or more, but less than 1"),
        ({"name": "a", "rate": 0}, r"^x\.rate=0: wanted more than 0\."),
        ({"name": "a", "below": {"share": 1}}, r"^x\.below\.share=1: wanted 0 or more, but less than 1"),
        ({"name": "a", "weights": [1]}, r"^x\.weights=\[1\]: wanted keys with their values or null"),
    ],
)
def test_what_is_wrong_is_said_by_key_and_value(given: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        build(Example, given, "x.")


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
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
def test_what_nobody_has_said_follows_the_run_and_hydra_resolves_it_alike(run, given, length):
    config = read(Follower, {**config_node(Follower), **given})
    found = inherit(config, {"seed": 7, **run}, unset_keys(config, "x"), "x")
    assert (found.length, found.below.seed) == (length, 7)
    cfg = OmegaConf.create({"seed": 7, **run, "data": {**config_node(Follower), **given}})
    assert (cfg.data.length, cfg.data.below.seed) == (length, 7)
