"""Unknown names are answered with a similar key, and the corrected command accepts it."""

import re
import shlex

import pytest
from hydra.errors import HydraException

# They register the config classes
import contrastive_encoders.cli.compare
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.export  # noqa: F401
from contrastive_encoders.cli.main import adapt_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import COUNTERPARTS, counterpart, unknown_key
from contrastive_encoders.training.api import train
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.config_errors import explained
from contrastive_encoders.training.composition.config_keys import known_keys
from contrastive_encoders.training.composition.config_store import compose_config
from contrastive_encoders.training.composition.literal_values import literal_overrides

BASE = ["model=pairs", "data=triplets", "data.path=faq.csv"]


def refused(override):
    """Return the message of a command line with this argument."""
    with pytest.raises(Exception) as error:  # noqa: PT011  Hydra's, or ours
        compose([*BASE, override])
    return str(explained(error.value, "train", [*BASE, override]))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("lr=1e-5", "model.lr=1e-5"),
        ("+lr=0.5", "model.lr=0.5"),
        ("learning_rate=1e-5", "model.lr=1e-5"),
        ("model.learning_rate=1e-5", "model.lr=1e-5"),
        ("data_path=other.csv", "data.path=other.csv"),
        ("path=other.csv", "data.path=other.csv"),
        ("num_train_epochs=3.0", "max_epochs=3"),  # a float in transformers
        ("epochs=2", "max_epochs=2"),
        ("max_train_steps=20", "max_steps=20"),
        ("per_device_train_batch_size=8", "batch_size=8"),
        ("warmup_ratio=0.1", "model.warmup_ratio=0.1"),
        ("output=runs/a", "output_dir=runs/a"),
        ("model_name_or_path=runs/a", "backbone=runs/a"),
        ("weight_decay=0.1", "model.weight_decay=0.1"),
        ("model.max_steps=5", "max_steps=5"),
        ("steps=5", "max_steps=5"),  # data.steps is the former name of another key
        ("logging_steps=5", "log_every_n_steps=5"),
        ("eval_steps=5", "evaluation.every_n_steps=5"),
        ("save_steps=5", "checkpoint.every_n_steps=5"),
        ("dropout=0.2", "model.dropout=0.2"),
        ("max_grad_norm=2", "trainer.gradient_clip_val=2"),
    ],
)
@pytest.mark.advice("contrastive_encoders.core.key_suggestions:unknown_key")
def test_the_key_that_is_meant_is_named_and_accepted(override, key):
    message = refused(override)
    assert message.endswith(f"Set {key}.")
    assert "append" not in message.lower()  # Hydra's advice of +KEY=VALUE is refused, too
    compose([*BASE, *shlex.split(key)])


def test_the_words_that_the_console_adds_are_not_blamed():
    overrides = ["hydra/help=improve", "experiment=improve", "data.path=faq.csv", "output=runs/a"]
    with pytest.raises(Exception) as error:  # noqa: PT011  Hydra's, or ours
        compose(overrides)
    assert str(explained(error.value, "train", overrides)).endswith("Set output_dir=runs/a.")


@pytest.mark.parametrize(
    ("override", "key"),
    [("model.lrr=3", "model.lr"), ("model.teperature=1", "model.temperature"), ("temperatur=1", "model.temperature")],
)
def test_a_typo_is_answered_with_the_nearest_key(override, key):
    assert refused(override).endswith(f" {key}.")


@pytest.mark.parametrize("override", ["warmup_steps=100", "fp16=true", "foo=1", "model.foo=1"])
def test_names_without_a_counterpart_get_none(override):
    message = refused(override)
    assert "Set " not in message
    assert "nearest" not in message


def test_every_counterpart_is_a_key_of_some_command():
    commands = [("train", BASE), ("evaluate", []), ("export", []), ("compare", [])]
    known = {key for command, overrides in commands for key in known_keys(command, overrides)}
    assert {key for keys in COUNTERPARTS.values() for key in keys} <= known


def test_a_key_of_the_command_is_named_and_not_one_of_another():
    assert counterpart("output_dir", known_keys("compare", [])) == "output"
    assert counterpart("encoder", known_keys("export", [])) == "run"
    assert counterpart("run", known_keys("evaluate", [])) == "encoder"
    assert counterpart("run", known_keys("compare", [])) == "runs"
    assert counterpart("encoder", known_keys("train", BASE)) == "backbone"
    assert counterpart("learning_rate", known_keys("compare", [])) is None


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"learning_rate": 1e-5}, "Set model__lr=1e-05."),
        ({"data_path": "faq.csv"}, "Set data__path='faq.csv'."),
        ({"num_train_epochs": 2.0}, "Set max_epochs=2."),
        ({"model__learning_rate": 0.1}, "Set model__lr=0.1."),
        ({"modle__lr": 0.1}, "Set model__lr=0.1."),
        ({"steps": 5}, "Set max_steps=5."),
    ],
)
def test_from_python_a_key_is_named_as_an_argument(given, hint):
    with pytest.raises(InputError) as error:
        train([("a", "b")] * 4, **given)
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("estimate_only=true", "Set race.estimate_only=true."),
        ("txts=docs", " race.texts."),
        ("foo=1", "contrastive-encoders adapt --help"),
    ],
)
def test_a_command_that_expands_to_another_names_its_own_help(override, hint):
    overrides = [*adapt_arguments(["docs"]), override]
    with pytest.raises(HydraException) as error:
        compose_config("compare", overrides)
    assert hint in str(explained(error.value, "compare", overrides))


def test_an_error_has_the_value_and_what_is_expected():
    error = unknown_key("lr", "1", ["model.lr"], "none")
    assert (error.key, error.value, error.hint) == ("lr", "1", "Set model.lr=1.")
    assert error.expected
    assert unknown_key("foo", None, ["model.lr"], "none").hint == "none"


def failed(overrides, config="train"):
    """Return the error about these overrides."""
    with pytest.raises(Exception) as error:  # noqa: PT011  Hydra's, or ours
        compose(overrides) if config == "train" else compose_config(config, overrides)
    return explained(error.value, config, overrides)


@pytest.mark.parametrize(
    ("override", "key", "choices"),
    [
        ("model.layers=2", "model.layers", "model.keep_layers=2"),
        (
            "model.dev_batch_size=2",
            "model.dev_batch_size",
            r"model\.eval_batch_size .* model=gense_generator",
        ),
        ("data.window=grid", "data.window", r"data\.anchor_placement .* data=pydocs, data=text"),
        ("+model.mlm_weight=1", "model.mlm_weight", r"model\.mlm_weight .* model=declutr"),
        ("+stages.a.data.window=grid", "data.window", r"data\.anchor_placement .* data=pydocs, data=text"),
    ],
)
def test_a_key_of_another_choice_is_refused_with_that_choice(override, key, choices):
    error = failed([*BASE, override])
    assert error.key == key
    assert re.search(choices, error.hint)


def test_a_part_of_a_mixture_names_the_data_that_has_a_key():
    part = ["data.parts.a.data=qa", "data.parts.a.path=x", "data.parts.a.window=grid"]
    error = failed(["model=pairs", "data=mixture", *part])
    assert error.key == "data.parts.a.window"
    assert "data=pydocs, data=text" in error.hint


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("config", "overrides", "advised", "key"),
    [
        ("train", ["data=qa", "model.lr=1"], ["data=qa", "model.lr=1", "model=pairs"], "model"),
        ("train", ["+model=pairs", "data=qa"], ["model=pairs", "data=qa"], "+model"),
        ("train", ["++model=pairs", "data=qa"], ["model=pairs", "data=qa"], "++model"),
        ("train", ["model@foo=pairs", "data=qa"], ["model=pairs", "data=qa"], "model@foo"),
        ("train", [*BASE, "+seed=1"], [*BASE, "seed=1"], "+seed"),
        ("train", [*BASE, "+model.lr=1e-5"], [*BASE, "model.lr=1e-5"], "+model.lr"),
        ("train", [*BASE, "~seed=5"], [*BASE, "~seed=1"], "~seed"),
        ("train", [*BASE, "seed=1,2"], [*BASE, "seed=1"], "seed"),
        ("train", [*BASE, "data.columns=a,b"], [*BASE, "data.columns=[a,b]"], "data.columns"),
        ("compare", ["race=head_to_head", "seeds=1,2"], ["race=head_to_head", "seeds=[1,2]"], "seeds"),
        ("train", [*BASE, "stages=[a,b]"], BASE, "stages"),
        ("train", [*BASE, "evaluation=[a]"], BASE, "evaluation"),
        ("train", [*BASE, "hydra/launcher=foo"], BASE, "hydra/launcher"),
        ("train", ["~data", "data.path=a.txt"], ["data=text", "data.path=a.txt"], "data"),
        ("train", [*BASE, "data.parts.a.path=a.csv"], BASE, "data.parts"),
        ("train", ["experiment=[quickstart,foo]"], ["experiment=[quickstart]"], "experiment"),
        ("compare", ["race.known=3"], ["race=minilm"], "race"),
        ("compare", ["race=head_to_head", "race.arms.simcse=[lr=1]"], ["race=head_to_head"], "race.arms.simcse"),
        ("compare", ["race=documents", "training_length=3"], ["race=documents"], "training_length"),
    ],
)
@pytest.mark.advice("contrastive_encoders.training.composition.config_errors:_unknown_name")
@pytest.mark.advice("contrastive_encoders.training.composition.config_errors:_invalid_override")
def test_an_override_that_hydra_refuses_has_a_message_of_this_project(config, overrides, advised, key):
    error = failed(overrides, config)
    assert error.key == key
    assert "ranking_metric" not in str(error)
    assert not {"append", "merging", "Ambiguous"} & {*str(error).split()}
    compose(advised) if config == "train" else compose_config(config, advised)


def test_a_list_without_brackets_is_shown_with_brackets():
    with pytest.raises(InputError) as error:
        literal_overrides("train", ["data.columns=Frage,Antwort (Support)"])
    [advised] = shlex.split(error.value.hint.removeprefix("Set ").removesuffix("."))
    [override] = literal_overrides("train", [advised])
    assert list(compose([*BASE, override]).data.columns) == ["Frage", "Antwort (Support)"]


def test_python_arguments_are_named_in_python():
    with pytest.raises(InputError) as error:
        train([("a", "b")] * 4, foo=3)
    assert "--help" not in error.value.hint
    with pytest.raises(InputError) as error:
        train([("a", "b")] * 4, model__foo=3)
    assert "model__lr" in error.value.hint
    assert "_target_" not in error.value.hint
