"""Whose output folder this is, and where a run goes on: decided before anything is loaded or written."""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from filelock import BaseFileLock, FileLock, Timeout

from contracts import InputError
from training.callbacks.checkpoints import find_resumable

log = logging.getLogger(__name__)

OURS = (  # besides .hydra/
    "metrics.csv",
    "checkpoints",
    "results.json",
    "encoder",
    "generator",
    "backbone",
    "curve.png",
    "items.npz",
    "wandb",
    "tensorboard",
)
WORTH_KEEPING = ("metrics.csv", "checkpoints", "results.json", "encoder", "generator")
STAGES = "stage-*"  # folders like this one, each of a stage
LOCK = "lock"  # in .hydra/; the file stays, the lock on it goes with the process
_held: dict[Path, BaseFileLock] = {}  # for the life of the process; a multirun trains in several folders


class Claim(NamedTuple):
    finished: bool
    checkpoint: str | None  # to continue from


def claim_folder(folder: Path, identity: str, *, resume: str | None, overwrite: bool, writer: bool) -> Claim:
    """Take ``folder`` for the run of this identity; only the writer, rank 0, changes anything.

    Raises:
        InputError: the folder holds another run or other files, or what it holds would be lost, or another process
            is training in it.
    """
    given = _given(resume)
    marker = folder / ".hydra" / "identity"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output_dir={folder}: wanted a folder, but this is a file. Choose another output_dir.")
    if not overwrite:
        _refuse_foreign(folder)
    if writer and (overwrite or not (folder / "results.json").is_file()):
        _hold(folder)  # before anything is judged by what the other process may just be writing
    if marker.is_file() and not _holds_work(folder):
        overwrite = True  # a run that never came to its first step, for instance because a key was wrong
    if overwrite:
        if writer:
            _clear(folder)
            _mark(marker, identity)
        return Claim(False, given)
    if marker.is_file():
        other = marker.read_text(encoding="utf-8").strip()
        if other != identity:
            raise InputError(
                f"output_dir={folder} holds another run (config {other}, this one is {identity}). Choose another "
                "output_dir, or overwrite=true to throw that run away."
            )
    if (folder / "results.json").is_file():
        return Claim(True, None)
    if writer:
        _mark(marker, identity)
    return Claim(False, _continued(folder, resume) or given)  # PATH is where the run began, not where it is now


def identity_in(folder: Path) -> str | None:
    """Whose folder it is; None where it is nobody's."""
    marker = folder / ".hydra" / "identity"
    return marker.read_text(encoding="utf-8").strip() if marker.is_file() else None


def _holds_work(folder: Path) -> bool:
    if any((folder / name).exists() for name in WORTH_KEEPING):
        return True
    return any(_holds_work(stage) for stage in folder.glob(STAGES))


def _refuse_foreign(folder: Path) -> None:
    ours = any((folder / ".hydra" / name).is_file() for name in ("identity", LOCK))
    if not ours and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"output_dir={folder} is not empty and was not made by a run. Choose another output_dir, or "
            "overwrite=true to write into it (only what a run itself leaves is replaced)."
        )


def _hold(folder: Path) -> None:
    """Keep other processes out until this one ends, however it ends."""
    path = folder.resolve() / ".hydra" / LOCK
    if path in _held and _held[path].is_locked:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"output_dir={folder}: another process is training in this folder. Wait until it has ended, or choose "
            "another output_dir."
        ) from None
    _held[path] = lock


def _continued(folder: Path, resume: str | None) -> str | None:
    checkpoints = folder / "checkpoints"
    if not any(checkpoints.glob("*.ckpt")):
        return None
    if resume is None:
        raise InputError(
            f"resume=null would start over, but {checkpoints} holds a run that can be continued. Say resume=auto "
            "to continue it, overwrite=true to throw it away, or choose another output_dir."
        )
    path, warning = find_resumable(checkpoints)
    if warning:
        log.warning(warning)
    return str(path) if path is not None else None  # killed between the first best.ckpt and the first last.ckpt


def _given(resume: str | None) -> str | None:
    if resume in (None, "auto"):
        return None
    if not Path(resume).is_file():
        raise InputError(f"resume={resume} is no file. Pass a checkpoint (.../checkpoints/last.ckpt), auto or null.")
    return resume


def _mark(marker: Path, identity: str) -> None:
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(identity + "\n", encoding="utf-8")


def _clear(folder: Path) -> None:
    # the lock on a file that is deleted would keep nobody out
    record = [path for path in (folder / ".hydra").glob("*") if path.name != LOCK]
    stages = [path for path in folder.glob(STAGES) if (path / ".hydra").is_dir()]
    for path in [*record, *(folder / name for name in OURS), *stages]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
