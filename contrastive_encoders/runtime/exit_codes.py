"""Exit codes of commands, and one-line error messages instead of tracebacks.

The exit code is 0 on success; 2 if the command line, config, or input is invalid; 1 if the command failed while running
or the disk is full; 130 and 143 if it was interrupted (docs/exit-codes.md). On a typo, Hydra alone would exit with 1
and print a traceback. Therefore Hydra is made to raise its errors, and this module maps them to exit codes.
"""

import contextlib
import errno
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException, UnsupportedValueType

from contrastive_encoders.composition.config_files import choices
from contrastive_encoders.composition.config_keys import COMMAND_GROUPS, choices_with, config_folders, known_keys
from contrastive_encoders.composition.override_checks import help_hint
from contrastive_encoders.core import NO_ROOM, InputError, OutputError, interruption_behind
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.key_suggestions import nearest, unknown_key
from contrastive_encoders.core.renamed_keys import renamed_choice
from contrastive_encoders.runtime.signals import INTERRUPTED

# Two idle OpenMP threads that spin make everything 15 times slower as soon as something else needs their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

HTTP_CLIENTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp", "wandb"}
MAX_MESSAGE_CHARS = 2_400  # characters of a message
PATH_ERRORS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENOTSUP,
    errno.ENOTEMPTY,
    errno.EBUSY,
)
RANK_ZERO_GRACE_S = 10.0  # seconds to wait for the message of rank 0
# `output` of a race, which `adapt` calls output_dir
OUTPUT_KEY = re.compile(r"\boutput(?==)|(?<=another )output\b|(?<=nearest is )output\b")
FULL_ERROR = "HYDRA_FULL_ERROR"
_USERS_FULL_ERROR = os.environ.get(FULL_ERROR, "0")


@contextlib.contextmanager
def exit_statuses(
    config: str = "train",
    arguments: Sequence[str] = (),
    *,
    command: str | None = None,
    hydra: bool = False,
    failed: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Context manager that ends the command with a one-line message and an exit code if an error is raised.

    It wraps Hydra's ``main`` to catch the errors that Hydra raises itself, and the body of that function because Hydra
    prints its own message about errors that leave the function.

    Args:
        config: the config file of the command in ``configs/``; its keys are compared with a typo in ``arguments``.
        arguments: the command line arguments.
        command: the name of the command in the message, if it differs from ``config``.
        hydra: make Hydra raise errors instead of printing them; set around Hydra's ``main``.
        failed: exceptions that lead to exit code 1.
    """
    before = os.environ.get(FULL_ERROR, "0")
    os.environ[FULL_ERROR] = "1" if hydra else _USERS_FULL_ERROR  # the body starts processes, which inherit it
    try:
        with _raise_signals_first():
            yield
    except KeyboardInterrupt:
        _exit(INTERRUPTED)
    except Exception as error:
        if (found := exit_status_of(error, hydra=hydra, failed=failed, config=config, arguments=arguments)) is None:
            raise
        if isinstance(error, InputError | HydraException | OmegaConfBaseException):
            _delay_other_ranks()
        _exit(*found, command=command or config)
    finally:
        os.environ[FULL_ERROR] = before


def exit_status_of(
    error: Exception, *, hydra: bool, failed: tuple[type[Exception], ...] = (), config: str, arguments: Sequence[str]
) -> tuple[int, str] | None:
    """Return the exit code and the message for an error; None for an unexpected error, whose traceback should be shown.

    The arguments are those of `exit_statuses`.
    """
    if reason := _server_error(error):
        return 1, f"{reason} Rerun the same command; complete files are kept."
    if isinstance(error, InputError | HydraException | OmegaConfBaseException):
        return 2, explained(error, config, arguments)
    if isinstance(error, (OutputError, *failed)):
        return 1, str(error)
    if hydra and isinstance(error, TypeError | ValueError) and _raised_in_hydra(error):
        return 2, f"the config cannot be composed ({error}). Set each config group to the name of one of its choices."
    return _disk_error(error)


@contextlib.contextmanager
def as_exceptions(config: str, arguments: Sequence[str] = (), *, hydra: bool = False) -> Iterator[None]:
    """Context manager for the Python API: raises as `InputError` or `OutputError` the errors that would end a command.

    Args:
        config: file of the command in ``configs/``.
        arguments: overrides, for errors about a key among them.
        hydra: whether a config is composed inside.

    Raises:
        InputError: the command would exit with code 2.
        OutputError: the command would exit with code 1 because the disk is full.
    """
    try:
        yield
    except (InputError, OutputError, TrainingError):
        raise
    except Exception as error:
        if (found := exit_status_of(error, hydra=hydra, config=config, arguments=arguments)) is None:
            raise
        status, sentence = found
        if isinstance(error, HydraException | OmegaConfBaseException):
            raise _refusal(error, config, arguments) from error
        raise (InputError if status == 2 else OutputError)(" ".join(sentence.split())) from error


@contextlib.contextmanager
def _raise_signals_first() -> Iterator[None]:
    """Context manager that raises the exception of a signal instead of a secondary error that the signal caused.

    A library that is interrupted in the middle of an operation may raise another error while it cleans up.
    """
    try:
        yield
    except OutputError:
        raise
    except Exception as error:
        if signaled := interruption_behind(error):
            raise signaled from None
        raise


def _delay_other_ranks() -> None:
    """Delay the exit of all ranks but rank 0, so that an error that occurs on every rank is reported once.

    As soon as a process exits with an error, torchrun and this project's launcher terminate the others. An invalid
    command line or invalid data is an error on every process, so the other ranks wait for the message of rank 0. An
    error on one of them alone is still reported after the delay. Higher ranks wait longer, so that one rank reports an
    error in that case, too.
    """
    rank = int(os.environ.get("RANK", "0"))
    if rank > 0:
        time.sleep(RANK_ZERO_GRACE_S + rank)


def _exit(status: int, message: str = "", command: str = "") -> NoReturn:
    if message and _USERS_FULL_ERROR == "1":
        traceback.print_exc()
    if message:
        line = " ".join(message.split())
        if command == "adapt":
            line = OUTPUT_KEY.sub("output_dir", line)
        if len(line) > MAX_MESSAGE_CHARS:  # a value of a megabyte
            line = f"{line[: MAX_MESSAGE_CHARS // 2]} ... {line[-MAX_MESSAGE_CHARS // 2 :]}"
        sys.stderr.write(f"contrastive-encoders {command}: {line}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def _raised_in_hydra(error: BaseException) -> bool:
    """Return whether the error was raised in Hydra's code, as opposed to the command that Hydra calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}hydra{os.sep}_internal{os.sep}" in frames[-1].filename


def _server_error(error: BaseException | None) -> str:
    """Return a message about a failed connection to a server, recognized anywhere in the chain of causes. Return an
    empty string if no server failed, or if the error was already explained.

    The errors are recognized by their libraries, because the versions of other packages determine which client is used.
    Errors of W&B are its own exceptions and those raised during a call of W&B.
    """
    while error is not None and not isinstance(error, InputError | OutputError):
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if kinds & HTTP_CLIENTS:
            url = getattr(error.__dict__.get("_request"), "url", "")
            why = f"{url} {str(error).strip() or type(error).__name__}".strip().rstrip(".")
            callers = {frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)}
            if "wandb" in {*kinds, *(name.partition(".")[0] for name in callers)}:
                return f"W&B cannot be reached: {why}. Set WANDB_MODE=offline to log to the local disk."
            return f"a download failed: {why}."
        error = error.__cause__ or error.__context__
    return ""


def _disk_error(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and a message for an operating system error about a disk, folder, or file; None for other
    errors.

    Libraries written in Rust state the error number only in their message, and NumPy does not state it.
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        number = errno.ENOSPC
    if code := re.search(r"\(os error (\d+)\)", str(error)):
        number = int(code[1])
    if number is None:
        return None
    name = getattr(error, "filename", None) or "a file or directory of this command"
    why = f"{name}: {os.strerror(number)}."
    if number in NO_ROOM:
        return 1, f"{why} Free disk space, then rerun the same command; complete files are kept."
    return (2, f"{why} Choose another path, or correct its permissions.") if number in PATH_ERRORS else None


def input_error(error: BaseException | None) -> InputError | None:
    """Return the `InputError` in the chain of causes of an error, such as one that Hydra has wrapped; None if there is
    none.
    """
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def explained(error: BaseException, config: str, arguments: Sequence[str]) -> str:
    """Return the message about an error in a config that was composed from these arguments.

    For an unknown key or choice, it is a message of this project; for other errors, it may be Hydra's.
    """
    return str(_refusal(error, config, arguments))


def _refusal(error: BaseException, config: str, arguments: Sequence[str]) -> BaseException:
    """Return the error that replaces an error of Hydra, whose message would suggest +KEY=VALUE."""
    if cause := input_error(error):
        return cause
    if isinstance(error, InterpolationResolutionError) and any("${" in argument for argument in arguments):
        return _interpolation_error(error, arguments)
    if isinstance(error, InterpolationResolutionError) and error.full_key:
        reason = str(error).splitlines()[0]
        return InputError(key=error.full_key, expected=f"only references to existing keys ({reason})")
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        return InputError(key=error.override, expected="KEY=VALUE", hint=help_hint(config, arguments))
    if isinstance(error, UnsupportedValueType):
        kind = re.match(r"Value '(\w+)'", str(error))
        expected = "a string, a number, a boolean, None, or a list or mapping of these"
        return InputError(key=error.full_key, value=kind[1] if kind else None, expected=expected)
    return _unknown_name(config, arguments) or InputError(" ".join(str(error).split()))


def _interpolation_error(error: InterpolationResolutionError, arguments: Sequence[str]) -> InputError:
    """Return the error about an argument that refers to a nonexistent key, as in ``${KEY}``."""
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


def _unknown_name(config: str, arguments: Sequence[str]) -> InputError | None:
    """Return the error about the first argument with an unknown key or an unknown choice of a group; None if there is
    none.
    """
    overrides = list(_parsed(arguments))
    for override in overrides:  # first, because the keys of a group are unknown without its choice
        key, value = override.key_or_group, override.value()
        if key in COMMAND_GROUPS.get(config, ()) and isinstance(value, str):
            added = [path.stem for folder in config_folders(arguments) for path in (folder / key).glob("*.yaml")]
            if value not in (names := [*choices(key), *added]):
                if renamed := renamed_choice(key, value):
                    return renamed
                near = nearest(value, names, cutoff=0.4)
                hint = f"The nearest is {near}." if near else None
                return InputError(key=key, value=value, expected=f"one of {', '.join(names)}", hint=hint)
    known = {*known_keys(config, arguments), *COMMAND_GROUPS.get(config, ())}
    for override in overrides:
        key = override.key_or_group
        has_user_name = key.startswith(("data.parts.", "stages."))  # names chosen by the user
        if key in known or has_user_name or override.is_add() or override.is_force_add():
            continue
        if key.startswith("hydra/"):  # choices of Hydra's own config, which the console command also adds
            continue
        group = key.partition(".")[0]
        if group in COMMAND_GROUPS.get(config, ()) and not any(one.startswith(f"{group}.") for one in known):
            continue  # the choice of this group could not be composed, so its keys are not known
        if config == "train" and key.startswith("data.") and (part := _key_of_part(key, overrides)):
            return part
        value = None if override.is_delete() else str(override.input_line).partition("=")[2]
        if others := choices_with(key, config):
            return InputError(
                key=key,
                **({} if value is None else {"value": value}),
                expected="a key that exists here",
                hint=f"This key exists only with {', '.join(others)}. Remove it.",
            )
        return unknown_key(key, value, known, help_hint(config, arguments))
    return None


def _parsed(arguments: Sequence[str]) -> Iterator[Override]:
    """Yield the arguments as parsed by Hydra, omitting those that Hydra cannot parse."""
    parser = OverridesParser.create()
    for argument in arguments:
        with contextlib.suppress(HydraException):
            yield parser.parse_override(argument)


def _key_of_part(key: str, overrides: Sequence[Override]) -> InputError | None:
    """Return the error about a key ``data.KEY`` that must be set for each source of a mixture instead; None if no
    override names a source.
    """
    found = (re.match(r"data\.parts\.[^.]+", override.key_or_group) for override in overrides)
    parts = sorted({match.group() for match in found if match})
    if not parts:
        return None
    hint = f"Each part of a mixture has its own key: {' and '.join(f'{part}{key[4:]}' for part in parts)}."
    return InputError(key=key, expected="a key that exists here", hint=hint)
