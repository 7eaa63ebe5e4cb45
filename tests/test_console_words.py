"""Invalid arguments: options that do not exist, and files and folders without a key."""

from pathlib import Path

import pytest

# They register the config classes
import contrastive_encoders.cli.compare
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.mine_negatives
import contrastive_encoders.training.compose  # noqa: F401
from contrastive_encoders.cli.main import COMMANDS, adapt_arguments, improve_arguments, main
from contrastive_encoders.cli.sweep import read_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.training.composition.override_checks import check_options
from tests.forks import run_command

ROOT = Path(__file__).resolve().parent.parent
WRONG = [  # config, arguments, the wrong argument, its hint
    ("train", ["--foo"], "--foo", "contrastive-encoders train --help "),
    ("train", ["model=pairs", "--lr", "1e-5"], "--lr", "Set model.lr=1e-5."),
    ("train", ["--batch-size=32"], "--batch-size=32", "Set batch_size=32."),
    ("train", ["--config-name"], "--config-name/-cn", ""),
    ("train", ["--cfg", "everything"], "--cfg/-c", ""),
    ("train", ["--conf", "x"], "--conf", ""),
    ("train", ["--run", "--multirun"], "--run --multirun", " --run "),
    ("mine-negatives", ["--help", "-x"], "-x", "contrastive-encoders mine-negatives --help "),
    ("evaluate", ["--encoder", "x"], "--encoder", "Set encoder=x."),
    ("compare", ["--output"], "--output", "Set output=VALUE."),
]


@pytest.mark.parametrize(("config", "arguments", "key", "hint"), WRONG)
def test_a_wrong_option_is_named_with_the_key_of_its_name(config, arguments, key, hint):
    with pytest.raises(InputError) as caught:
        check_options(config, arguments)
    assert (caught.value.key, hint in (caught.value.hint or "")) == (key, True)


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["a=1", "--multirun"], ["--config-dir", ".", "a=1"], ["--cfg", "job"], ["--info"]]
)
def test_hydras_options_are_accepted(arguments):
    check_options("train", arguments)


@pytest.mark.rotates
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_the_usage_of_a_parser(command, tmp_path):
    done = run_command(["-m", "contrastive_encoders", command, "texts.csv", "--no-such-option"], tmp_path)
    assert done.returncode == 2
    assert "usage:" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_sweep_names_an_option_without_its_value():
    with pytest.raises(InputError) as caught:
        read_arguments(["sweep.yaml", "output=out", "--config-dir"])
    assert (caught.value.key, caught.value.value) == ("--config-dir/-cd", None)


def test_improve_tells_tables_from_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("docs", "saved"):
        Path(folder).mkdir()
    for file in ("faq.csv", "faq.jsonl.gz", "manual.pdf", "notes.txt", "saved/state.json", "faq (final).csv"):
        Path(file).write_text("")
    recipe = ["hydra/help=improve", "experiment=improve"]
    for table in ("faq.csv", "faq.jsonl.gz", "saved", "missing.csv"):
        assert improve_arguments([table]) == [*recipe, f"data.path={table}"]
    for documents in ("docs", "manual.pdf", "notes.txt"):
        assert improve_arguments([documents, "max_steps=3"]) == [
            *recipe,
            "data=text",
            f"data.path={documents}",
            "max_steps=3",
        ]
    assert improve_arguments(["docs", "notes.txt"]) == [*recipe, "data=text", "data.path=[docs,notes.txt]"]
    assert improve_arguments(["docs", "data=sentences"]) == [*recipe, "data.path=docs", "data=sentences"]
    assert improve_arguments(["faq (final).csv"]) == [*recipe, "data.path='faq (final).csv'"]
    assert improve_arguments(["data.path=faq.csv"]) == [*recipe, "data.path=faq.csv"]
    options = ["--config-dir", "docs"]
    assert improve_arguments([*options, "faq.csv"]) == [*options, *recipe, "data.path=faq.csv"]
    assert improve_arguments([*options, "faq.csv", "seed=2"]) == [*options, *recipe, "data.path=faq.csv", "seed=2"]
    assert improve_arguments(["faq.csv", "seed=2", *options]) == [*recipe, "data.path=faq.csv", "seed=2", *options]


@pytest.mark.advice("contrastive_encoders.cli.main:_paths#1")
@pytest.mark.advice("contrastive_encoders.cli.main:_paths#2")
@pytest.mark.parametrize(
    ("arguments", "key"), [(improve_arguments, "data.path"), (adapt_arguments, "race.texts")], ids=["improve", "adapt"]
)
def test_a_command_of_paths_wants_one(arguments, key):
    with pytest.raises(InputError) as caught:
        arguments(["max_steps=3"])
    assert caught.value.key == key
    assert "--help" in arguments(["--help"])
    with pytest.raises(InputError) as caught:  # a key without its value
        arguments(["faq.csv", "estimate_only"])
    assert (caught.value.key, caught.value.value) == ("estimate_only", None)


@pytest.mark.parametrize(("argument", "err"), [("traim", " train.\n"), ("--bogus", "completion.\n")])
def test_an_unknown_command_is_refused_with_the_nearest(argument, err, capsys):
    with pytest.raises(SystemExit) as left:
        main([argument])
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith(err)
