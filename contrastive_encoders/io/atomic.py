"""Atomic writing of files and folders: a new version replaces the old one only when it is complete.

What is unfinished is ``.NAME.part`` beside NAME. A kill may leave it there: nobody takes it for the result, and whoever
writes NAME next begins it anew. It is locked meanwhile, so that of two who write the same name one waits.
"""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from contrastive_encoders.core import NO_ROOM, InputError, OutputError

FILE, FOLDER = os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_DIRECTORY
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)

log = logging.getLogger(__name__)


def partial_path(path: Path) -> Path:
    """The name that a file or folder has until it is whole."""
    return path.with_name(f".{path.name}.part")


def atomic_write(path: Path, data: bytes | str, *, sync: bool = True) -> None:
    """The file appears with all of ``data``, text as UTF-8. Without ``sync`` a power cut may take it back."""
    with atomic_file(path, sync=sync) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_file(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """An empty file to write into, which takes the name of ``path`` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = partial_path(path)
    _remove_unless(stat.S_ISREG, part)
    with _named(path), _locked(part, FILE) as handle:
        os.ftruncate(handle, 0)
        try:
            yield part
            if sync:
                _sync(part)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """An empty folder to write into, which takes the name and the place of ``folder`` when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, replaced = partial_path(folder), partial_path(folder.with_name(f"{folder.name}.old"))
    _remove_unless(stat.S_ISDIR, part)
    with _named(folder), _locked(part, FOLDER):
        _put_back(replaced, folder)  # a kill may have come between the two renames
        for stale in part.iterdir():
            remove(stale)
        try:
            yield part
            with _locked(folder.parent, FOLDER):  # from here on another process may begin the next part
                remove(replaced)
                if folder.exists():
                    folder.rename(replaced)  # a rename onto a folder that is not empty fails
                part.rename(folder)
                remove(replaced)
        except BaseException:
            _put_back(replaced, folder)
            remove(part)
            raise


def build_once(
    directory: Path, is_whole: Callable[[Path], bool], build: Callable[[Path], None], key: str = "data.cache_dir"
) -> None:
    """Has ``build`` fill a fresh folder that becomes ``directory``, unless a whole one is there; others wait meanwhile.
    ``key`` says where such folders lie.

    Raises:
        OutputError: the disk is full.
        InputError: it is read-only.
    """
    if is_whole(directory):
        return
    looked_at = _state(directory)
    with translate_write_errors(directory, key):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _lock_of_build(directory):
            # another process may have built it while this one waited
            if _state(directory) == looked_at or not is_whole(directory):
                log.info("building %s", directory)
                with atomic_directory(directory) as part:
                    build(part)


@contextlib.contextmanager
def translate_write_errors(directory: Path, key: str) -> Iterator[None]:
    """What cannot be written in here is reported with what to do; ``key`` says where such folders lie.

    Raises:
        OutputError: the disk is full.
        InputError: it is read-only.
    """
    try:
        yield
    except OSError as error:
        reason = f"{directory}: cannot write here ({error.strerror})."
        elsewhere = f"Set {key}=FOLDER to write elsewhere."
        if error.errno in NO_ROOM:
            raise OutputError(f"{reason} Make room. {elsewhere}") from error
        if error.errno in CANNOT_WRITE:
            raise InputError(f"{reason} {elsewhere}") from error
        raise


def atomic_link(source: Path, target: Path) -> None:
    """Give a file a second name at once, as a copy where the file system has no hard links."""
    part = partial_path(target)
    remove(part)
    if target.exists() and target.samefile(source):
        return  # two names of one file: a rename of the third would leave it
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
    part.replace(target)


def sync_folder(folder: Path) -> None:
    """Wait until the names in it are on the disk: only then is a rename safe against a power failure."""
    _sync(folder)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it, where there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put_back(replaced: Path, folder: Path) -> None:
    if replaced.exists() and not folder.exists():
        replaced.rename(folder)


def _remove_unless(is_kind: Callable[[int], bool], part: Path) -> None:
    """What was left there may be of another kind, or a link: nothing can be written into that."""
    with contextlib.suppress(FileNotFoundError):
        if not is_kind(part.lstat().st_mode):
            remove(part)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of a write says nothing of the file; from here on it does."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def _locked(part: Path, flags: int) -> Iterator[int]:
    """A descriptor of the unfinished file or folder, which nobody else on this host has meanwhile."""
    while True:
        if flags == FOLDER:
            part.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # renamed by another process since
            handle = os.open(part, flags, 0o666)
            try:
                with contextlib.suppress(OSError):  # some network file systems know no locks
                    fcntl.flock(handle, fcntl.LOCK_EX)
                ours = os.path.samestat(os.fstat(handle), part.stat())
            except BaseException:
                os.close(handle)
                raise
            if ours:
                break
            os.close(handle)
    try:
        yield handle
    finally:
        os.close(handle)


def _state(directory: Path) -> tuple[int, int] | None:
    """What differs once it is another folder, or has become one."""
    try:
        about = directory.stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns


def _lock_of_build(directory: Path) -> FileLock:
    lock = FileLock(f"{directory}.lock")
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        log.info("another process is building %s; waiting for it", directory)
    return lock
