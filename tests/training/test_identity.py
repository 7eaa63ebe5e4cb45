"""The identity of a run: equal for equal keys and values, independent of the modules of this package."""

from dataclasses import is_dataclass, replace

from contrastive_encoders.core.config_schema import keys_of
from contrastive_encoders.core.key_effects import KEY_EFFECTS, effect_of
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.model_configs import LoRAConfig
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.identity import identity_of
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.run_config import RunConfig


def identity(model=SimCSEConfig, **changed):
    return resolve(RunConfig(model=model(**changed))).identity


def test_it_is_over_keys_and_values_and_not_over_class_paths_or_keys_without_a_value():
    plain = identity()
    assert identity(target="contrastive_encoders.losses.room.SimCSE") == plain
    assert identity(temperature=0.05) == plain
    assert resolve(RunConfig(model=SimCSEConfig(), quiet=True, devices=2, output_dir="elsewhere")).identity == plain
    others = [identity(temperature=0.1), identity(target="encoders.objectives.simcse.Other"), identity(GenSEConfig)]
    assert len({plain, *others}) == 4


def test_a_model_in_the_home_directory_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/elsewhere")
    run = resolve(RunConfig(backbone="~/student", model=SimCSEConfig(teacher="~/teacher", teacher_weight=1.0)))
    assert (run.backbone, run.model.teacher) == ("/elsewhere/student", "/elsewhere/teacher")
    assert resolve(RunConfig(backbone="~no-such-user/student")).backbone == "~no-such-user/student"


def keys_below(kind, prefix=""):
    for key in keys_of(kind):
        yield f"{prefix}{key.name}"
        yield from keys_below(key.type, f"{prefix}{key.name}.") if is_dataclass(key.type) else ()


def test_classes_of_the_same_name_in_other_packages_differ():
    own = [identity_of({"model": {"_target_": f"{module}.Margin"}}) for module in ("a", "b")]
    ours = [identity_of({"model": {"_target_": f"contrastive_encoders.{one}.Margin"}}) for one in ("a", "b")]
    assert len({*own, *ours}) == 3


def test_every_entry_of_the_table_is_a_key():
    kinds = {
        "": (RunConfig, EvaluateConfig, *MODEL_CONFIGS.values()),
        "data.": DATA_CONFIGS.values(),
    }
    keys = {key for prefix, several in kinds.items() for kind in several for key in keys_below(kind, prefix)}
    keys |= {f"trainer.{name}" for name in resolve(RunConfig()).trainer_arguments}
    assert KEY_EFFECTS.keys() - keys == {"data", "logger", "experiment", "hydra", "*.seed", "class", "_wandb"}


def test_a_plain_key_counts_wherever_it_is_read():
    run = RunConfig(model=SimCSEConfig())
    assert resolve(replace(run, seed=2)).identity != resolve(run).identity
    assert resolve(RunConfig(model=SimCSEConfig(seed=1))).identity == resolve(run).identity, "the seed of the run"


def test_the_batch_size_and_steps_of_few_rows_count_if_they_are_set():
    """With few rows, improve fits both keys to the data unless they are set, be it to the same value."""
    usual, words = compose(["experiment=improve", "data.path=faq.csv"]), []
    for key in ("batch_size", "max_steps"):
        word = f"{key}={getattr(usual, key)}"
        words.append(resolve(compose(["experiment=improve", "data.path=faq.csv", word])).identity)
        same = [["experiment=improve", "data.path=faq.csv", "few_rows_epochs=null", *more] for more in ([], [word])]
        assert len({resolve(compose(one)).identity for one in same}) == 1
    assert len({resolve(usual).identity, *words}) == 3


def test_a_key_of_the_model_that_follows_a_key_of_the_run_has_its_effect():
    """Runs that differ only in what they record, or in a seed, are one arm of a comparison."""
    for key in ("log_every_n_steps", "seed", "model.seed", "model.lora.seed"):
        assert not effect_of(key).in_arm, key
    assert effect_of("model.temperature").in_arm
    assert effect_of("model.lora.dropout").in_arm


def test_only_an_enabled_adapter_is_part_of_the_identity():
    off = identity(lora=LoRAConfig(dropout=0.3, seed=3))
    assert off == identity()
    four = identity(lora=LoRAConfig(rank=4, seed=3), frozen_dtype="fp32")
    eight = identity(lora=LoRAConfig(rank=8, seed=3))
    narrow = identity(lora=LoRAConfig(rank=4, seed=3), frozen_dtype="bf16")
    assert len({off, four, eight, narrow}) == 4
