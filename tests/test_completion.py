"""Completion of the command line: the script in bash itself, and the keys that Hydra composes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from contrastive_encoders.cli.completion import candidates
from contrastive_encoders.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
BASH = """
contrastive-encoders() { "$PYTHON" -m contrastive_encoders "$@"; }
eval "$(contrastive-encoders completion bash)"
[[ $(complete -p contrastive-encoders) =~ -F\\ ([^ ]+) ]]
COMP_LINE=$1 COMP_POINT=${#1}
set -u
${BASH_REMATCH[1]}
printf '%s\\n' "${COMPREPLY[@]}"
"""


def in_bash(line, breaks=None):
    """Return bash's completions of the last word, with its default or another COMP_WORDBREAKS."""
    script = BASH if breaks is None else f"COMP_WORDBREAKS='{breaks}'\n{BASH}"
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script, "bash", line], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def files(group, beginning=""):
    return sorted(path.stem for path in (ROOT / "configs" / group).glob(f"{beginning}*.yaml"))


@pytest.mark.rotates
@pytest.mark.advice("contrastive_encoders.cli.completion:BASH")
def test_bash_completes_commands_choices_and_keys():
    assert in_bash("contrastive-encoders e") == ["embed", "evaluate", "export"]
    assert in_bash("contrastive-encoders train model=s") == files("model", "s")  # what is after the sign, as bash reads
    assert in_bash("contrastive-encoders train model=s", " ") == [f"model={name}" for name in files("model", "s")]
    assert "model.temperature=" in in_bash("/usr/bin/contrastive-encoders train  model=simcse model.te")
    assert in_bash("contrastive-encoders train data.path=do") == []  # files, by bash's own completion
    for quoted in ("my\\ f", "'my f", '"my f'):
        assert in_bash(f"contrastive-encoders improve {quoted}") == []
    assert in_bash("contrastive-encoders improve my\\ file.csv max_st") == ["max_steps="]


@pytest.mark.parametrize(
    ("command", "config", "arguments"),
    [
        ("train", "train", ["model=simcse", "data=triplets", "trainer=ddp"]),
        ("improve", "train", []),
        ("generate", "generate", ["recipe=gense"]),
        ("race", "compare", ["race=head_to_head"]),
        ("evaluate", "evaluate", []),
        ("mine-negatives", "mine-negatives", []),
    ],
)
def test_candidates_are_the_keys_that_hydra_composes(command, config, arguments):
    found = [
        key.removesuffix("=")
        for key in candidates(f"contrastive-encoders {' '.join([command, *arguments])} ", COMMANDS)
    ]
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose(config, overrides=arguments)
    groups = {key for key in found if (ROOT / "configs" / key).is_dir()}
    assert {"train": {"model", "data", "experiment"}, "generate": {"recipe"}, "compare": {"race"}}.get(
        config, set()
    ) <= groups
    composed = {key for key in names(OmegaConf.to_container(cfg, resolve=False)) if not key.startswith("hydra")}
    assert {*found} - groups <= composed
    # The texts of prompts, which are not typed, are left out
    others = {key for key in composed - groups if not any(f"{one}.".startswith(f"{key}.") for one in found)}
    assert {
        key for key in others if not any(key.startswith(f"{one}.") for one in (*found, "prompts", "race.meanings"))
    } <= {
        "prompts",
        "race.meanings",
    }


def names(entries, prefix=""):
    """Return the dotted names of all keys of a config."""
    for key, value in entries.items():
        if not key.startswith("_"):
            yield f"{prefix}{key}"
            yield from names(value, f"{prefix}{key}.") if isinstance(value, dict) else ()


def test_commands_are_completed_without_heavy_imports():
    code = "import sys; from contrastive_encoders.cli.main import main\n"
    code += "main(['completion', 'candidates', 'contrastive-encoders train model=si'])\n"
    code += "assert not {'torch', 'hydra', 'omegaconf'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "model=simcse\n", "")


@pytest.mark.parametrize(
    ("arguments", "status"), [(["tcsh"], 2), ([], 2), (["--help"], 0), (["zsh"], 0), (["fish"], 0)]
)
def test_a_script_for_each_shell_and_no_other(arguments, status):
    done = subprocess.run(
        [sys.executable, "-m", "contrastive_encoders", "completion", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, bool(done.stdout), bool(done.stderr)) == (status, status == 0, status != 0)
