"""Atomic writing of files and folders: a new version replaces the old one only when it is complete.

An unfinished file is ``.NAME.part`` next to NAME. A killed process may leave it there. It is never read as a result,
and the next writer of NAME starts it from scratch. It is locked while it is written, so that one of two writers of the
same name waits.
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
NOT_WRITABLE_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)

log = logging.getLogger(__name__)


def partial_path(path: Path) -> Path:
    """Return the temporary path at which a file or folder is written until it is complete."""
    return path.with_name(f".{path.name}.part")


def atomic_write(path: Path, data: bytes | str, *, sync: bool = True) -> None:
    """Write ``data`` to a file atomically, with text encoded as UTF-8. If ``sync`` is False, a power failure may revert
    the write.
    """
    with atomic_file(path, sync=sync) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_file(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Context manager that yields an empty file to write, which is renamed to ``path`` if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = partial_path(path)
    _remove_unless(stat.S_ISREG, part)
    with _name_in_errors(path), _locked(part, FILE) as handle:
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
    """Context manager that yields an empty folder to fill, which replaces ``folder`` if the block succeeds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, replaced = partial_path(folder), partial_path(folder.with_name(f"{folder.name}.old"))
    _remove_unless(stat.S_ISDIR, part)
    with _name_in_errors(folder), _locked(part, FOLDER):
        _restore(replaced, folder)  # a process may have been killed between the two renames
        for stale in part.iterdir():
            remove(stale)
        try:
            yield part
            _apply_umask(part)
            with _locked(folder.parent, FOLDER):  # from here on another process may begin the next partial folder
                remove(replaced)
                if folder.exists():
                    folder.rename(replaced)  # a rename to a folder that is not empty fails
                part.rename(folder)
                remove(replaced)
        except BaseException:
            _restore(replaced, folder)
            remove(part)
            raise


def _apply_umask(folder: Path) -> None:
    """Give the files in a new folder the permissions of the user's umask, because safetensors writes them with mode
    0600.
    """
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)


def build_once(
    directory: Path, is_whole: Callable[[Path], bool], build: Callable[[Path], None], key: str = "data.cache_dir"
) -> None:
    """Create ``directory`` atomically by calling ``build``, unless it already exists and is complete. Other processes
    wait until it is complete.

    Args:
        key: the config key that sets the location of such folders.

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
    """Context manager that converts errors in writing to an `OutputError` or `InputError` with a hint. ``key`` is the
    config key that sets the location of such folders.

    Raises:
        OutputError: the disk is full.
        InputError: it is read-only.
    """
    try:
        yield
    except OSError as error:
        hint = f"Set {key}=FOLDER to write elsewhere."
        if error.errno in NO_ROOM:
            raise OutputError(
                f"{directory}: {error.strerror}. Free disk space and run the command again. {hint}"
            ) from error
        if error.errno in NOT_WRITABLE_ERRORS:
            raise InputError(
                location=str(directory), value=error.strerror, expected="a writable directory", hint=hint
            ) from error
        raise


def atomic_link(source: Path, target: Path) -> None:
    """Hard-link a file to a second path atomically, or copy it if the file system does not support hard links."""
    part = partial_path(target)
    remove(part)
    if target.exists() and target.samefile(source):
        return  # two names of the same file: renaming a third name to one of them would leave the third
    link_or_copy(source, part)
    part.replace(target)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Hard-link a file to a second path, or copy it if the file system does not support hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to disk, and wait until this is done. Only then is a rename safe against a power
    failure.
    """
    _sync(folder)


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _restore(replaced: Path, folder: Path) -> None:
    if replaced.exists() and not folder.exists():
        replaced.rename(folder)


def _remove_unless(is_kind: Callable[[int], bool], part: Path) -> None:
    """Remove a leftover at the temporary path ``part`` if it has the wrong file type, such as a folder instead of a
    file.
    """
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
def _name_in_errors(path: Path) -> Iterator[None]:
    """Context manager that adds the path to an ``OSError`` that contains no file name, such as the error of a failed
    write.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def _locked(part: Path, flags: int) -> Iterator[int]:
    """Context manager that locks a partial file or folder against other processes on this host, and yields its file
    descriptor.
    """
    while True:
        if flags == FOLDER:
            part.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # renamed by another process in the meantime
            handle = os.open(part, flags, 0o666)
            try:
                with contextlib.suppress(OSError):  # some network file systems do not support locks
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
    """Return the state of a folder: a value that changes when the folder is created or replaced."""
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
