"""Every old name of a key or choice is refused with its new name, which exists."""

import functools
import re
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

# They register the config classes
import contrastive_encoders.cli.embed
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.generate  # noqa: F401
from contrastive_encoders.cli.compare import plain
from contrastive_encoders.cli.download_data import read_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import unknown_key
from contrastive_encoders.core.renamed_keys import RENAMED_CHOICES, RENAMED_KEYS, renamed_choice
from contrastive_encoders.core.runtime.exit_codes import exit_status_of
from contrastive_encoders.evaluation.evaluate import evaluate
from contrastive_encoders.training.api import train
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.config_errors import explained
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import known_keys
from contrastive_encoders.training.composition.config_store import compose_config
from tests.torture.jobs import jobs

CONTEXTS = {  # command -> arguments of which the first that has a key is used
    "train": [
        ["model=declutr", "data=text"],
        ["model=gense", "data=qa"],
        ["model=pairs", "data=sentences"],
        ["model=gense_generator", "data=dino"],
    ],
    "evaluate": [[]],
    "generate": [["recipe=queries"], ["recipe=gense"], ["recipe=gense_back_translation"]],
    "compare": [["race=documents"]],
    "embed": [[]],
}


@functools.cache
def keys_of_context(command, at):
    return frozenset(known_keys(command, CONTEXTS[command][at]))


ENTRIES = [(command, old, new) for command, table in RENAMED_KEYS.items() for old, new in table.items()]


@pytest.mark.parametrize(("command", "old", "new"), ENTRIES, ids=[f"{one[0]}-{one[1]}" for one in ENTRIES])
@pytest.mark.advice("contrastive_encoders.core.renamed_keys:renamed_key")
def test_an_old_key_is_refused_with_its_new_name(command, old, new):
    if command == "download-data":
        with pytest.raises(InputError) as refused:
            read_arguments(["qa", f"{old}=1"])
        error = refused.value
        read_arguments(["qa", f"{new}=1"])
    else:
        at = next(at for at in range(len(CONTEXTS[command])) if new in keys_of_context(command, at))
        error = unknown_key(old, "1", keys_of_context(command, at), "")
    assert (error.key, error.value, error.hint) == (old, "1", f"Set {new}=1.")
    status, message = exit_status_of(error, error)
    assert status == 2
    assert message.endswith(f" Set {new}=1.")
    assert str(error) == message


@pytest.mark.parametrize("command", CONTEXTS)
def test_a_command_with_an_old_key_exits_with_2(command):
    known = keys_of_context(command, 0)
    old, new = next(pair for pair in RENAMED_KEYS[command].items() if pair[1] in known)
    overrides = [*CONTEXTS[command][0], f"{old}=1"]
    with pytest.raises((HydraException, OmegaConfBaseException)) as refused:
        compose_config(command, overrides)
    status, message = exit_status_of(refused.value, explained(refused.value, command, overrides))
    assert status == 2
    assert re.fullmatch(rf"{re.escape(old)} .* {re.escape(new)}\. Set {re.escape(new)}=1\.", message)


@pytest.mark.parametrize(
    ("group", "old", "new"), [(group, *pair) for group, table in RENAMED_CHOICES.items() for pair in table.items()]
)
@pytest.mark.advice("contrastive_encoders.core.renamed_keys:renamed_choice")
def test_an_old_choice_is_refused_with_its_new_name(group, old, new):
    command = {"experiment": "train", "race": "compare"}[group]
    with pytest.raises(HydraException) as refused:
        compose_config(command, [f"{group}={old}"])
    error = renamed_choice(group, old)
    assert str(explained(refused.value, command, [f"{group}={old}"])) == str(error)
    assert (error.key, error.value, error.hint) == (group, old, f"Set {group}={new}.")
    assert new in choices(group)


PAIRS = ["model=pairs", "data=qa", "data.path=x"]
MIXTURE = ["model=pairs", "data=mixture", "data.parts.a.data=qa", "data.parts.a.path=x"]
STAGES = ["experiment=gense", "stages.open.data.path=x", "stages.nli.data.path=x"]


@pytest.mark.parametrize(
    ("overrides", "old", "new"),
    [
        (PAIRS, "cut_fraction", "model.warmup_ratio"),
        (PAIRS, "+mirror", "remote_output_dir"),
        (MIXTURE, "data.parts.a.neighbours", "data.parts.a.neighbor_group_size"),
        (STAGES, "stages.nli.training_length", "stages.nli.train_max_length"),
        (STAGES, "stages.nli.model.layers", "stages.nli.model.keep_layers"),
    ],
)
def test_an_old_key_is_found_without_its_group_in_parts_and_in_stages(overrides, old, new):
    with pytest.raises(Exception) as refused:  # noqa: PT011  Hydra's, or ours
        compose([*overrides, f"{old}=3"])
    message = str(explained(refused.value, "train", [*overrides, f"{old}=3"]))
    assert re.search(rf" ([\w.]+)\. Set {re.escape(new)}=3\.$", message)[1] in (new, new.removeprefix("stages.nli."))


def test_the_migration_page_has_every_old_name():
    page = (Path(__file__).parent.parent / "docs" / "migration.md").read_text(encoding="utf-8")
    keys = [f"| `{command}` | `{old}` | `{new}` |" for command, old, new in ENTRIES]
    pairs = [(group, *pair) for group, table in RENAMED_CHOICES.items() for pair in table.items()]
    renamed = [f"| `{group}={old}` | `{group}={new}` |" for group, old, new in pairs]
    assert [row for row in (*keys, *renamed) if row not in page] == []


def test_an_old_key_of_a_race_file_is_refused():
    with pytest.raises(InputError) as refused:
        plain(OmegaConf.create({"name": "mine", "headline": "stsb/cosine/spearman", "arms": {}}))
    assert (refused.value.key, refused.value.hint) == ("race.headline", "Set race.ranking_metric=VALUE.")


def test_old_names_are_refused_from_python():
    with pytest.raises(InputError) as refused:
        train([("a", "b")] * 4, model__cut_fraction=0.1)
    assert (refused.value.key, refused.value.hint) == ("model.cut_fraction", "Set model__warmup_ratio=0.1.")
    with pytest.raises(InputError) as refused:
        train([("a", "b")] * 4, experiment="both")
    assert (refused.value.key, refused.value.value) == ("experiment", "both")
    with pytest.raises(InputError) as refused:
        evaluate("encoder", alignment_above=3.0)
    assert (refused.value.key, refused.value.hint) == ("alignment_above", "Set alignment_threshold=3.0.")


def test_the_torture_uses_current_keys(tmp_path):
    """A long campaign reaches some kinds of job only sometimes."""
    commands = {"embed", "evaluate", "generate", "compare"}
    for job in jobs(tmp_path):
        command = job.target if job.target in commands else "train"
        keys = {override.lstrip("+~").split("=")[0] for override in job.overrides}
        assert not keys & set(RENAMED_KEYS[command]), job.name
