"""Exit statuses, and one-line messages instead of tracebacks.

0 done; 2 the command line, config or input is wrong; 1 failed while running, or there is no room; 130 and 143
interrupted (docs/exit-codes.md). Hydra alone exits with 1 on a typo and leaves a traceback, so it is made to raise and
the outcome is mapped here.
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
from contrastive_encoders.composition.config_keys import GROUPS, choices_with, config_folders, known_keys
from contrastive_encoders.composition.key_suggestions import unknown_key
from contrastive_encoders.composition.override_checks import help_hint
from contrastive_encoders.core import NO_ROOM, InputError, OutputError, interruption_behind
from contrastive_encoders.core.config_schema import nearest
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.runtime.signals import INTERRUPTED

# Two idle OpenMP threads that spin make everything 15 times slower as soon as something else wants their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

CLIENTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp", "wandb"}
MAX_MESSAGE_CHARS = 2_400  # characters of a message
UNUSABLE = (
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
FOR_RANK_ZERO = 10.0  # seconds to say what is wrong
OUTPUT_KEY = re.compile(r"\boutput(?==)|(?<=another )output\b")  # of a race, which `adapt` calls output_dir
FULL_ERROR = "HYDRA_FULL_ERROR"
_USERS_FULL_ERROR = os.environ.get(FULL_ERROR, "0")


@contextlib.contextmanager
def exit_statuses(
    config: str = "train",
    words: Sequence[str] = (),
    *,
    command: str | None = None,
    hydra: bool = False,
    failed: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status; ``failed`` are the errors of status 1.

    ``config`` is the command's file in ``configs/``, whose keys a typo among the ``words`` is compared with.
    ``command`` is its name in the message, if that is another one.

    Put around Hydra's ``main`` (``hydra=True``: it must raise instead of printing) for what it refuses itself, and
    around its body, because Hydra prints about whatever leaves it.
    """
    before = os.environ.get(FULL_ERROR, "0")
    os.environ[FULL_ERROR] = "1" if hydra else _USERS_FULL_ERROR  # the body starts processes, which inherit it
    try:
        with _signals_first():
            yield
    except KeyboardInterrupt:
        _leave(INTERRUPTED)
    except Exception as error:
        if (found := exit_status_of(error, hydra=hydra, failed=failed, config=config, words=words)) is None:
            raise
        if isinstance(error, InputError | HydraException | OmegaConfBaseException):
            _delay_other_ranks()
        _leave(*found, command=command or config)
    finally:
        os.environ[FULL_ERROR] = before


def exit_status_of(
    error: Exception, *, hydra: bool, failed: tuple[type[Exception], ...] = (), config: str, words: Sequence[str]
) -> tuple[int, str] | None:
    """The exit status of what went wrong, and the sentence that says so; None of an error in the program.

    The arguments are those of `exit_statuses`.
    """
    if reason := _of_a_server(error):
        return 1, f"{reason} Start the same command again: what is whole is kept."
    if isinstance(error, InputError | HydraException | OmegaConfBaseException):
        return 2, explained(error, config, words)
    if isinstance(error, (OutputError, *failed)):
        return 1, str(error)
    if hydra and isinstance(error, TypeError | ValueError) and _raised_in_hydra(error):
        return 2, f"the command line cannot be composed ({error}): a group of keys wants the name of a choice."
    return _of_a_disk(error)


@contextlib.contextmanager
def as_exceptions(config: str, words: Sequence[str] = (), *, hydra: bool = False) -> Iterator[None]:
    """Raise what a command would end with, in a function that is called from Python.

    Args:
        config: file of the command in ``configs/``.
        words: overrides, for errors about a key among them.
        hydra: whether a config is composed inside.

    Raises:
        InputError: the command would end with status 2.
        OutputError: with status 1, for want of room.
    """
    try:
        yield
    except (InputError, OutputError, TrainingError):
        raise
    except Exception as error:
        if (found := exit_status_of(error, hydra=hydra, config=config, words=words)) is None:
            raise
        status, sentence = found
        if isinstance(error, HydraException | OmegaConfBaseException):
            raise _refusal(error, config, words) from error
        raise (InputError if status == 2 else OutputError)(" ".join(sentence.split())) from error


@contextlib.contextmanager
def _signals_first() -> Iterator[None]:
    """A library that is left in the middle of something may stumble over it while it clears up."""
    try:
        yield
    except OutputError:
        raise
    except Exception as error:
        if signalled := interruption_behind(error):
            raise signalled from None
        raise


def _delay_other_ranks() -> None:
    """What is wrong with the words or the data is wrong on every process that was started, and is told by one.

    As soon as a process ends with an error, torchrun and we end the others. So all but rank 0 stay a while, and what is
    wrong here alone is told nevertheless. Later ranks stay longer, so that one tells it in that case too.
    """
    rank = int(os.environ.get("RANK", "0"))
    if rank > 0:
        time.sleep(FOR_RANK_ZERO + rank)


def _leave(status: int, message: str = "", command: str = "") -> NoReturn:
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
    """Whether Hydra stumbled while it composed a config, not the command that it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}hydra{os.sep}_internal{os.sep}" in frames[-1].filename


def _of_a_server(error: BaseException | None) -> str:
    """What the client of a server says, wherever it was called; empty where nothing failed, or it was explained.

    Its errors are known by their libraries: which of them is used depends on the versions of others. W&B's own are
    that, and those that came while it was asked.
    """
    while error is not None and not isinstance(error, InputError | OutputError):
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if kinds & CLIENTS:
            url = getattr(error.__dict__.get("_request"), "url", "")
            why = f"{url} {str(error).strip() or type(error).__name__}".strip().rstrip(".")
            callers = {frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)}
            if "wandb" in {*kinds, *(name.partition(".")[0] for name in callers)}:
                return f"W&B cannot be written to: {why}. WANDB_MODE=offline records on this disk."
            return f"a download broke off: {why}."
        error = error.__cause__ or error.__context__
    return ""


def _of_a_disk(error: BaseException) -> tuple[int, str] | None:
    """The status, and in one sentence what is wrong with a disk, a folder or a file; None where it is something else.

    Libraries written in Rust say the number of the error in their text alone, and numpy says none.
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        number = errno.ENOSPC
    if in_text := re.search(r"\(os error (\d+)\)", str(error)):
        number = int(in_text[1])
    if number is None:
        return None
    name = getattr(error, "filename", None) or "a file or folder of this command"
    why = f"{name}: {os.strerror(number)}."
    if number in NO_ROOM:
        return 1, f"{why} Make room, then start the same command again: what is whole is kept."
    return (2, f"{why} Name another, or correct its permissions.") if number in UNUSABLE else None


def input_error(error: BaseException | None) -> BaseException | None:
    """Hydra wraps what a constructor raised; the sentence meant for the user is further down."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def explained(error: BaseException, config: str, words: Sequence[str]) -> str:
    """In one sentence, what is wrong with a config that is composed from these words.

    Of a key or a choice that does not exist it is our message, else Hydra's.
    """
    return str(_refusal(error, config, words))


def _refusal(error: BaseException, config: str, words: Sequence[str]) -> BaseException:
    """Return the error that is raised in place of Hydra's, whose own message suggests +KEY=VALUE."""
    if cause := input_error(error):
        return cause
    if isinstance(error, InterpolationResolutionError) and any("${" in word for word in words):
        return _interpolation_error(error, words)
    if isinstance(error, InterpolationResolutionError) and error.full_key:
        reason = str(error).splitlines()[0]
        return InputError(key=error.full_key, expected=f"a reference to what exists ({reason})")
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        return InputError(key=error.override, expected="KEY=VALUE", hint=help_hint(config))
    if isinstance(error, UnsupportedValueType):
        kind = re.match(r"Value '(\w+)'", str(error))
        expected = "a text, a number, a boolean, None, or a list or mapping of these"
        return InputError(key=error.full_key, value=kind[1] if kind else None, expected=expected)
    return _unknown_name(config, words) or InputError(" ".join(str(error).split()))


def _interpolation_error(error: InterpolationResolutionError, words: Sequence[str]) -> InputError:
    """Return the error about a word that refers to a key, as ``${KEY}``, which does not exist."""
    references = [word for word in words if "${" in word]
    own = [word for word in references if word.lstrip("+").partition("=")[0] == error.full_key]
    key, _, value = (own or references)[0].partition("=")
    literal = shlex.quote(f"{key}={value}".replace("${", "\\${"))
    reason = str(error).splitlines()[0]
    return InputError(
        key=key.lstrip("+"),
        value=value,
        expected=f"a reference to what exists ({reason})",
        hint=f"If the characters are meant themselves, set {literal}.",
    )


def _unknown_name(config: str, words: Sequence[str]) -> InputError | None:
    """Return the error about the first word whose key, or whose choice for a group, does not exist."""
    overrides = list(_parsed(words))
    for override in overrides:  # first: without its choice, keys of a group are not known
        key, value = override.key_or_group, override.value()
        if key in GROUPS.get(config, ()) and isinstance(value, str):
            added = [path.stem for folder in config_folders(words) for path in (folder / key).glob("*.yaml")]
            if value not in (names := [*choices(key), *added]):
                near = nearest(value, names, cutoff=0.4)
                hint = f"The nearest is {near}." if near else None
                return InputError(key=key, value=value, expected=f"one of {', '.join(names)}", hint=hint)
    known = {*known_keys(config, words), *GROUPS.get(config, ())}
    for override in overrides:
        key = override.key_or_group
        below_a_mapping = key.startswith(("data.parts.", "stages."))  # whose names are free
        if key in known or below_a_mapping or override.is_add() or override.is_force_add():
            continue
        if key.startswith("hydra/"):  # choices of Hydra's own config, which the console command adds, too
            continue
        group = key.partition(".")[0]
        if group in GROUPS.get(config, ()) and not any(one.startswith(f"{group}.") for one in known):
            continue  # the choice of this group could not be composed, so its keys are not known
        if config == "train" and key.startswith("data.") and (part := _of_a_part(key, overrides)):
            return part
        value = None if override.is_delete() else str(override.input_line).partition("=")[2]
        if others := choices_with(key, config):
            return InputError(
                key=key,
                **({} if value is None else {"value": value}),
                expected="a key that exists here",
                hint=f"It is a key of {', '.join(others)}: leave it out.",
            )
        return unknown_key(key, value, known, help_hint(config))
    return None


def _parsed(words: Sequence[str]) -> Iterator[Override]:
    """The words as Hydra reads them, but for those that it does not understand."""
    parser = OverridesParser.create()
    for word in words:
        with contextlib.suppress(HydraException):
            yield parser.parse_override(word)


def _of_a_part(key: str, overrides: Sequence[Override]) -> InputError | None:
    """Return the error about a key that each part of a mixture has."""
    found = (re.match(r"data\.parts\.[^.]+", override.key_or_group) for override in overrides)
    parts = sorted({match.group() for match in found if match})
    if not parts:
        return None
    hint = f"Each part of a mixture has its own, {' and '.join(f'{part}{key[4:]}' for part in parts)}."
    return InputError(key=key, expected="a key that exists here", hint=hint)
