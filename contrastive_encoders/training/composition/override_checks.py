"""Checks of the command line arguments before Hydra composes the config."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.core import InputError, check_local_input, check_local_output
from contrastive_encoders.core.errors import shorten
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import COMMAND_GROUPS, known_keys, leaves

# Config keys from which Hydra builds objects, from any source; an interpolation may refer to one
OBJECT_KEYS = re.compile(r"hydra(\.(callbacks|job_logging|hydra_logging)(\..*)?|\.launcher|\.sweeper)?")
# Names of gradient accumulation in other libraries
ACCUMULATED = re.compile(r"([\w-]+\.)*(accumulat\w*|(grad|gradient)_accum\w*|n_accum\w*)")
# Last parts of the keys that set where a command writes, in any config group
OUTPUT_KEYS = ("output", "output_dir", "cache_dir", "save_dir", "dirpath", "default_root_dir")
# Last parts of the keys that must be local paths: models, runs, tables, and records
LOCAL_INPUT_KEYS = (
    "backbone",
    "encoder",
    "run",
    "runs",
    "data_root",
    "resume",
    "quantization_ranges",
    "annotation_sheet",
    "sentences_from",
)
HYDRA_OUTPUT_KEYS = ("hydra.run.dir", "hydra.sweep.dir")
LIST_INDEX = re.compile(r"(\.\d+)+$")  # the index of a value in its list
TARGET_OVERRIDE = re.compile(r"hydra\.(.*_target_|(launcher|sweeper)\..*\$\{)", flags=re.DOTALL)
MODES = ("run", "multirun", "cfg", "info", "shell_completion")  # options of Hydra that exclude each other


def check_options(config: str, arguments: Sequence[str]) -> None:
    """Check Hydra's options, so that an invalid option is reported by this project's error message instead of the
    parser's usage text.

    Raises:
        InputError: an option is unknown, lacks its value, or conflicts with another option.
    """
    parser = get_args_parser()
    parser.error = refuse_option  # type: ignore[method-assign]
    parsed, rest = parser.parse_known_args(arguments)
    check_config_folders([parsed.config_dir] if parsed.config_dir else [])
    options = [argument for argument in rest if argument.startswith("-")]
    if options:
        raise unknown_option(config, options[0], arguments)
    if rest:
        hint = "Write all overrides either before or after the options."
        raise InputError(
            key=rest[0], expected="all overrides next to each other, without an option in between", hint=hint
        )
    modes = [f"--{mode.replace('_', '-')}" for mode in MODES if getattr(parsed, mode)]
    if len(modes) > 1:
        raise InputError(key=" ".join(modes), expected="at most one of these options", hint=f"Use {modes[0]} only.")


def check_config_folders(folders: Sequence[str | Path]) -> None:
    """Check that the folders of ``--config-dir`` exist.

    Raises:
        InputError: a folder does not exist.
    """
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(
                key="--config-dir",
                value=folder,
                expected="an existing directory of configs, with folders such as model/ or experiment/",
            )


def refuse_option(message: str) -> NoReturn:
    """Replacement for ``argparse.ArgumentParser.error`` that raises the parser's message as an `InputError`."""
    option, _, reason = message.removeprefix("argument ").removeprefix("ambiguous option: ").partition(": ")
    if could_match := re.fullmatch(r"(\S+) could match (.*)", option):
        option, reason = could_match[1], f"one of {could_match[2]}"
    if listed := re.search(r"\(choose from (.*)\)", reason):
        reason = f"one of {listed[1]}".replace("'", "")
    raise InputError(key=option, expected=reason.removeprefix("expected ").replace("one argument", "a value"))


def help_hint(config: str, arguments: Sequence[str] = ()) -> str:
    """Return a hint that the command's ``--help`` lists all keys.

    Args:
        config: file of the command in ``configs/``.
        arguments: the arguments, among them ``hydra/help=COMMAND`` of a command that expands to others, such as adapt.
    """
    pages = [argument.removeprefix("hydra/help=") for argument in arguments if argument.startswith("hydra/help=")]
    return f"contrastive-encoders {pages[0] if pages else config} --help lists the keys."


def unknown_option(config: str, option: str, arguments: Sequence[str]) -> InputError:
    """Return the error for an unknown command line option. Its hint is the key of the same name, if there is
    one.
    """
    name, _, value = option.lstrip("-").partition("=")
    name = name.replace("-", "_")
    following = arguments[[*arguments].index(option) + 1 :]
    if not value and following and not following[0].startswith("-") and "=" not in following[0]:
        value = following[0]
    keys = [key for key in known_keys(config, arguments) if name in (key, key.rpartition(".")[2])]
    keys = [name] if name in keys else keys
    hint = help_hint(config, arguments)
    if len(keys) == 1:
        hint = f"Set {format_override(keys[0], value)}." if value else f"Set {keys[0]}=VALUE."
    return InputError(key=option, expected="KEY=VALUE or an option of Hydra", hint=hint)


def check_override_syntax(config: str, arguments: Sequence[str]) -> None:
    """Check overrides before Hydra composes them.

    Each config group must be set to the name of a choice, and at most once. No override may name code that Hydra itself
    runs, set gradient accumulation, or set a URL for a key that requires a local path.

    Raises:
        InputError: an override violates one of these rules.
    """
    check_single_choices(config, arguments)
    for argument in arguments:
        override = argument.lstrip("+~")
        key, _, value = override.partition("=")
        if not key:
            raise InputError(key=argument, expected="KEY=VALUE", hint=help_hint(config, arguments))
        _check_path(key, value.strip("[]'\""))  # Hydra creates folders before the command begins
        if OBJECT_KEYS.fullmatch(key) or TARGET_OVERRIDE.match(override):
            raise InputError(
                location=shorten(argument),
                expected="no override that makes Hydra run code before the command starts",
                hint="Remove this argument.",
            )
        if config == "train" and ACCUMULATED.fullmatch(key):
            raise InputError(
                key=key,
                value=value,
                expected="no gradient accumulation, since a large batch is already split into chunks, with the same "
                "gradient as the entire batch",
                hint="Set batch_size to the total batch size (your batch times the accumulation steps) and "
                "token_budget to the number of tokens that fit in memory. All examples of the batch are negatives of "
                "each other, unlike with accumulated batches.",
            )
        if key in COMMAND_GROUPS.get(config, ()):
            _check_group(key, argument)


def check_single_choices(config: str, arguments: Sequence[str]) -> None:
    """Check that the arguments choose at most one file of each config group. Hydra would use the last one.

    Raises:
        InputError: two arguments set the same config group to different choices.
    """
    names = [*COMMAND_GROUPS.get(config, ()), *(["prompts"] if config == "generate" else [])]
    group = re.compile(rf"(stages\.[^.]+\.)?(data\.parts\.[^.]+\.data|{'|'.join(names)})") if names else None
    chosen = dict[str, str]()
    for argument in arguments:
        key, equals, value = argument.lstrip("+").partition("=")
        if not equals or not group or not group.fullmatch(key):
            continue
        if chosen.setdefault(key, value) != value:
            expected = f"a single choice of {key}, but the command also has {key}={chosen[key]}"
            raise InputError(key=key, value=value, expected=expected, hint="Remove one of them.")


def check_paths(cfg: DictConfig) -> None:
    """Check that no output key or local input key of the composed config contains a URL.

    Raises:
        InputError: a key that must be a local path is a URL.
    """
    for key, value in leaves(OmegaConf.to_container(cfg, resolve=False)):
        if isinstance(value, str):
            _check_path(LIST_INDEX.sub("", key), value)


def _check_path(key: str, value: str) -> None:
    name = key.rpartition(".")[2]
    if name in OUTPUT_KEYS or key in HYDRA_OUTPUT_KEYS:
        check_local_output(key, value)
    elif name in LOCAL_INPUT_KEYS:
        check_local_input(key, value)


def _check_group(group: str, argument: str) -> None:
    try:
        found = OverridesParser.create().parse_override(argument)
    except HydraException:
        return  # its message is clearer
    value = found.value()
    # several experiments, each applied on top of the previous one
    names = value if group == "experiment" and isinstance(value, list) else [value]
    if not found.is_sweep_override() and not all(isinstance(name, str) and name for name in names):
        expected = f"one of {', '.join(choices(group))}"
        if found.is_delete():
            raise InputError(key=argument, expected=f"{group}=NAME, {expected}")
        raise InputError(key=group, value=argument.partition("=")[2], expected=expected)
