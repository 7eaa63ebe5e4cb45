"""Exit codes of commands, and error messages in one line instead of tracebacks.

The exit code is 0 on success; 2 if the command line, config, or input is invalid; 1 if the command failed while running
or the disk is full; 130 and 143 if it was interrupted (docs/exit-codes.md). On a typo, Hydra alone would exit with 1
and print a traceback. Therefore Hydra is made to raise its errors,
`training.composition.config_errors` explains them, and this module maps them to exit codes.
"""

import contextlib
import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from contrastive_encoders.core import NO_ROOM, InputError, OutputError, interruption_behind
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.runtime.signals import INTERRUPTED

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
Explanation = Callable[[Exception], InputError | None]


def _as_input_error(error: Exception) -> InputError | None:
    return error if isinstance(error, InputError) else None


@contextlib.contextmanager
def exit_statuses(
    command: str = "train",
    explain: Explanation = _as_input_error,
    *,
    hydra: bool = False,
    failed: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Context manager that ends the command with a one-line message and an exit code if an error is raised.

    It wraps Hydra's ``main`` to catch the errors that Hydra raises itself, and the body of that function because Hydra
    prints its own message about errors that leave the function.

    Args:
        command: the name of the command in the message.
        explain: returns the `InputError` to report for an error, or None if the input is not the cause.
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
        invalid = explain(error)
        if (found := exit_status_of(error, invalid, failed)) is None:
            raise
        if invalid is not None:
            _delay_other_ranks()
        _exit(*found, command=command)
    finally:
        os.environ[FULL_ERROR] = before


def exit_status_of(
    error: Exception, invalid: InputError | None, failed: tuple[type[Exception], ...] = ()
) -> tuple[int, str] | None:
    """Return the exit code and the message for an error, or None for an unexpected error, whose traceback should be
    shown.

    Args:
        error: the error that ended the command.
        invalid: the error about the input that caused it, if any.
        failed: exceptions that lead to exit code 1.
    """
    if reason := _server_error(error):
        return 1, f"{reason} Rerun the same command; complete files are kept."
    if invalid is not None:
        return 2, str(invalid)
    if isinstance(error, (OutputError, *failed)):
        return 1, str(error)
    return _disk_error(error)


@contextlib.contextmanager
def as_exceptions(explain: Explanation = _as_input_error) -> Iterator[None]:
    """Context manager for the Python API that converts the errors with which a command would exit to `InputError` or
    `OutputError`.

    Args:
        explain: as for `exit_statuses`.

    Raises:
        InputError: the command would exit with code 2.
        OutputError: the command would exit with code 1 because the disk is full.
    """
    try:
        yield
    except (InputError, OutputError, TrainingError):
        raise
    except Exception as error:
        invalid = explain(error)
        if (found := exit_status_of(error, invalid)) is None:
            raise
        if invalid is not None:
            raise invalid from error
        status, sentence = found
        raise (InputError if status == 2 else OutputError)(" ".join(sentence.split())) from error


@contextlib.contextmanager
def _raise_signals_first() -> Iterator[None]:
    """Context manager that raises the exception of a signal instead of an error that the signal caused.

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


def _server_error(error: BaseException | None) -> str:
    """Return a message about a failed connection to a server, if there is such an error anywhere in the chain of
    causes. Return an empty string if no server failed, or if the error was already explained.

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
    """Return the exit code and a message for an operating system error about a disk, folder, or file, or None for other
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
