"""A folder of derived data is built by one process, moved into place whole, and only opened ever after."""

import errno
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from contracts import InputError

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)

log = logging.getLogger(__name__)


def build_once(directory: Path, is_whole: Callable[[Path], bool], build: Callable[[Path], None]) -> None:
    """Has ``build`` fill a fresh folder that becomes ``directory``, unless a whole one is there.

    Others wait for the lock meanwhile. A build that was killed leaves a temporary folder beside it, which nobody takes
    for the result and the next build removes. InputError on a full or read-only disk.
    """
    if is_whole(directory):
        return
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _lock(directory):
            if not is_whole(directory):  # another process may have built it while this one waited
                _build(directory, build)
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        raise InputError(
            f"{directory}: cannot write here ({error.strerror}). Make room, or pass data.cache_dir=FOLDER on a disk "
            "that has some."
        ) from error


def _build(directory: Path, build: Callable[[Path], None]) -> None:
    log.info("building %s", directory)
    for stale in directory.parent.glob(f"{directory.name}.tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.tmp-", dir=directory.parent) as temporary:
        fresh = Path(temporary) / "fresh"  # not the temporary folder itself, which nobody else may read
        fresh.mkdir()
        build(fresh)
        shutil.rmtree(directory, ignore_errors=True)  # one that was not whole
        fresh.replace(directory)


def _lock(directory: Path) -> FileLock:
    lock = FileLock(f"{directory}.lock")
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        log.info("another process is building %s; waiting for it", directory)
    return lock
