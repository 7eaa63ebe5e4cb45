"""Exit statuses, and one-line messages in the place of tracebacks.

0 done; 2 the command line, config or input is wrong; 1 failed while running, or there is no room; 130 and 143
interrupted (docs/statuses.md). Hydra alone exits with 1 on a typo and leaves a traceback, so it is made to raise and
the outcome is mapped here.
"""

import contextlib
import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from cli.config_files import choices
from cli.keys import GROUPS, choices_with, known_keys
from cli.names import as_used, name_used
from cli.signals import INTERRUPTED
from contracts import NO_ROOM, InputError, NotWritten, interruption_behind
from contracts.settings import nearest

# Two idle OpenMP threads that spin make everything 15 times slower as soon as something else wants their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

CLIENTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp", "wandb"}
MOST_SAID = 2_400  # characters of a message
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
FULL_ERROR = "HYDRA_FULL_ERROR"
_USERS_FULL_ERROR = os.environ.get(FULL_ERROR, "0")


@contextlib.contextmanager
def exit_statuses(
    hydra: bool = False, failed: tuple[type[Exception], ...] = (), config: str = "train"
) -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status; ``failed`` are the errors of status 1.

    ``config`` is the command's file in ``configs/``, whose keys a typo is compared with.

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
        if (found := judged(error, hydra=hydra, failed=failed, config=config)) is None:
            raise
        if isinstance(error, InputError | HydraException | OmegaConfBaseException):
            _let_rank_zero_speak()
        _leave(*found)
    finally:
        os.environ[FULL_ERROR] = before


def judged(
    error: Exception, *, hydra: bool, failed: tuple[type[Exception], ...] = (), config: str, words: Sequence[str] = ()
) -> tuple[int, str] | None:
    """The exit status of what went wrong, and the sentence that says so; None of an error in the program.

    The arguments are those of `exit_statuses`; ``words`` are the command line's, where it was no command line.
    """
    if reason := _of_a_server(error):
        return 1, f"{reason} Start the same command again: what is whole is kept."
    if isinstance(error, InputError | HydraException | OmegaConfBaseException):
        return 2, explained(error, config, words or None)
    if isinstance(error, (NotWritten, *failed)):
        return 1, str(error)
    if group := re.match(r"Config group override must be a string or a list. Got (\w+)", str(error)):
        return 2, f"a group of keys was given {group[1]}; wanted the name of one of its choices. --help lists them."
    if hydra and isinstance(error, TypeError | ValueError) and _raised_in_hydra(error):
        return 2, f"the command line cannot be composed ({error}): a group of keys wants the name of a choice."
    return _of_a_disk(error)


@contextlib.contextmanager
def _signals_first() -> Iterator[None]:
    """A library that is left in the middle of something may stumble over it while it clears up."""
    try:
        yield
    except NotWritten:
        raise
    except Exception as error:
        if signalled := interruption_behind(error):
            raise signalled from None
        raise


def _let_rank_zero_speak() -> None:
    """What is wrong with the words or the data is wrong on every process that was started, and is told by one.

    As soon as a process ends with an error, torchrun and we end the others. So all but rank 0 stay a while, and what is
    wrong here alone is told nevertheless. Later ranks stay longer, so that one tells it in that case too.
    """
    rank = int(os.environ.get("RANK", "0"))
    if rank > 0:
        time.sleep(FOR_RANK_ZERO + rank)


def _leave(status: int, message: str = "") -> NoReturn:
    if message and _USERS_FULL_ERROR == "1":
        traceback.print_exc()
    if message:
        line = as_used(" ".join(message.split()))
        if len(line) > MOST_SAID:  # a value of a megabyte
            line = f"{line[: MOST_SAID // 2]} ... {line[-MOST_SAID // 2 :]}"
        sys.stderr.write(f"{name_used()}: {line}\n")
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
    while error is not None and not isinstance(error, InputError | NotWritten):
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

    Libraries written in Rust say the number of the error in their text alone.
    """
    number = error.errno if isinstance(error, OSError) else None
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


def _first_paragraph(error: BaseException) -> str:
    if error.__cause__ is not None and "Error in call to target" in str(error):
        place = re.search(r"^full_key: (.*)$", str(error), flags=re.MULTILINE)
        return f"{place.group(1) if place else 'config'}: {error.__cause__} (HYDRA_FULL_ERROR=1 shows where.)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines if not re.match(r"(full_key|object_type|reference_type)\b", line))


def explained(error: BaseException, config: str, words: Sequence[str] | None) -> str:
    """In one sentence, what a config that is composed from these words (None: the command line's) lacks."""
    cause = input_error(error)
    return str(cause) if cause else _with_nearest_key(_first_paragraph(error), config, words)


def _of_a_part(key: str, words: Sequence[str] | None) -> str:
    """Of a key that each part of a mixture has, or of a part that nobody has said the data of; else empty."""
    known = list(known_keys("train", words))
    if key == "data.parts":
        return (
            "data.parts takes no mapping here. Say what each part is, key by key: data.parts.NAME.data=triplets "
            "data.parts.NAME.path=FILE."
        )
    place = re.match(r"data\.parts\.[^.]+", key)
    if place is not None and place.group() not in known:
        return (
            f"there is no key {key!r}: nobody says what {place.group()} is. Say {place.group()}.data=NAME, with one of "
            f"{', '.join(choices('data'))}."
        )
    own = [one for one in known if re.fullmatch(rf"data\.parts\.[^.]+\.{re.escape(key[5:])}", one)]
    return f"there is no key {key!r}: each part of a mixture has its own, {' and '.join(own)}." if own else ""


def _with_nearest_key(message: str, config: str, words: Sequence[str] | None) -> str:
    """Hydra says which key it does not know; add the known key that looks most like it."""
    if override := re.search(r"Could not override '([^']+)'", message):
        if override[1] in GROUPS.get(config, ()):
            return f"{override[1]}: wanted the name of one of its choices: {', '.join(choices(override[1]))}."
        if config == "train" and override[1].startswith("data.") and (part := _of_a_part(override[1], words)):
            return part
        if others := choices_with(override[1], config):
            return f"there is no key {override[1]!r}. It is one of {', '.join(others)}: leave it out."
        near = nearest(override[1], known_keys(config, words), cutoff=0.5)
        command = "python train.py" if config == "train" else f"python -m {config}"
        advice = f"The nearest key is {near}." if near else f"{command} --help lists the keys."
        return f"there is no key {override[1]!r}. {advice}"
    if there := re.search(r"Multiple values for data@(data\.parts\.[^.]+)\. ", message):
        return f"{there[1]}.data: the experiment says what it is. Another kind in its place is data@{there[1]}=NAME."
    if group := re.search(r"In '[^']*': Could not find '([^']+)'|Could not find '([^']+)'", message):
        name, _, choice = next(found for found in group.groups() if found).rpartition("/")
        options = re.search(r"Available options in '[^']*':\s*(.*?)(?: Config search path| Set the env|$)", message)
        known = options[1].split() if options else []
        near = nearest(choice, known, cutoff=0.4)
        advice = f" The nearest is {near}." if near else ""
        return f"{name}={choice} does not exist; choose {', '.join(known) or 'another'}.{advice}"
    if unknown := re.search(r"Could not override '?([\w/]+)'?\.?\s*No match in the defaults list", message):
        near = nearest(unknown[1], known_keys(config, words), cutoff=0.4)
        return f"there is no key {unknown[1]!r}." + (f" The nearest key is {near}." if near else "")
    alone = re.search(r"node `([^`]+)` is not a container and thus cannot contain `([^`]+)`", message)
    if alone and any(word.startswith(f"{alone[1]}=") for word in (sys.argv[1:] if words is None else words)):
        return f"{alone[1]}: wanted a value for each key below it, got one value. Say {alone[1]}.{alone[2]}=..."
    return message
