"""Every YAML under configs/ composes, and gives each target exactly the keys that it takes."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

import contrastive_encoders.cli.compare  # noqa: F401  it registers the config class
from contrastive_encoders.core.config_schema import keys_of, settings_class
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.training.checks import check_model_and_data, check_values
from contrastive_encoders.training.compose import compose as compose_run
from contrastive_encoders.training.composition.config_store import compose_config, to_container
from contrastive_encoders.training.composition.config_store import config_node as config_of
from contrastive_encoders.training.resolve import ResolvedRun, resolve

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FILES = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.yaml"))
KINDS = {"model": MODEL_CONFIGS, "data": DATA_CONFIGS}
GROUPS = ("model", "data", "trainer", "logger", "experiment")
GIVEN_BY_THE_CODE = {"Trainer": {"callbacks", "logger"}}
# of other libraries: only intended values are set
WITH_DEFAULTS_OF_ITS_OWN = ("Trainer", "TensorBoardLogger", "DDPStrategy", "ShardedStrategy")


def composed(*overrides: str) -> DictConfig:
    return compose_config("train", ["output_dir=somewhere", *overrides])


def choices(group: str) -> list[str]:
    return sorted(str(path.stem) for path in FILES if path.parts[0] == group)


def targets(node, where=""):
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield where, node
        for key in node:
            if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
                yield from targets(node[key], f"{where}.{key}".strip("."))


@pytest.mark.rotates
@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in choices(group)])
def test_a_choice_composes_and_its_targets_take_its_keys(group, name):
    cfg = composed(f"{group}={name}", *(["data.path=x"] if (group, name) == ("data", "text") else []))
    found = dict(targets(cfg))
    assert found or (group, name) == ("logger", "csv")
    for where, node in found.items():
        target = get_object(node._target_)
        has_settings = where.split(".")[0] in ("data", "model")
        known = (
            [one.name for one in keys_of(settings_class(target))]
            if has_settings
            else inspect.signature(target).parameters
        )
        keys = {str(key) for key in node if not str(key).startswith("_")}
        open_ended = "kwargs" in known
        assert open_ended or keys <= set(known), f"{where}: {target.__name__} does not take {sorted(keys - set(known))}"
        if target.__name__ in WITH_DEFAULTS_OF_ITS_OWN:
            continue
        missing = set(known) - keys - GIVEN_BY_THE_CODE.get(target.__name__, set())
        assert not missing, f"{where}: {sorted(missing)} cannot be seen in the config"


@pytest.mark.rotates
@pytest.mark.parametrize("name", choices("experiment"))
def test_an_experiment_is_a_complete_run(name):
    for run in stages_composed(f"experiment={name}"):
        run = with_path(run)
        name = run.model.target.rpartition(".")[2].lower()
        assert check_model_and_data(run).objective.replace("_", "") == name.replace("_", "")
        check_values(run)


def with_path(run: ResolvedRun) -> ResolvedRun:
    """Return the run with a file as its data, if it reads the user's own texts."""
    return replace(run, data=replace(run.data, path="x"), missing={}) if "data.path" in run.missing else run


def stages_composed(*overrides: str) -> list[ResolvedRun]:
    """Return the stages of a run, or the run alone, with all values."""
    return resolve(compose_run(overrides)).trainings


@pytest.mark.rotates
@pytest.mark.parametrize(
    "name", [name for name in choices("experiment") if re.match("simcse|gense(?!_gen)|tsdae", name)]
)
def test_what_is_made_with_simcse_and_gense_is_chosen_by_sentevals_form_of_stsb_dev(name):
    """Their code monitored SentEval's form of the development set, lowercased and tokenized."""
    last = stages_composed(f"experiment={name}")[-1]
    assert last.monitor == "stsb-dev@senteval/cosine/spearman"
    assert list(last.evaluation.during_training) == ["stsb-dev@senteval"]
    assert last.evaluation.every_n_steps


STAGES = {  # of the paper: data, batch, temperature, epochs of each stage
    "gense": [("Triplets", 1024, 0.05, 1), ("Triplets", 512, 0.05, 3)],
    "gense_qa": [("QuestionAnswers", 512, 0.01, 1), ("Triplets", 512, 0.05, 3)],
    "gense_plus": [("Triplets", 1024, 0.05, 1), ("QuestionAnswers", 512, 0.01, 1), ("Triplets", 512, 0.05, 3)],
    "gense_domain": [("Triplets", 1024, 0.05, 1), ("Triplets", 1024, 0.05, 1), ("Triplets", 512, 0.05, 3)],
    "gense_open_in": [("Triplets", 1024, 0.05, 1), ("Triplets", 1024, 0.05, 1)],
}


@pytest.mark.rotates
@pytest.mark.parametrize("name", STAGES)
def test_the_stages_of_gense_are_the_published_ones(name):
    found = stages_composed(f"experiment={name}")
    assert [
        (cfg.data.target.rpartition(".")[2], cfg.batch_size, cfg.model.temperature, cfg.max_epochs) for cfg in found
    ] == STAGES[name]
    for cfg in found:
        assert (cfg.model.lr, cfg.model.optimizer, cfg.model.lr_schedule) == (5e-5, "adafactor", "linear_constant")
        assert (cfg.monitor, cfg.evaluation.every_n_steps) == ("stsb-dev@senteval/cosine/spearman", 250)
        assert (cfg.model.exclude_equal_texts, cfg.model.truncation) == (False, "official")
        assert (cfg.data.max_length, cfg.precision, cfg.data.batch_size) == (64, "fp32", cfg.batch_size)


def test_a_word_for_one_stage_beats_one_for_all_which_beats_the_experiment():
    overrides = ["experiment=gense_plus", "batch_size=64", "model.prompt_suffix=null", "stages.qa.batch_size=32"]
    found = stages_composed(*overrides, "stages.nli.data.fraction=0.5", "stages.open.model.prompt_suffix=mine")
    assert [cfg.batch_size for cfg in found] == [64, 32, 64]
    assert [cfg.model.prompt_suffix for cfg in found] == ["mine", None, None]
    assert [cfg.data.fraction for cfg in found] == [1.0, 1.0, 0.5]
    assert [cfg.model.temperature for cfg in found] == [0.05, 0.01, 0.05]
    without = stages_composed(*overrides[:3], "~stages.qa")
    assert [cfg.data.target.rpartition(".")[2] for cfg in without] == ["Triplets", "Triplets"]


def test_the_identity_covers_all_stages_and_their_order():
    def identities(*overrides: str) -> list[str]:
        return [stage.identity for stage in resolve(compose_run(["experiment=gense", *overrides])).all_stages]

    plain, first = identities(), identities("stages.open.max_steps=3")
    assert plain[0] != first[0]
    assert plain[1] != first[1]  # it starts from another backbone
    last = identities("stages.nli.max_steps=3")
    assert plain[0] == last[0]
    assert plain[1] != last[1]
    assert plain == identities("only_stage=nli", "quiet=true", "devices=2")


GIVEN = {"distil": ["model.teacher=t"]}  # required by the model


@pytest.fixture(scope="module")
def yielded() -> dict[str, object]:
    """Return the kind of data of each choice."""
    runs = {data: compose_run(["model=simcse", f"data={data}"]) for data in choices("data")}
    return {data: get_object(run.data.target).yields for data, run in runs.items()}


@pytest.mark.rotates
@pytest.mark.parametrize("model", choices("model"))
def test_a_model_fits_some_data(model, yielded):
    overrides = [f"model={model}", *GIVEN.get(model, [])]
    consumes = get_object(compose_run([*overrides, "data=text"]).model.target).consumes
    fitting = [
        data for data, kind in yielded.items() if kind in (consumes if isinstance(consumes, tuple) else [consumes])
    ]
    for data in fitting:
        run = with_path(resolve(compose_run([*overrides, f"data={data}"])))
        check_model_and_data(run)
        check_values(run)
    assert fitting


def test_the_plain_keys_reach_the_trainer_the_model_and_the_data():
    overrides = ["batch_size=7", "seed=3", "token_budget=99", "log_every_n_steps=4", "precision=bf16", "max_steps=5"]
    (cfg,) = stages_composed(
        *"model=declutr data=text data.path=x backbone=b".split(), *overrides, "devices=2", "num_nodes=3"
    )
    assert (cfg.data.batch_size, cfg.data.seed, cfg.data.tokenizer) == (7, 3, "b")
    assert (cfg.model.backbone, cfg.model.token_budget, cfg.trainer_arguments["log_every_n_steps"]) == ("b", 99, 4)
    wanted = {"precision": "bf16-mixed", "max_steps": 5, "max_epochs": -1, "devices": 2, "num_nodes": 3}
    assert cfg.trainer_arguments.items() >= wanted.items()


@pytest.mark.parametrize(
    ("overrides", "epochs"),
    [([], 1), (["max_epochs=4"], 4), (["max_steps=9"], -1), (["max_steps=9", "max_epochs=2"], 2)],
)
def test_the_default_is_one_epoch(overrides, epochs):
    assert resolve(compose_run(overrides)).trainer_arguments["max_epochs"] == epochs


@pytest.mark.parametrize(
    ("gpu", "avx512_bf16", "amx", "precision"),
    [
        (None, True, False, "bf16"),
        (None, False, True, "bf16"),
        (None, False, False, "fp32"),
        (True, False, False, "bf16"),
        (False, True, True, "fp32"),
    ],
)
def test_half_precision_where_the_hardware_multiplies_in_it(monkeypatch, gpu, avx512_bf16, amx, precision):
    """``gpu`` is None, or whether it supports bf16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: gpu)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    for name in ("quickstart", "dino_demo"):
        cfg = composed(f"experiment={name}", "backbone=tiny", "data.path=x" if name == "dino_demo" else "seed=1")
        assert (cfg.precision, cfg.evaluation.precision) == (precision, precision)


def test_every_way_of_learning_from_documents_reads_the_encoder_as_its_folder_says():
    """TSDAE's default pooling differs, which harms an encoder that was trained with a mean."""
    race = to_container(compose_config("compare", ["race=documents", "race.texts=x", "output=y"]).race)
    runs = {arm: stages_composed(*race["common"], *overrides, "max_steps=1") for arm, overrides in race["arms"].items()}
    assert len(runs) == 7
    for arm, (run,) in runs.items():
        assert (arm, run.model.pooling, run.initial_weights_fraction) == (arm, None, 0.5)


# values of the machine, of a key of the run, and of one published corpus
NOT_OF_THE_CLASS = {"reranker": {"retriever"}, "text": {"_target_"}}


@pytest.mark.parametrize("group", ["model", "data"])
def test_a_choice_has_the_defaults_of_its_class(group):
    for name, kind in KINDS[group].items():
        overrides = [f"{group}={name}"]
        found = OmegaConf.to_container(composed(*overrides)[group], resolve=False)
        differing = {key for key, value in config_of(kind).items() if found[key] != value}
        assert differing == NOT_OF_THE_CLASS.get(name, set()), name
