"""The commands of README.md and docs/comparison.md compose; what they do is tested beside this file."""

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

import command_line  # noqa: F401  it registers the resolvers
from comparison.sweep import jobs_of, read_words
from preview.__main__ import read_words as preview_words

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/comparison.md")
COMMANDS = sorted(
    {
        line
        for page in PAGES
        for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
        for line in block.splitlines()
        if re.match(r"python -m (comparison|preview)", line)
    }
)


def test_the_commands_are_found():
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_composes(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[3:]
    if "-m preview" in command:
        assert preview_words(words).cfg.data is not None
    elif "comparison.sweep" in command:
        jobs = jobs_of(read_words(words))
        assert len(jobs) == len({job.folder for job in jobs}) > 1
        with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
            compose("train", ["output_dir=x", *jobs[0].words])
    else:
        with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
            cfg = compose("comparison", words)
        assert cfg.output
        assert cfg.runs or cfg.race
