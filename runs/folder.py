"""Whose output folder this is, and where a run goes on: decided before anything is loaded or written."""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from contracts import InputError
from runs.checkpoints import find_resumable

log = logging.getLogger(__name__)

OURS = (
    ".hydra",
    "metrics.csv",
    "checkpoints",
    "results.json",
    "encoder",
    "backbone",
    "curve.png",
    "wandb",
    "tensorboard",
)
WORTH_KEEPING = ("metrics.csv", "checkpoints", "results.json", "encoder")


class Claim(NamedTuple):
    finished: bool
    checkpoint: str | None  # to continue from


def claim_folder(folder: Path, identity: str, *, resume: str | None, overwrite: bool, writer: bool) -> Claim:
    """Take ``folder`` for the run of this identity; only the writer, rank 0, changes anything.

    Raises:
        InputError: the folder holds another run or other files, or what it holds would be lost.
    """
    given = _given(resume)
    marker = folder / ".hydra" / "identity"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output_dir={folder}: wanted a folder, but this is a file. Choose another output_dir.")
    if marker.is_file() and not any((folder / name).exists() for name in WORTH_KEEPING):
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
    elif folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"output_dir={folder} is not empty and was not made by a run. Choose another output_dir, or "
            "overwrite=true to write into it (only what a run itself leaves is replaced)."
        )
    if (folder / "results.json").is_file():
        return Claim(True, None)
    if writer:
        _mark(marker, identity)
    return Claim(False, given or _continued(folder, resume))


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
    for name in OURS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
