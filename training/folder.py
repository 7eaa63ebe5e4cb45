"""Whose output folder this is, and where a run goes on: decided before anything is loaded or written."""

import logging
from pathlib import Path
from typing import NamedTuple

from contracts import InputError
from files.claims import clear, hold, strangers
from files.whole import remove, write_whole
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
IDENTITY, LOCK = ".hydra/identity", ".hydra/lock"


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
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output_dir={folder}: wanted a folder, but this is a file. Choose another output_dir.")
    if not overwrite and strangers(folder, (IDENTITY, LOCK)):
        raise InputError(
            f"output_dir={folder} is not empty and was not made by a run. Choose another output_dir, or "
            "overwrite=true to write into it (only what a run itself leaves is replaced)."
        )
    # before anything is judged by what another process may just be writing
    if writer and (overwrite or not (folder / "results.json").is_file()) and not hold(folder / LOCK):
        raise InputError(
            f"output_dir={folder}: another process is training in this folder. Wait until it has ended, or choose "
            "another output_dir."
        )
    other = identity_in(folder)
    # a run that never came to its first step, for instance because a key was wrong, is thrown away too
    if overwrite or (other is not None and not _holds_work(folder)):
        if writer:
            _clear(folder)
            write_whole(folder / IDENTITY, f"{identity}\n")
        return Claim(False, given)
    if other not in (None, identity):
        raise InputError(
            f"output_dir={folder} holds another run (config {other}, this one is {identity}). Choose another "
            "output_dir, or overwrite=true to throw that run away."
        )
    if (folder / "results.json").is_file():
        return Claim(True, None)
    if writer:
        write_whole(folder / IDENTITY, f"{identity}\n")
    return Claim(False, _continued(folder, resume) or given)  # PATH is where the run began, not where it is now


def identity_in(folder: Path) -> str | None:
    """Whose folder it is; None where it is nobody's."""
    marker = folder / IDENTITY
    return marker.read_text(encoding="utf-8").strip() if marker.is_file() else None


def _holds_work(folder: Path) -> bool:
    if any((folder / name).exists() for name in WORTH_KEEPING):
        return True
    return any(_holds_work(stage) for stage in folder.glob(STAGES))


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


def _clear(folder: Path) -> None:
    # the lock on a file that is deleted would keep nobody out
    clear(folder, [".hydra/*", *OURS], keep=[folder / LOCK])
    for stage in folder.glob(STAGES):
        if (stage / ".hydra").is_dir():
            remove(stage)
