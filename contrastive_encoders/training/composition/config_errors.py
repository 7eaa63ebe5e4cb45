"""Explain the errors that Hydra and OmegaConf raise for a config with unknown keys, unknown choices, or invalid
interpolations.
"""

import contextlib
import functools
import os
import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException, UnsupportedValueType

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import matches_type
from contrastive_encoders.core.errors import input_error
from contrastive_encoders.core.key_suggestions import nearest_hint, unknown_key
from contrastive_encoders.core.renamed_keys import renamed_choice
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import (
    COMMAND_GROUPS,
    choices_with,
    config_folders,
    known_keys,
)
from contrastive_encoders.training.composition.literal_values import literal_override, types_of
from contrastive_encoders.training.composition.override_checks import help_hint


def explain_errors(
    config: str, arguments: Sequence[str] = (), *, composing: bool = False
) -> Callable[[Exception], InputError | None]:
    """Return a function that converts an error in a config to an `InputError`; for other errors, the function returns
    None.

    Args:
        config: the config file of the command in ``configs/``; its keys are compared with a typo in ``arguments``.
        arguments: the command line arguments, or overrides.
        composing: whether Hydra may raise a TypeError or ValueError about the config.
    """

    def explain(error: Exception) -> InputError | None:
        if isinstance(error, InputError | HydraException | OmegaConfBaseException):
            return explained(error, config, arguments)
        if composing and isinstance(error, TypeError | ValueError) and _raised_in_hydra(error):
            reason = " ".join(str(error).split())
            return InputError(
                f"the config cannot be composed ({reason}). Set each config group to the name of one of its choices."
            )
        return None

    return explain


def explained(error: BaseException, config: str, arguments: Sequence[str]) -> InputError:
    """Return the `InputError` that replaces an error of Hydra, whose message would suggest +KEY=VALUE.

    For an unknown key or choice, it has a message of this project; for other errors, it may be Hydra's.
    """
    if cause := input_error(error):
        return cause
    if isinstance(error, InterpolationResolutionError) and any("${" in argument for argument in arguments):
        return _interpolation_error(error, arguments)
    if isinstance(error, InterpolationResolutionError) and error.full_key:
        reason = str(error).splitlines()[0]
        return InputError(key=error.full_key, expected=f"only references to existing keys ({reason})")
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        if "=" in error.override and re.fullmatch(r"[\w.@/+~-]+", key):
            return InputError(key=key, value=value, expected="a value that Hydra can read")
        return InputError(key=error.override, expected="KEY=VALUE", hint=help_hint(config, arguments))
    if isinstance(error, UnsupportedValueType):
        kind = re.match(r"Value '(\w+)'", str(error))
        expected = "a string, a number, a boolean, None, or a list or mapping of these"
        return InputError(key=error.full_key, value=kind[1] if kind else None, expected=expected)
    reason = " ".join(str(error).split())
    return _unknown_name(config, arguments) or _invalid_override(reason, config, arguments) or InputError(reason)


def _interpolation_error(error: InterpolationResolutionError, arguments: Sequence[str]) -> InputError:
    """Return the error for an argument that refers to a nonexistent key, as in ``${KEY}``."""
    references = [argument for argument in arguments if "${" in argument]
    own = [argument for argument in references if argument.lstrip("+").partition("=")[0] == error.full_key]
    key, _, value = (own or references)[0].partition("=")
    literal = shlex.quote(f"{key}={value}".replace("${", "\\${"))
    reason = str(error).splitlines()[0]
    return InputError(
        key=key.lstrip("+"),
        value=value,
        expected=f"only references to existing keys ({reason})",
        hint=f"If the characters are meant literally, set {literal}.",
    )


def _invalid_override(reason: str, config: str, arguments: Sequence[str]) -> InputError | None:
    """Return the error about the override that Hydra rejects for a reason other than an unknown name; None if the
    reason is not known.
    """
    groups = COMMAND_GROUPS.get(config, ())
    if found := re.match(
        r"In 'hydra/config': Could not find '(hydra/\w+)/(.*?)' Available options in '.*?': (.*?)"
        r" Config search path",
        reason,
    ):
        group, value, names = found.groups()
        return InputError(key=group, value=value, expected=f"one of {', '.join(names.split())}")
    for override in _parsed(arguments):
        key, text = override.key_or_group, str(override.input_line).partition("=")[2]
        sign = "++" if override.is_force_add() else "+" if override.is_add() else ""
        shown = f"{sign}{key}{f'@{override.package}' if override.package else ''}"
        if override.is_sweep_override() and reason.startswith("Ambiguous value"):
            setting = shlex.quote(f"{key}=[{text}]")
            if any(matches_type([text], kind) for kind in types_of(config, key, None)):
                return InputError(key=key, value=text, expected="a list", hint=f"Set {setting}.")
            if config != "train":
                return InputError(key=key, value=text, expected="one value", hint=f"For a list, set {setting}.")
            expected = f"one of {', '.join(choices(key))}" if key in groups else "one value"
            return InputError(key=key, value=text, expected=expected, hint="Add --multirun to run each value.")
        exists = override.is_add() and reason.startswith("Could not append")
        if exists or (key in groups and shown != key):
            expected = "the key without +, because the key exists"
            if not exists:
                expected = f"a choice without {shown.replace(key, '')}"
            return InputError(key=shown, value=text, expected=expected, hint=f"Set {key}={text}.")
        if reason.startswith("Error merging override") and reason.endswith(f"{shown}={text}"):
            return InputError(key=key, value=text, expected="keys with their values")
        if override.is_delete() and reason.startswith("Could not delete"):
            return InputError(key=f"~{key}", value=text, expected="a key that is set, with its current value")
    return None


def _unknown_name(config: str, arguments: Sequence[str]) -> InputError | None:
    """Return the error for the first argument with an unknown key or an unknown choice of a group, or None if there is
    no such argument.
    """
    overrides = list(_parsed(arguments))
    for override in overrides:  # first, because the keys of a group are unknown without its choice
        key, value = override.key_or_group, override.value()
        if key not in COMMAND_GROUPS.get(config, ()):
            continue
        added = [path.stem for folder in config_folders(arguments) for path in (folder / key).glob("*.yaml")]
        names = [*choices(key), *added]
        for choice in value if isinstance(value, list) else [value]:  # several experiments are a list
            if isinstance(choice, str) and choice not in names:
                if renamed := renamed_choice(key, choice):
                    return renamed
                expected = f"one of {', '.join(names)}"
                return InputError(key=key, value=choice, expected=expected, hint=nearest_hint(choice, names))
    known = {*known_keys(config, arguments), *COMMAND_GROUPS.get(config, ())}
    for override in overrides:
        key = override.key_or_group
        no_mixture = key.startswith("data.parts.") and "data.parts" not in known
        key = "data.parts" if no_mixture else key
        has_user_name = key.startswith(("data.parts.", "stages."))  # names chosen by the user
        if key in known or has_user_name or override.is_add() or override.is_force_add():
            continue
        if key.startswith("hydra/"):  # choices of Hydra's own config, which the console command also adds
            continue
        group = key.partition(".")[0]
        if group in COMMAND_GROUPS.get(config, ()) and not any(one.startswith(f"{group}.") for one in known):
            if all(other.key_or_group != group or other.is_delete() for other in overrides):
                expected = f"one of {', '.join(choices(group))}, which {key} requires"
                return InputError(key=group, value=None, expected=expected, hint=f"Set {group}=NAME.")
            continue  # the choice of this group could not be composed, so its keys are not known
        if "data.parts" in known and key.startswith("data.") and (part := _key_of_part(key, overrides)):
            return part
        value = None if override.is_delete() or no_mixture else str(override.input_line).partition("=")[2]
        hint = help_hint(config, arguments)
        chosen = next((str(one.value()) for one in overrides if one.key_or_group == group), "")
        own = [folder / group / f"{chosen}.yaml" for folder in config_folders(arguments)]
        if file := next((path for path in own if path.is_file()), None):
            setting = shlex.quote(f"+{key}={value}")
            hint = f"If it is a key of your class, add it to {file} with a default, or set {setting}."
        return unknown_key(key, value, known, hint, choices_with=functools.partial(choices_with, config=config))
    return None


def _parsed(arguments: Sequence[str]) -> Iterator[Override]:
    """Yield the arguments as parsed by Hydra, omitting arguments that Hydra cannot parse."""
    parser = OverridesParser.create()
    for argument in arguments:
        with contextlib.suppress(HydraException):
            yield parser.parse_override(literal_override(argument))


def _key_of_part(key: str, overrides: Sequence[Override]) -> InputError | None:
    """Return the error for a key ``data.KEY`` that must be set for each data source of a mixture, as
    ``data.parts.NAME.KEY``. Return None if no override begins with ``data.parts.NAME``.
    """
    found = (re.match(r"data\.parts\.[^.]+", override.key_or_group) for override in overrides)
    parts = sorted({match.group() for match in found if match})
    if not parts:
        return None
    hint = f"Set this key for each data source of the mixture: {' and '.join(f'{part}{key[4:]}' for part in parts)}."
    return InputError(key=key, expected="a key that exists here", hint=hint)


def _raised_in_hydra(error: BaseException) -> bool:
    """Return whether the error was raised in Hydra's code, as opposed to the command that Hydra calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}hydra{os.sep}_internal{os.sep}" in frames[-1].filename
