"""Training from Python is the command line's, in the caller's process: the same run, without lasting side effects."""

import ast
import json
import logging
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import datasets
import pandas
import pytest
import torch

from contrastive_encoders import RunConfig, compose, run, train
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import UNSET
from contrastive_encoders.datamodules.data_configs import (
    MixtureDataConfig,
    QuestionDataConfig,
    SentenceDataConfig,
    TripletDataConfig,
)
from contrastive_encoders.encoders.model_configs import LoRAConfig, TinySizes
from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
from contrastive_encoders.encoders.objectives.pairs_config import PairsConfig
from contrastive_encoders.encoders.objectives.reranker_config import RerankerConfig
from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig
from contrastive_encoders.encoders.objectives.tsdae_config import TSDAEConfig
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.output_directory import LOCK
from contrastive_encoders.training import api
from contrastive_encoders.training.callbacks.progress import TrainingProgress
from contrastive_encoders.training.in_memory_rows import overrides_for_rows
from contrastive_encoders.training.resolve import resolve
from tests.forks import TRAIN, run_command

ROOT = Path(__file__).resolve().parents[2]
ROWS = [(f"What is thing number {n}?", f"Thing number {n} is a {'small ' * (n % 3)}boat.") for n in range(24)]
TINY = {
    "backbone": "tiny",
    "tiny": {"vocab_size": 300, "hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "max_length": 64},
    "batch_size": 8,
    "max_steps": 4,
    "model__mlp": False,
    "log_every_n_steps": 2,
}


def weights(folder):
    return load_checkpoint(folder / "checkpoints" / "best.ckpt")["state_dict"]


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    return train(ROWS, **TINY, output_dir=folder / "run", data__cache_dir=folder / "cache")


def test_the_result_equals_that_of_the_command_line(trained, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"anchor": "{anchor}", "positive": "{positive}"}}\n' for anchor, positive in ROWS))
    overrides = [f"tiny.{key}={value}" for key, value in TINY["tiny"].items()] + ["backbone=tiny", "batch_size=8"]
    overrides += ["model=simcse", "data=triplets", f"data.path={rows}", "model.mlp=false", "max_steps=4", "devices=1"]
    done = run_command([TRAIN, *overrides, "log_every_n_steps=2", f"output_dir={tmp_path / 'run'}"])
    assert done.returncode == 0, done.stderr
    assert same(weights(trained.directory), weights(tmp_path / "run"))
    lines = [line for line in done.stderr.splitlines() if line.startswith(("objective", "batch", "steps"))]
    assert [" ".join([line.split()[0], *re.findall(r"\d+|simcse", line)]) for line in lines] == [
        "objective simcse",
        "batch 8 7",
        "steps 4 3",
    ]
    assert [line.partition("  ")[0] for line in done.stderr.splitlines() if "loss" in line] == ["step 2/4", "step 4/4"]


def test_the_encoder_and_the_results_come_back_and_a_second_call_trains_nothing(trained, caplog):
    assert trained.results["cost"]["steps"] == 4
    assert trained.encoder.embed(["a boat", "a thing"]).shape == (2, 32)
    before = (trained.directory / "results.json").stat().st_mtime_ns
    caplog.set_level("INFO", logger="contrastive_encoders")
    again = train(ROWS, **TINY, output_dir=trained.directory, data__cache_dir=trained.directory.parent / "cache")
    assert (again.directory / "results.json").stat().st_mtime_ns == before
    assert "overwrite=true" in caplog.text
    torch.testing.assert_close(again.encoder.embed(["a boat"]), trained.encoder.embed(["a boat"]), rtol=0, atol=0)


def test_interrupted_it_has_saved_its_state_goes_on_and_leaves_the_process_as_it_was(trained, tmp_path, monkeypatch):
    def interrupt(progress, trainer, *_):
        if trainer.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    def surroundings():
        loggers = [logging.getLogger(name) for name in ("", "train", "training", "pytorch_lightning")]
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        return handlers, [(one.level, one.handlers[:]) for one in loggers], torch.random.get_rng_state().tolist()

    before = surroundings()
    given = {**TINY, "output_dir": tmp_path / "run", "data__cache_dir": tmp_path / "cache"}
    with monkeypatch.context() as patched:
        patched.setattr(TrainingProgress, "on_train_batch_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(ROWS, **given)
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 2
    assert surroundings() == before
    assert same(weights(train(ROWS, **given).directory), weights(trained.directory))
    assert surroundings() == before
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_run_is_a_value_composed_from_words_or_made_of_settings_and_trains(trained, tmp_path):
    rows = next((trained.directory.parent / "cache").glob("rows-*.jsonl"))
    overrides = [f"tiny.{key}={value}" for key, value in TINY["tiny"].items()]
    overrides += ["model=simcse", "data=triplets", f"data.path={rows}", "backbone=tiny", "batch_size=8", "max_steps=9"]
    composed = compose([*overrides, "log_every_n_steps=2", "quiet=true"])
    composed = replace(composed, max_steps=4, model=replace(composed.model, mlp=False), output_dir=str(tmp_path / "a"))
    assert run(composed)["cost"]["steps"] == 4
    made = RunConfig(
        model=SimCSEConfig(pooling="cls", mlp=False),
        data=TripletDataConfig(path=str(rows)),
        tiny=TinySizes(**TINY["tiny"]),
        **{key: TINY[key] for key in ("backbone", "batch_size", "max_steps", "log_every_n_steps")},
        output_dir=str(tmp_path / "b"),
    )
    run(made)
    for folder in "ab":
        assert same(weights(tmp_path / folder), weights(trained.directory))
    with pytest.raises(InputError, match=r"^devices=2: "):
        run(replace(made, devices=2))
    with pytest.raises(InputError, match=r"^model\.temperature=0: "):
        run(replace(made, model=replace(made.model, temperature=0), output_dir=str(tmp_path / "c")))
    with pytest.raises(InputError) as refused:
        run(replace(made, batch_size=None, output_dir=str(tmp_path / "c")))
    assert (refused.value.key, refused.value.value) == ("batch_size", None)
    assert not (tmp_path / "c").exists()


def test_stages_are_runs(trained, tmp_path):
    rows = next((trained.directory.parent / "cache").glob("rows-*.jsonl"))
    plain = {key: TINY[key] for key in ("backbone", "batch_size", "log_every_n_steps")}
    one = RunConfig(
        model=SimCSEConfig(pooling="cls", mlp=False),
        data=TripletDataConfig(path=str(rows)),
        tiny=TinySizes(**TINY["tiny"]),
        max_steps=4,
        **plain,
    )
    results = run(
        RunConfig(stages={"first": one, "second": replace(one, max_steps=2)}, output_dir=str(tmp_path / "run"))
    )
    assert [stage["cost"]["steps"] for stage in results["stages"].values()] == [4, 2]
    assert same(weights(tmp_path / "run" / "stage-first"), weights(trained.directory))


WRONG = [  # arguments of a command line, equivalent to keys
    (["model=simcse", "data=triplets", "data.path=/nowhere.csv", "batchsize=3"], {"batchsize": 3}),
    (["model=simcse", "data=triplets", "data.path=/nowhere.csv"], {}),
    (["model=simcs", "data=triplets", "data.path=/nowhere.csv"], {"model": "simcs"}),
    (["model=simcse", "data=triplets", "data.path=/nowhere.csv", "max_steps=many"], {"max_steps": "many"}),
    (["model=simcse", "data=triplets", "data.path=/nowhere.csv", "model.lr=-1"], {"model__lr": -1}),
    (["model=declutr", "data=triplets", "data.path=/nowhere.csv"], {"model": "declutr"}),
]


@pytest.mark.parametrize(("overrides", "keys"), WRONG, ids=lambda value: str(value)[-40:])
def test_python_raises_the_errors_of_the_command_line(overrides, keys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done, left = run_command([TRAIN, *overrides], tmp_path), []
    assert done.returncode == 2
    for _ in range(2):
        left.append({path.name for path in tmp_path.rglob("*.*")} - {LOCK, "hydra.yaml", "overrides.yaml"})
        shutil.rmtree(tmp_path / "outputs", ignore_errors=True)
        with pytest.raises(InputError) as raised:
            train(**{"model": "simcse", "data": "triplets", "data__path": "/nowhere.csv"} | keys)
    said = done.stderr.strip().splitlines()[-1]
    differs = {*keys} == {"batchsize"} and "batch_size" in str(raised.value)
    assert differs or said == f"contrastive-encoders train: {raised.value}"
    assert left[0] == left[1], "remaining files"


class Composed(Exception):
    """The run that `train` is about to start."""


@pytest.fixture
def composed_by_train(monkeypatch):
    """Run ``train`` up to the composed run."""

    def stop(asked):
        raise Composed(asked)

    monkeypatch.setattr(api, "_train", stop)

    def compose_only(*args, **keys):
        with pytest.raises(Composed) as raised:
            train(*args, **keys)
        return raised.value.args[0]

    return compose_only


PATH = {"path": "/nowhere.jsonl"}
CONFIGS = [  # configs and keys -> the equivalent arguments of a command line
    ({"model": SimCSEConfig(), "data": TripletDataConfig(**PATH)}, "model=simcse data=triplets"),
    (
        {"model": SimCSEConfig(lr=2e-5, mlp_only_train=False), "data": QuestionDataConfig(**PATH, fraction=0.5)},
        "model=simcse model.lr=2e-5 model.mlp_only_train=false data=qa data.fraction=0.5",
    ),
    ({"model": GenSEConfig(lr=1e-4), "data": TripletDataConfig(**PATH)}, "model=gense model.lr=1e-4 data=triplets"),
    ({"model": TSDAEConfig(), "data": SentenceDataConfig(**PATH)}, "model=tsdae data=sentences"),
    ({"model": RerankerConfig(rerank_top=9), "data": "triplets"}, "model=reranker model.rerank_top=9 data=triplets"),
    (
        {"model": PairsConfig(lora=LoRAConfig(rank=4)), "data": TripletDataConfig(**PATH, max_length=None)},
        "model=pairs model.lora.rank=4 data=triplets data.max_length=null",
    ),
    (
        {
            "model": PairsConfig(lr=1.0),
            "model__lr": 2e-5,
            "data": TripletDataConfig(**PATH),
            "tiny": TinySizes(heads=1),
        },
        "model=pairs model.lr=2e-5 data=triplets tiny.heads=1",
    ),
    (
        {
            "model": "pairs",
            "data": MixtureDataConfig(parts={"a": TripletDataConfig(**PATH), "b": QuestionDataConfig(**PATH)}),
        },
        "model=pairs data=mixture data.parts.a.data=triplets data.parts.b.data=qa data.parts.b.path=/nowhere.jsonl "
        "data.parts.a.path=/nowhere.jsonl",
    ),
]


@pytest.mark.parametrize(("keys", "overrides"), CONFIGS, ids=[overrides for _, overrides in CONFIGS])
def test_a_config_is_its_choice_with_its_changed_fields(composed_by_train, keys, overrides):
    paths = [] if "parts" in overrides else ["data.path=/nowhere.jsonl"]
    keys = {**keys, **({"data__path": "/nowhere.jsonl"} if keys["data"] == "triplets" else {})}
    by_configs = composed_by_train(**keys, backbone="tiny")
    by_overrides = compose([*overrides.split(), *paths, "backbone=tiny"])
    assert (by_configs.model, by_configs.data) == (by_overrides.model, by_overrides.data)
    assert resolve(by_configs).identity == resolve(by_overrides).identity


@pytest.mark.advice("contrastive_encoders.training.api:_choice_of")
def test_a_class_in_place_of_a_config_is_answered_with_its_value(composed_by_train):
    with pytest.raises(InputError) as raised:
        train(ROWS, model=PairsConfig)
    assert raised.value.hint.endswith("model=PairsConfig().")
    assert type(composed_by_train(model=PairsConfig(), data=TripletDataConfig(**PATH)).model) is PairsConfig


def test_rows_go_with_a_config_of_their_data(composed_by_train, tmp_path):
    data = TripletDataConfig(fraction=0.5, cache_dir=str(tmp_path))
    asked = composed_by_train(ROWS, data=data, backbone="tiny")
    assert (asked.data.fraction, type(asked.model)) == (0.5, SimCSEConfig)
    assert Path(asked.data.path).read_text(encoding="utf-8").startswith('{"anchor": ')
    assert TripletDataConfig().path is UNSET


BAD_CONFIGS = [  # keys -> fields of the error
    ({"model": SimCSEConfig(lr="fast")}, {"key": "model.lr", "value": "fast"}),
    ({"model": SimCSEConfig(bias_correction=1)}, {"key": "model.bias_correction", "value": 1}),
    ({"model": SimCSEConfig(temperature=0)}, {"key": "model.temperature", "value": 0}),
    ({"model": SimCSEConfig(lora=3)}, {"key": "model.lora", "value": 3}),
    ({"model": SimCSEConfig(lora=LoRAConfig(rank=0))}, {"key": "model.lora.rank", "value": 0}),
    ({"model": SimCSEConfig}, {"key": "model", "value": "SimCSEConfig"}),
    ({"model": TripletDataConfig()}, {"key": "model", "value": "TripletDataConfig"}),
    ({"data": SimCSEConfig()}, {"key": "data", "value": "SimCSEConfig"}),
    ({"data": TripletDataConfig(fraction=2)}, {"key": "data.fraction", "value": 2}),
    ({"data": TripletDataConfig(path="x.csv")}, {"key": "data.path", "value": "x.csv"}),
    ({"model": PairsConfig(lr=1e-5), "experiment": "improve"}, {"key": "model", "hint": "Set model__lr=1e-05."}),
    ({"data": TripletDataConfig(), "overrides": ["experiment=improve"]}, {"key": "data"}),
    ({"model": "simcze"}, {"key": "model", "value": "simcze"}),
    ({"data": "tripletz"}, {"key": "data", "value": "tripletz"}),
    ({"experiment": "improove"}, {"key": "experiment", "value": "improove"}),
    ({"overrides": "max_steps=2"}, {"key": "overrides", "value": "max_steps=2"}),
    ({"overrides": [3]}, {"key": "overrides", "value": [3]}),
    ({"overrides": ["max_steps"]}, {"key": "max_steps", "expected": "KEY=VALUE"}),
    ({"backbone": None}, {"key": "backbone", "value": None, "hint": "Set backbone=tiny."}),
    ({"backbone": 1j}, {"key": "backbone", "value": "complex"}),
    ({"output_dir": "${nothing}"}, {"key": "output_dir"}),
]


@pytest.mark.parametrize(("keys", "fields"), BAD_CONFIGS, ids=lambda value: str(value)[:40])
def test_error_of_a_bad_config_names_its_key(keys, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        train(ROWS, **TINY | {"data__cache_dir": tmp_path / "cache"} | keys)
    assert {name: getattr(raised.value, name) for name in fields} == fields
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("key", "typo", "nearest"), [("model", "simcze", "simcse"), ("experiment", "improove", "improve")]
)
def test_error_of_a_misspelled_choice_names_the_nearest(key, typo, nearest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        train(ROWS, **{key: typo})
    assert raised.value.hint.endswith(f" {nearest}.")


BAD_RUNS = [  # run -> fields of the error
    ("simcse", {"key": "run", "value": "str"}),
    (SimCSEConfig(), {"key": "run", "value": "SimCSEConfig"}),
    (RunConfig(model="simcse"), {"key": "model", "value": "simcse"}),
    (RunConfig(model=SimCSEConfig), {"key": "model", "value": "SimCSEConfig"}),
    (RunConfig(model=SimCSEConfig(), data=ROWS), {"key": "data", "value": "list"}),
    (RunConfig(stages=[RunConfig()]), {"key": "stages", "value": "list"}),
    (RunConfig(stages={"nli": SimCSEConfig()}), {"key": "stages.nli", "value": "SimCSEConfig"}),
    (RunConfig(stages={"nli": RunConfig(data="qa")}), {"key": "data", "value": "qa"}),
    (
        RunConfig(model=SimCSEConfig(), data=SentenceDataConfig(path="x.txt"), batch_size=4),
        {"key": "backbone", "value": None},
    ),
]


@pytest.mark.parametrize(("config", "fields"), BAD_RUNS, ids=lambda value: str(value)[:40])
def test_error_of_a_bad_run_names_its_key(config, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        run(config)
    assert {name: getattr(raised.value, name) for name in fields} == fields
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        ("model=simcse", {"key": "overrides", "value": "model=simcse"}),
        (5, {"key": "overrides", "value": 5}),
        ([SimCSEConfig], {"key": "overrides"}),
        (["model=simcze"], {"key": "model", "value": "simcze"}),
        (["model=simcse", "model.lrr=1"], {"key": "model.lrr", "value": "1"}),
        (["model"], {"key": "model", "expected": "KEY=VALUE"}),
    ],
    ids=str,
)
def test_error_of_bad_overrides_names_their_key(overrides, fields):
    with pytest.raises(InputError) as raised:
        compose(overrides)
    assert {name: getattr(raised.value, name) for name in fields} == fields


def test_a_run_directory_may_be_a_path_and_have_brackets_in_its_name(tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text, _ in ROWS), encoding="utf-8")
    folder = tmp_path / "a [b] c"
    run(
        RunConfig(
            model=SimCSEConfig(mlp=False),
            data=SentenceDataConfig(path=str(texts), cache_dir=str(tmp_path / "cache")),
            backbone="tiny",
            tiny=TinySizes(**TINY["tiny"]),
            batch_size=8,
            max_steps=2,
            output_dir=folder,
        )
    )
    assert (folder / "results.json").is_file()
    assert str(folder) in capsys.readouterr().out.replace("\n", "")


def test_the_parts_of_a_mixture_may_be_mappings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = {name: {"data": "triplets", "path": f"/nowhere/{name}.csv"} for name in "12"}
    with pytest.raises(InputError) as refused:
        train(**TINY, model="simcse", data="mixture", data__parts=parts, data__weights={1: 2, "2": 1})
    assert str(refused.value).startswith("data.parts.1 ")
    assert "/nowhere" in str(refused.value)


PAIR, SCORED = ("a", "b"), ("a", "b", 0.5)
GIVEN = [  # rows, given keys -> arguments, first line of the file
    (["a", "c"], {}, "model=simcse data=sentences", {"text": "a"}),
    ([PAIR], {}, "model=simcse data=triplets", {"anchor": "a", "positive": "b"}),
    ([["a", "b", "c"]], {}, "model=simcse data=triplets", {"anchor": "a", "positive": "b", "negative": "c"}),
    (
        [("a", "b", "c", "d")],
        {"model": "gense"},
        "data=triplets",
        {"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"},
    ),
    ([SCORED], {}, "model=sroberta data=dino data.postprocess=off", {"sentence1": "a", "sentence2": "b", "score": 0.5}),
    ([("a", "b", 2)], {"data": "nli", "model": "sbert_nli"}, "", {"premise": "a", "hypothesis": "b", "label": 2.0}),
    ([{"q": "a", "doc": "b"}], {}, "model=simcse data=triplets", {"anchor": "a", "positive": "b"}),
    (
        [{"q": "a", "doc": "b", "hard_neg": "c"}],
        {},
        "model=simcse data=triplets",
        {"anchor": "a", "positive": "b", "negative": "c"},
    ),
    (
        [{"source": "x", "doc": "b", "q": "a"}],
        {"data.columns": "['q','doc']"},
        "model=simcse data=triplets",
        {"q": "a", "doc": "b"},
    ),
    ([{"answer": "b", "question": "a"}], {}, "model=simcse data=triplets", {"anchor": "a", "positive": "b"}),
    ([{"answer": "b", "question": "a"}], {"experiment": "improve"}, "", {"anchor": "a", "positive": "b"}),
    (
        [{"question": "a", "answer": "b", "n": 1}],
        {"data": "qa"},
        "model=pairs",
        {"question": "a", "answer": "b", "n": 1},
    ),
    ([PAIR], {"experiment": "simcse_sup"}, "", {"anchor": "a", "positive": "b"}),
    (
        datasets.Dataset.from_dict({"x": ["a"], "y": ["b"], "score": [1.0]}),
        {},
        "model=sroberta data=dino data.postprocess=off",
        {"sentence1": "a", "sentence2": "b", "score": 1.0},
    ),
]


@pytest.mark.parametrize(("rows", "given", "overrides", "line"), GIVEN, ids=lambda value: str(value)[:30])
def test_columns_of_rows_determine_the_data(rows, given, overrides, line, tmp_path):
    chosen, keys, _ = overrides_for_rows(rows, given, tmp_path)
    path = keys["data.path"]
    assert {f"{name}={value}" for name, value in {**chosen, **keys}.items()} - {f"data.path={path}"} == set(
        overrides.split()
    )
    assert json.loads(Path(path).read_text(encoding="utf-8").splitlines()[0]) == line
    assert overrides_for_rows(rows, given, tmp_path)[:2] == (chosen, keys)
    assert [one.name for one in tmp_path.iterdir()] == [Path(path).name]


BAD_ROWS = [  # rows, keys -> fields of the error
    ([], {}, {"key": "rows", "value": None}),
    ([None, ("a", ""), ("b", float("nan"))], {}, {"key": "rows", "value": None}),
    ("pairs.csv", {}, {"key": "rows", "value": "pairs.csv"}),
    (5, {}, {"key": "rows", "value": "5"}),
    ({"train": [PAIR]}, {}, {"key": "rows", "value": None, "hint": "Pass rows[SPLIT]."}),
    ([("a", 1, "b")], {}, {"location": "rows[0]"}),
    ([("a", "b", b"c")], {}, {"location": "rows[0]"}),
    ([{"id": 7, "q": "a", "d": "b"}], {}, {"location": "rows[0]", "key": "id", "value": "7"}),
    ([{"q": "a", "d": "b"}] * 2 + [{"q": "a", "d": 3}], {}, {"location": "rows[2]", "key": "d", "value": "3"}),
    (
        [{"q": "a", "d": "b"}],
        {"data__columns": ["q", "doc"]},
        {"location": "rows[0]", "key": "doc"},
    ),
    (
        [{"question": "a", "answer": "b", "n": 1}] * 2 + [{"question": "a", "answer": None, "n": 1}],
        {"data": "qa", "data__on_error": "fail"},
        {"location": "rows[2]", "key": "answer"},
    ),
    (
        pandas.DataFrame({"question": ["a", None], "answer": ["b", "c"]}),
        {"data__on_error": "fail"},
        {"location": "rows[1]", "key": "question"},
    ),
    (pandas.DataFrame([["a", "b"]], columns=["q", "q"]), {}, {"key": "rows", "value": ["q", "q"]}),
    ([PAIR], {"data": [PAIR]}, {"key": "data", "value": "list"}),
]


@pytest.mark.parametrize(("rows", "keys", "fields"), BAD_ROWS, ids=lambda value: str(value)[:40])
def test_error_of_bad_rows_names_row_and_column(rows, keys, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        train(rows, **keys, data__cache_dir=tmp_path / "cache") if "data" not in keys else train(rows, **keys)
    assert {name: getattr(caught.value, name) for name in fields} == fields
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    assert all(str(name) in caught.value.hint for name in first), "the columns are listed"


def test_error_about_a_row_names_its_index_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [("a", "b", 0.5), None, ("c", "d", 1.0), ("e", ""), ("f", "g", 3.0)]
    with pytest.raises(InputError) as caught:
        train(rows, backbone="tiny", batch_size=2, max_steps=1, data__cache_dir="cache")
    assert caught.value.location == "rows[4]"
    assert str(caught.value).startswith("rows[4]: ")
    assert not any("cache" in str(value) for value in (caught.value, *vars(caught.value).values()))


@pytest.mark.parametrize(
    ("rows", "keys", "fields"),
    [
        ([PAIR, ("a",)], {}, {"location": "rows[1]"}),
        ([PAIR], {"data": "nli"}, {"location": "rows[0]"}),
        ([PAIR], {"devices": 2}, {"key": "devices", "value": 2}),
        (
            [{"q": "a", "d": "b"}, {"d": "b", "x": "a"}],
            {},
            {"location": "rows[1]", "key": None},
        ),
        ([{"q": "a", "d": "b", "source": "web"}], {}, {"key": "rows", "value": None}),
        ([{"q": "a", "d": "b"}], {"data__columns": "q"}, {"key": "data.columns", "value": "q"}),
        ([{"q": "a", "d": "b"}], {"overrides": ["data.columns=[q"]}, {"key": "data.columns", "value": "[q"}),
        (None, {"overrides": "model=simcse"}, {"key": "overrides", "value": "model=simcse"}),
        (None, {"config": {"max_steps": 1}}, {"key": "config.max_steps"}),
        (None, {"max_steps": 1}, {"key": "rows", "value": None}),
    ],
)
def test_the_error_of_bad_rows_or_keys_names_the_fault(rows, keys, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = {} if rows is None else {"data__cache_dir": tmp_path / "cache"}
    with pytest.raises(InputError) as refused:
        train(rows, **keys, **cache)
    assert {name: getattr(refused.value, name) for name in fields} == fields


QUESTIONS = [(f"How many boats has port {n}?", f"Port {n} has {n} boats.") for n in range(20)]
EMPTY = {3: None, 5: float("nan"), 9: pandas.NA, 11: "  "}  # row -> its answer


def table():
    answers = [EMPTY.get(place, answer) for place, (_, answer) in enumerate(QUESTIONS)]
    return pandas.DataFrame({"question": [question for question, _ in QUESTIONS], "answer": answers, "n": range(20)})


def dataset():  # Arrow has only null
    return datasets.Dataset.from_pandas(table().where(table().notna(), None))


FORMS = {"DataFrame": table, "list": lambda: table().to_dict("records"), "Dataset": dataset}


@pytest.mark.rotates
@pytest.mark.parametrize(("form", "name"), [("DataFrame", "rows"), ("list", "data"), ("Dataset", "data")])
def test_tables_are_train_on_without_their_rows_with_empty_cells(form, name, tmp_path, caplog):
    rows = FORMS[form]()
    cache = {"data__cache_dir": tmp_path / "cache"}
    plain = {key: value for key, value in TINY.items() if key != "model__mlp"}
    found = train(**{name: rows}, experiment="improve", **plain, precision="fp32", output_dir=tmp_path / "run", **cache)
    (kept,) = (tmp_path / "cache").glob("rows-*.jsonl")
    lines = [tuple(json.loads(line).values()) for line in kept.read_text().splitlines()]
    assert lines == [row for place, row in enumerate(QUESTIONS) if place not in EMPTY]
    assert "4 of 20" in caplog.text
    assert found.encoder.embed(["a boat"]).shape == (1, 32)


def test_half_of_a_surrogate_pair_changes_no_other_row(tmp_path):
    rows = [("Wo hält er?", "In Köln."), ("cut \ud83d", "b"), ("an emoji \U0001f600", "c")]
    _, keys, _ = overrides_for_rows(rows, {}, tmp_path)
    lines = Path(keys["data.path"]).read_bytes().decode("utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == rows
    with pytest.raises(InputError, match="surrogate"):
        train(rows, **TINY | {"batch_size": 2}, output_dir=str(tmp_path / "run"), data__cache_dir=str(tmp_path))


def test_rows_are_kept_where_the_data_are_and_columns_may_come_in_any_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "contrastive_encoders.training.api.compose", lambda overrides, chosen, keys: pytest.fail(f"{chosen} {keys}")
    )
    rows = [{"q": "a", "d": "b"}, {"d": "d", "q": "c"}]
    with pytest.raises(pytest.fail.Exception, match=r"'data': 'triplets', 'model': 'simcse'.*data\.path"):
        train(rows, data={"cache_dir": tmp_path / "a folder"})
    assert "rows: anchor=q, positive=d\n" in capsys.readouterr().err
    (kept,) = (tmp_path / "a folder").iterdir()
    (tmp_path / "file").touch()
    assert kept.stat().st_mode == (tmp_path / "file").stat().st_mode, "others may read a cache that is shared"
    assert [list(json.loads(line).values()) for line in kept.read_text().splitlines()] == [["a", "b"], ["c", "d"]]
    with pytest.raises(InputError) as refused:
        train(rows, data__cache_dir=tmp_path / "file")
    assert str(tmp_path / "file") in str(refused.value)


@pytest.mark.rotates
def test_the_cells_of_the_notebook_run_one_after_the_other(minilm_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTRASTIVE_ENCODERS_CACHE", str(tmp_path / "cache"))
    cells = json.loads((ROOT / "docs" / "python.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    values = [_value_of(one, names) for one in code]
    assert values[0][0] > 200
    assert "queries" in values[1]
    assert "statistics median" in values[2]
    assert {"encoder", "results.json", "curve.png"} <= set(values[3])


def _value_of(cell: str, names: dict[str, object]) -> object:
    """Return what a notebook shows under a cell: the value of its last line, if that is an expression."""
    tree = ast.parse(cell)
    *first, last = tree.body
    if not isinstance(last, ast.Expr):
        exec(cell, names)
        return None
    exec(compile(ast.Module(first, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("name", ["Frage", 'What\'s "it": [a], b', "..."])
def test_a_message_about_rows_names_arguments_of_the_function(name, tmp_path, monkeypatch):
    """The columns of the message are accepted as they are printed, if no shell would need several quotes for them."""
    monkeypatch.chdir(tmp_path)
    rows = [{name: f"Was ist {number}?", "Antwort (Support)": f"{number}"} for number in range(8)]
    keys = {"data": "qa", "backbone": "tiny", "batch_size": 4, "max_steps": 1, "data__cache_dir": "cache"}
    with pytest.raises(InputError) as caught:
        train(rows, **keys)
    if name != "Frage":
        return
    assert "data.columns" not in str(caught.value)
    [columns] = re.findall(r"data__columns=(\[.*?\])", caught.value.hint)
    assert train(rows, **keys, data__columns=json.loads(columns)).results["cost"]["steps"] == 1
