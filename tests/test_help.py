"""--help of every command fits a terminal of 100 columns, lists all that can be chosen, and waits for nothing heavy."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import names
from cli.names import COMMANDS, CONSOLE

ROOT = Path(__file__).resolve().parent.parent
CHOICES = {  # command -> groups that it offers
    "train": ("model", "data", "experiment", "trainer", "logger"),
    "synthesise": ("recipe",),
    "compare": ("race",),
}
# In one process of its own for each: what it has imported is printed at the end
CODE = """
import runpy, sys
name, sys.argv = sys.argv[1], [sys.argv[1], "--help"]
try:
    runpy.run_path(name, run_name="__main__") if name.endswith(".py") else runpy.run_module(name, run_name="__main__")
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {"torch", "pytorch_lightning", "transformers", "datasets", "wandb"} & set(sys.modules)
sys.stderr.write(", ".join(sorted(heavy)))
"""


@functools.cache
def help_of(command: str) -> str:
    module = COMMANDS[command][0].removesuffix(".__main__")
    done = subprocess.run(
        [sys.executable, "-c", CODE, "train.py" if command == "train" else module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, ""), "it imports what takes seconds"
    return done.stdout


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "race"])
def test_help_is_readable_complete_and_light(command):
    lines = help_of(command).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 100] == []
    assert COMMANDS[command][1] in help_of(command)
    assert f"{CONSOLE} {command}" not in help_of(command)
    said = " ".join(help_of(command).split())
    for group in CHOICES.get(command, ()):
        known = sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))
        assert f" {group}: {', '.join(known)} " in said


SAID = re.compile(r"^ *(\w+): *(?:[^#\n]*?) # (.+)$", re.M)  # key: value # meaning


@pytest.mark.parametrize("choice", ["model=declutr", "data=text", "recipe=dino_x2"])
def test_help_says_what_each_key_of_a_choice_means(choice):
    group, _, name = choice.partition("=")
    words = ["-m", "synthesis", choice] if group == "recipe" else ["train.py", choice]
    done = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.split())
    files = [f"{group}/{name}.yaml", *{"recipe": ["recipe/dino.yaml", "synthesis.yaml"]}.get(group, ["train.yaml"])]
    for file in files:
        text, _, _ = (ROOT / "configs" / file).read_text(encoding="utf-8").partition("\nhydra:")
        for key, meaning in SAID.findall(text):
            assert re.search(rf"\b{key}[=.]\S.*? ?{re.escape(' '.join(meaning.split()))}", said), f"{file}: {key}"
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_race_has_a_page_of_its_own_on_the_console():
    code = "import sys; from cli.console import main; sys.argv[1:] = ['race', '--help']; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Train several objectives head to head")
    assert f"{CONSOLE} race race.texts=FOLDER" in done.stdout
    assert "race.name=head_to_head" in done.stdout
    assert max(map(len, done.stdout.partition("Keys and")[0].splitlines())) <= 100


def test_mining_is_a_command_of_two_words_on_the_console():
    code = "import sys; from cli.console import main; sys.argv[1:] = ['prepare-data', 'mine', '--help']; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{CONSOLE} prepare-data mine encoder=" in done.stdout


def test_the_console_calls_commands_by_its_own_names(monkeypatch):
    monkeypatch.setattr(names, "_used", ["export"])
    plain = "python -m export.embed x; python -m export y; torchrun --nproc-per-node 8 -m evaluation z; python train.py"
    launched = f"torchrun --nproc-per-node 8 --no-python {CONSOLE} evaluate z"
    assert names.as_used(plain) == f"{CONSOLE} embed x; {CONSOLE} export y; {launched}; {CONSOLE} train"
    assert names.name_used() == f"{CONSOLE} export"
