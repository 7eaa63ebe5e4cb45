"""Check, mark, and lock output folders; a marker file records which files in a folder belong to this project.

These rules apply to every command that writes to a folder:

- A folder that is not empty and has no marker is refused, so that other files are not mixed up or lost.
- The marker records the kind of output in the folder, the entries that belong to this project, and what they were made
  from (the identity). ``overwrite=true`` removes the entries that the marker lists, and nothing else. A folder of
  another kind is refused, and one of another identity is refused without ``overwrite``.
- Only one command at a time writes to a folder. It has a lock until its process exits for any reason.
"""

import atexit
import contextlib
import errno
import itertools
import json
import logging
import os
import re
import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filelock import BaseFileLock, FileLock, Timeout

from contrastive_encoders.core import NO_ROOM, RECORD_VERSION, InputError, OutputError, check_version
from contrastive_encoders.io.atomic import partial_path, remove
from contrastive_encoders.io.manifest import CorruptFileError, read_record, write_record

FINISHED = "%s is finished. Set overwrite=true to create it again."
PREFIX = ".contrastive-encoders"  # of the files that this module writes into a folder
MARKER, LOCK = f"{PREFIX}.json", f"{PREFIX}.lock"
HASH = re.compile(r"[0-9a-f]{16,64}")
MAX_DIFFERENCES = 3  # shown in a message
EXIT_TIMEOUT_S = 90.0  # wait for processes whose parent was killed
_locks: dict[Path, BaseFileLock] = {}  # locks of this process

log = logging.getLogger(__name__)


class Marker(NamedTuple):
    """A marker file in an output folder. It lists the entries (files and subfolders) that belong to this project.

    ``entries`` are names or glob patterns of files and folders directly in it; a listed folder belongs to this project
    with all of its contents.
    """

    kind: str
    entries: list[str]
    identity: dict[str, Any] | None


def read_marker(folder: Path, key: str = "output") -> Marker | None:
    """Return the marker of a folder, or None if there is no marker.

    Args:
        key: the config key that names the folder.

    Raises:
        InputError: another version of the project wrote it, or it is damaged, so that the entries that may be removed
            are unknown.
    """
    try:
        found = read_record(folder / MARKER)
        marker = Marker(found["kind"], found["entries"], found["identity"])
        if not all(isinstance(name, str) and Path(name).name == name != ".." for name in marker.entries):
            raise CorruptFileError(f"expected names of files and folders, got {marker.entries}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, CorruptFileError, KeyError, TypeError) as error:
        raise InputError(
            key=key,
            value=error,
            expected="an undamaged marker file, which lists what this project may overwrite in the folder",
            location=str(folder / MARKER),
            hint=f"Choose another {key}, or remove the folder {folder} yourself.",
        ) from error
    hint = f"Remove it (rm -r {shlex.quote(str(folder))}), or choose another {key}."
    check_version(found.get("version"), "an output directory", key=key, value=folder, hint=hint)
    return marker


def write_marker(folder: Path, kind: str, entries: Sequence[str], identity: Mapping[str, Any] | None = None) -> None:
    """Write a marker file that lists ``entries`` as belonging to this project."""
    record = {"version": RECORD_VERSION, "kind": kind, "entries": list(entries), "identity": identity}
    write_record(folder / MARKER, record)


def check_owner(key: str, folder: Path, kind: str) -> Marker | None:
    """Check that a command may write to a folder, and return the marker of the folder, or None if the folder is empty
    or does not exist.

    Args:
        key: the name of the setting that gave the folder.
        kind: what the command writes, such as "run".

    Raises:
        InputError: it is a file, or it contains files of other programs or of another kind.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(key=key, value=folder, expected="a folder, not a file", hint=f"Choose another {key}.")
    marker = read_marker(folder, key)
    if marker is None and (found := unowned_entries(folder)):
        raise InputError(
            key=key,
            value=folder,
            expected=f"a new or empty folder, or the output of an earlier command; this folder contains {found[0]}",
            hint=f"Choose another {key}.",
        )
    if marker is not None and marker.kind != kind:
        raise InputError(
            key=key,
            value=folder,
            expected=f"a folder for output of the kind {kind!r}, but it contains output of the kind {marker.kind!r}",
            hint=f"Choose another {key}.",
        )
    return marker


def check_identity(key: str, folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that the contents of a folder were made with the current settings and input.

    Raises:
        InputError: they were made from something else; the message lists the differences.
    """
    if found := differences(before, now):
        raise InputError(
            key=key,
            value=folder,
            expected=f"output of the same command with the same settings, but {found}",
            hint=overwrite_hint(key),
        )


def overwrite_hint(key: str) -> str:
    """Return the hint for an output that already exists."""
    return f"Set overwrite=true to replace it, or choose another {key}."


def check_replaceable(key: str, folder: Path, kind: str) -> bool:
    """Check that an entire folder may be replaced, and return whether it exists.

    Raises:
        InputError: as for `check_owner`, or the folder has entries that the marker does not list.
    """
    if check_owner(key, folder, kind) is None:
        return False
    if found := unowned_entries(folder):
        raise InputError(
            key=key,
            value=folder,
            expected=f"a folder without files of other programs, but it contains {found[0]}, which would be lost",
            hint=f"Move that file away, or choose another {key}.",
        )
    return True


def unowned_entries(folder: Path) -> list[str]:
    """Return the names of all entries of a folder that its marker does not list."""
    marker = read_marker(folder)
    ours = {path.name for path in _entries(folder, marker.entries)} if marker else set[str]()
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in found if name not in ours and not name.lstrip(".").startswith(PREFIX.lstrip("."))]


def claim_output_directory(key: str, folder: Path, kind: str, entries: Sequence[str]) -> None:
    """Claim a folder until this process exits: check it, lock it, and mark ``entries`` as owned by this project.

    Raises:
        InputError: as for `check_owner` and `lock_folder`.
        OutputError: the disk is full.
    """
    check_owner(key, folder, kind)
    lock_folder(key, folder)
    write_marker(folder, kind, entries)


def lock_folder(key: str, folder: Path) -> None:
    """Lock a folder, so that other commands cannot write to it until this process exits. The folder is created if it
    does not exist.

    Raises:
        InputError: another command is writing to it, or it is not writable.
        OutputError: the disk is full.
    """
    check_output_folder(key, folder)
    if not acquire_lock(folder / LOCK):
        raise InputError(
            key=key,
            value=folder,
            expected="a folder to which no other process is writing",
            hint=f"Wait until the other process exits, or choose another {key}.",
        )


def remove_entries(folder: Path) -> None:
    """Remove the entries that the marker of a folder lists, in the order of the list, and their partial files. The
    marker and the lock are kept.
    """
    marker = read_marker(folder)
    for path in _entries(folder, marker.entries) if marker else ():
        remove(path)


def _entries(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted({*folder.glob(pattern), *folder.glob(partial_path(Path(pattern)).name)})


def differences(before: Mapping[str, Any], now: Mapping[str, Any], shown: Callable[[object], str] | None = None) -> str:
    """Describe the differences between the settings that identify an output and the current settings; empty if they are
    equal.

    Hashes are truncated to 8 digits.
    """
    in_words = shown or _shorten
    found = _differences(
        before,
        json.loads(json.dumps(now)),
        lambda value: value[:8] if isinstance(value, str) and HASH.fullmatch(value) else in_words(value),
    )
    return "; ".join(itertools.islice(found, MAX_DIFFERENCES))


def check_output_file(path: Path) -> None:
    """Check that an output file can be written, and create its folder.

    Raises:
        InputError: the file is not writable.
        OutputError: the disk is full.
    """
    if reason := "it is a folder" if path.is_dir() else _write_problem(path.parent):
        raise InputError(
            key="output", value=path, expected=f"a writable file ({reason})", hint="Choose another output."
        )


def check_output_folder(key: str, folder: Path) -> None:
    """Create an output folder, and write a temporary file to it to check that it is writable.

    Raises:
        InputError: the folder is not writable.
        OutputError: the disk is full.
    """
    if reason := _write_problem(folder):
        raise InputError(key=key, value=folder, expected=f"a writable folder ({reason})", hint=f"Choose another {key}.")


def _write_problem(folder: Path) -> str:
    """Return the reason why no file can be created in a folder, or an empty string if files can be created. A file is
    written to find out, because permissions alone are not sufficient.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # without a name, so that a killed process leaves no file
            file.write(b"\0" * 4096)
    except (FileExistsError, NotADirectoryError):
        return f"{folder} is a file or inside of a file"
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OutputError(
                f"{folder}: {error.strerror}. Free disk space, then run the same command again."
            ) from error
        return "no permission" if error.errno == errno.EACCES else error.strerror or str(error)
    return ""


def lock_output_file(output: Path) -> Path:
    """Lock an output file before it is written, and return the path of the lock file, which `release_lock` takes.

    Raises:
        InputError: another process is writing it.
    """
    lock = output.with_name(f".{output.name}.lock")
    if not acquire_lock(lock):
        raise InputError(
            key="output",
            value=output,
            expected="a file that no other process is writing",
            hint="Wait until the other process exits, or choose another output.",
        )
    return lock


def acquire_lock(lock: Path) -> bool:
    """Take the lock file ``lock`` until this process exits, and return whether this succeeded.

    Wait for worker processes of an earlier holder (`register_worker`). The file is kept; the lock on it ends with the
    process.

    Raises:
        InputError: such a process does not exit.
    """
    if not _lock(lock):
        if _may_be_alive(lock):
            return False
        _lock_after_exit(lock)  # its forked processes have inherited the lock
    for worker in sorted(lock.parent.glob(f"{lock.name}-*")):
        if not _lock(worker):
            _lock_after_exit(worker)
        release_lock(worker)
    return True


def release_lock(lock: Path) -> None:
    """If this process holds the lock ``lock``, release it and remove its lock file."""
    if held := _locks.pop(_resolve(lock), None):
        lock.unlink(missing_ok=True)
        held.release()


def register_worker(lock: Path) -> None:
    """Register this process as a worker of the command that holds the lock file ``lock``. Other commands also wait
    until the worker has exited.
    """
    own = lock.with_name(f"{lock.name}-{socket.gethostname()}-{os.getpid()}")
    if _resolve(own) not in _locks and _lock(own):
        atexit.register(own.unlink, missing_ok=True)


def _lock(path: Path, timeout: float = 0) -> bool:
    place = _resolve(path)
    if place in _locks and _locks[place].is_locked:
        return True
    place.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(place)
    try:
        held.acquire(timeout=timeout)
    except Timeout:
        return False
    with contextlib.suppress(OSError):  # the disk is full
        place.write_text(f"{socket.gethostname()} {os.getpid()}\n")
    _locks[place] = held
    return True


def _lock_after_exit(path: Path) -> None:
    log.info("%s: waiting for processes of a killed command to exit", path)
    if not _lock(path, EXIT_TIMEOUT_S):
        number = "".join(path.read_text().split()[-1:])
        raise InputError(
            location=str(path.parent),
            value=f"process {number}",
            expected="no running process of a killed command",
            hint="Kill the remaining process and the processes that it started, then run the same command again.",
        )


def is_alive(number: int) -> bool:
    """Return whether the process with this id is running on this host."""
    try:
        os.kill(number, 0)
        stat = Path(f"/proc/{number}/stat")
        # exited, but not yet waited for by its parent
        return not stat.exists() or stat.read_text().rpartition(") ")[2][0] != "Z"
    except PermissionError:
        return True
    except (ProcessLookupError, FileNotFoundError):
        return False


def _may_be_alive(lock: Path) -> bool:
    """Return whether the process that took the lock may still be running. It may if it is on another host, where this
    cannot be checked.
    """
    host, number = (lock.read_text().split() or ["", "0"])[-2:]
    return host != socket.gethostname() or is_alive(int(number))


def _resolve(lock: Path) -> Path:
    return lock.parent.resolve() / lock.name


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], shown: Callable[[object], str], prefix: str = ""
) -> Iterator[str]:
    for key in dict.fromkeys([*before, *now]):
        there, here = before.get(key), now.get(key)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            yield from _differences(there, here, shown, f"{prefix}{key}.")
        elif (
            isinstance(there, list) and isinstance(here, list) and (members := _member_differences(here, there, shown))
        ):
            yield f"{prefix}{key} {members}"
        elif there != here:
            yield f"{prefix}{key} is {shown(here)} instead of {shown(there)}"


def _member_differences(here: list[Any], there: list[Any], shown: Callable[[object], str]) -> str:
    """Describe the difference between two lists: the members that only one of them contains."""
    more, fewer = [one for one in here if one not in there], [one for one in there if one not in here]
    return " and ".join([f"also has {shown(more)}"] * bool(more) + [f"lacks {shown(fewer)}"] * bool(fewer))


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
