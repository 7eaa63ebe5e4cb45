"""Whose an output is: known by the marks that a command leaves, compared by what decides its content.

What a command wrote carries a mark, and only that is replaced: ``MARK`` lists the files of a folder that are ours, and
runs and data sets are known by records that they always held. One command on a host holds a folder by a file lock, for
all of its processes; processes on several hosts that share one give each other signs of life.
"""

import atexit
import contextlib
import errno
import itertools
import json
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import BaseFileLock, FileLock, Timeout

from contracts import NO_ROOM, InputError, NotWritten
from files.manifest import Damaged, read_record, write_record
from files.whole import remove, unfinished

MARK = ".contrastive-encoders.json"  # in a folder: which of its files are ours
MOST_DIFFERENCES = 3  # that are told
EVERY = 5.0  # seconds between signs of life
SILENCE = 180.0  # seconds after which a process counts as lost
TO_LEAVE = 90.0  # seconds that a process whose parent was killed has to end
_held: dict[Path, BaseFileLock] = {}  # for the life of the process; a multirun trains in several folders

log = logging.getLogger(__name__)


def is_ours(folder: Path, marks: Sequence[str]) -> bool:
    """Whether a command of ours made the folder: it leaves one of these files."""
    return any((folder / mark).is_file() for mark in marks)


def strangers(folder: Path, marks: Sequence[str], known: Callable[[str], bool] = lambda name: False) -> list[str]:
    """The names in a folder that no command of ours made, except those that are ``known``; none where it is ours."""
    if is_ours(folder, marks) or not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if not known(path.name))


def leave_mark(folder: Path, names: Iterable[str] | None = None) -> None:
    """Say of these files, or of all that there are, that they are ours; what was said before still holds."""
    write_record(folder / MARK, {"ours": sorted({*_marked(folder), *(_files(folder) if names is None else names)})})


def others(
    folder: Path, names: Iterable[str] | None = None, known: Callable[[str], bool] = lambda name: False
) -> list[str]:
    """Of these files, or of all that there are, those that neither carry our mark nor are ``known`` to be ours."""
    ours = {MARK, *_marked(folder)}
    there = _files(folder) if names is None else (name for name in names if os.path.lexists(folder / name))
    return sorted(name for name in there if name not in ours and not known(name))


def refuse_others(
    key: str, folder: Path, names: Iterable[str] | None = None, known: Callable[[str], bool] = lambda name: False
) -> None:
    """Check that what will be replaced is ours: ``names`` in the folder, or all of the folder.

    Raises:
        InputError: something of another's would be lost, or the folder is one that is never thrown away.
    """
    if names is None and (what := _never(folder)):
        raise InputError(f"{key}={folder} is {what}, which is never replaced. Name a new folder.")
    if found := others(folder, names, known):
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise InputError(
            f"{key}={folder} holds {found[0]}{more}, which no command of this project wrote; only what carries our "
            "mark is replaced. Name another, or move that away."
        )


def _never(folder: Path) -> str:
    place = folder.resolve()
    if (folder / ".git").exists():
        return "a checkout"
    for inside, what in ((Path.home(), "your home"), (Path.cwd(), "the folder you are in")):
        if inside.resolve().is_relative_to(place):
            return what if inside.resolve() == place else f"above {what}"
    return "a root" if place.parent == place or folder.is_mount() else ""


def _marked(folder: Path) -> set[str]:
    try:
        listed = read_record(folder / MARK).get("ours")
    except (OSError, Damaged):
        return set()
    return {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()


def _files(folder: Path) -> Iterator[str]:
    """All below it but folders, as names within it; a link is one, wherever it leads."""
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_symlink() or not path.is_dir():
            yield str(path.relative_to(folder))


def clear(folder: Path, patterns: Sequence[str], keep: Sequence[Path] = ()) -> None:
    """Remove what matches, pattern by pattern, and what was left unfinished of it."""
    for pattern in patterns:
        for path in sorted({*folder.glob(pattern), *folder.glob(str(unfinished(Path(pattern))))}):
            if path not in keep:
                remove(path)


def differences(before: Mapping[str, Any], now: Mapping[str, Any], shown: Callable[[object], str] | None = None) -> str:
    """In words, what differs between two identities of plain values; empty where nothing does."""
    found = _differences(before, json.loads(json.dumps(now)), shown or _short)
    return "; ".join(itertools.islice(found, MOST_DIFFERENCES))


def check_output_file(path: Path) -> None:
    """Make the folder of a file that will be written.

    Raises:
        InputError: the file could not be written.
        NotWritten: there is no room for it.
    """
    if reason := "it is a folder" if path.is_dir() else _cannot_write_in(path.parent):
        raise InputError(f"output={path}: cannot be written ({reason}); name another file.")


def check_output_folder(key: str, folder: Path) -> None:
    """Make a folder that will be written into, and try it; where nothing is written after all, it is removed by
    whoever asked.

    Raises:
        InputError: nothing can be written there.
        NotWritten: there is no room.
    """
    if reason := _cannot_write_in(folder):
        raise InputError(f"{key}={folder}: cannot be written ({reason}); name another folder.")


def _cannot_write_in(folder: Path) -> str:
    """Why, in a few words; empty where a file can be made there. Permissions alone do not tell: /proc has them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".tried-") as file:
            file.write(b"\0" * 4096)
    except (FileExistsError, NotADirectoryError):
        return f"{folder} is a file or lies in one"
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NotWritten(f"{folder}: {error.strerror}. Make room, then start the same command again.") from error
        return "no permission" if error.errno == errno.EACCES else error.strerror or str(error)
    return ""


def lock_of(output: Path) -> Path:
    """Of the command that writes this file; gone when it is written."""
    return output.with_name(f".{output.name}.at-work")


def hold_file(output: Path) -> Path:
    """`hold` a file that is to be written; its lock, for `let_go`.

    Raises:
        InputError: another process is writing it.
    """
    lock = lock_of(output)
    if not hold(lock):
        raise InputError(
            f"output={output}: another process is writing this file. Wait until it has ended, or choose another output."
        )
    return lock


def hold(lock: Path) -> bool:
    """Keep other commands out until this process ends, however it ends; whether none is there already.

    What worked for one that has ended is waited for: see `work_for`. The file stays, the lock on it goes with the
    process.

    Raises:
        InputError: such a process does not end.
    """
    if not _lock(lock):
        if _is_there(lock):
            return False
        _lock_later(lock)  # processes that it forked have inherited its lock
    for worker in sorted(lock.parent.glob(f"{lock.name}-*")):
        if not _lock(worker):
            _lock_later(worker)
        let_go(worker)
    return True


def let_go(lock: Path) -> None:
    """Give back what this process holds, if it does, and remove the file."""
    if held := _held.pop(_place(lock), None):
        lock.unlink(missing_ok=True)
        held.release()


def work_for(lock: Path) -> None:
    """Say that this process works for the one that holds ``lock``: until it has ended too, nobody else does."""
    own = lock.with_name(f"{lock.name}-{socket.gethostname()}-{os.getpid()}")
    if _place(own) not in _held and _lock(own):
        atexit.register(own.unlink, missing_ok=True)


def _lock(path: Path, timeout: float = 0) -> bool:
    place = _place(path)
    if place in _held and _held[place].is_locked:
        return True
    place.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(place)
    try:
        held.acquire(timeout=timeout)
    except Timeout:
        return False
    with contextlib.suppress(OSError):  # a disk that is full
        place.write_text(f"{socket.gethostname()} {os.getpid()}\n")
    _held[place] = held
    return True


def _lock_later(path: Path) -> None:
    log.info("%s: processes of a command that was ended are leaving; waiting for them", path)
    if not _lock(path, TO_LEAVE):
        number = path.read_text().split()[-1:]
        raise InputError(
            f"{path.parent}: processes of a command that was ended are still at work there. End them (process "
            f"{''.join(number)}, or those that it started), then start the same command again."
        )


def is_alive(number: int) -> bool:
    """Whether there is a process of this number on this host that has not ended."""
    try:
        os.kill(number, 0)
        stat = Path(f"/proc/{number}/stat")
        return not stat.exists() or stat.read_text().rpartition(") ")[2][0] != "Z"  # ended, and not asked how
    except PermissionError:
        return True
    except (ProcessLookupError, FileNotFoundError):
        return False


def _is_there(lock: Path) -> bool:
    """Whether the process that took the lock has not ended, for all that is known here."""
    host, number = (lock.read_text().split() or ["", "0"])[-2:]
    return host != socket.gethostname() or is_alive(int(number))


def _place(lock: Path) -> Path:
    return lock.parent.resolve() / lock.name


class SignsOfLife:
    """While it is entered, this process touches ``folder/alive-RANK`` every few seconds, where it is one of several.

    Who waits for another's work sees when that one has gone silent, wherever it runs and however it was started. Times
    are those of the files, so clocks need not agree.
    """

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.folder, self.rank, self.world = folder, rank, world
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._touch, daemon=True)
        self.waiting_since: float | None = None

    def __enter__(self) -> Self:
        if self.world > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file(self.rank).touch()
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        if self.world > 1:
            self.thread.join()
            self._file(self.rank).unlink(missing_ok=True)

    def lost(self, ranks: Iterable[int]) -> Iterator[tuple[int, float]]:
        """Those that have been silent for too long since this process began to wait, and for how many seconds."""
        if self.world == 1:
            return
        now = self._last(self.rank)
        self.waiting_since = self.waiting_since or now
        for rank in sorted({*ranks} - {self.rank}):
            silent = now - max(self._last(rank), self.waiting_since)
            if silent > SILENCE:
                yield rank, silent

    def _touch(self) -> None:
        while not self.stop.wait(EVERY):
            self._file(self.rank).touch()

    def _last(self, rank: int) -> float:
        try:
            return self._file(rank).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _file(self, rank: int) -> Path:
        return self.folder / f"alive-{rank}"


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], shown: Callable[[object], str], prefix: str = ""
) -> Iterator[str]:
    for key in dict.fromkeys([*before, *now]):
        there, here = before.get(key), now.get(key)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            yield from _differences(there, here, shown, f"{prefix}{key}.")
        elif isinstance(there, list) and isinstance(here, list) and (members := _members(here, there, shown)):
            yield f"{prefix}{key} {members}"
        elif there != here:
            yield f"{prefix}{key} is {shown(here)}, there it was {shown(there)}"


def _members(here: list[Any], there: list[Any], shown: Callable[[object], str]) -> str:
    """Of long lists that differ in a few members, those."""
    more, fewer = [one for one in here if one not in there], [one for one in there if one not in here]
    return " and ".join([f"has {shown(more)} besides"] * bool(more) + [f"lacks {shown(fewer)}"] * bool(fewer))


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
