"""Whose output folder this is, and where a run goes on: decided before anything is loaded or written."""

import logging
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from contracts import InputError
from export.folder import check_replaceable
from files.claims import check_output_folder, clear, hold, is_ours, others, refuse_others, strangers
from files.manifest import damage_of
from files.whole import remove, write_whole
from training.callbacks.checkpoints import OWN, find_resumable
from training.identity import identity_in

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
RECORDS = ("identity", "lock", "config.yaml", "hydra.yaml", "overrides.yaml")  # in .hydra/
IDENTITY, LOCK = MARKS = (".hydra/identity", ".hydra/lock")
EXPORTS = ("encoder", "generator", "backbone")
OF_LOGGERS = {  # what W&B and TensorBoard write into their folders
    "wandb": re.compile(
        r"latest-run|debug(-internal|-cli\.\w+)?\.log|sweep-\w+/config-[\w-]+\.yaml"
        r"|(offline-)?run-\d{8}_\d{6}-[\w-]+(/((files|logs|tmp)/.+|run-[\w-]+\.wandb(\.synced)?))?"
    ),
    "tensorboard": re.compile(r"(.+/)?(events\.out\.tfevents\.[^/]+|hparams\.yaml)"),
}


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
    if not overwrite and strangers(folder, MARKS):
        raise InputError(
            f"output_dir={folder} is not empty and was not made by a run. Choose another output_dir, or "
            "overwrite=true to write beside what is there."
        )
    if overwrite and writer:
        _refuse_to_lose(folder)
    # before anything is judged by what another process may just be writing
    finished = not overwrite and _is_finished(folder, writer)
    if writer and not finished:
        check_output_folder("output_dir", folder)
    if writer and not finished and not hold(folder / LOCK):
        raise InputError(
            f"output_dir={folder}: another process is training in this folder. Wait until it has ended, or choose "
            "another output_dir."
        )
    other = None if overwrite else identity_in(folder)
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
    if finished:
        return Claim(True, None)
    for name in EXPORTS if writer else ():
        check_replaceable(folder / name, "output_dir")  # at its end the run writes it, and should not fail there
    if writer and other is None:
        write_whole(folder / IDENTITY, f"{identity}\n")
    return Claim(False, _continued(folder, resume) or given)  # PATH is where the run began, not where it is now


def _is_finished(folder: Path, writer: bool) -> bool:
    """Whether its results are there; damaged ones are written again from the last checkpoint."""
    path = folder / "results.json"
    why = damage_of(path)
    if why and writer:
        log.warning("%s: %s. The run goes on from its last checkpoint, and writes it again.", path, why)
    return path.is_file() and not why


def _refuse_to_lose(folder: Path) -> None:
    """Check that what ``overwrite`` throws away is a run's.

    Raises:
        InputError: something of another's lies among it.
    """
    if not is_ours(folder, MARKS):
        stages = [path.name for path in folder.glob(STAGES)] if folder.is_dir() else []
        refuse_others("output_dir", folder, (".hydra", *OURS, *stages))
        return
    for name, ours in {"checkpoints": OWN, **OF_LOGGERS}.items():
        refuse_others("output_dir", folder / name, known=partial(_matches, ours))
    for name in EXPORTS:
        check_replaceable(folder / name, "output_dir")
    for stage in folder.glob(STAGES):
        _refuse_to_lose(stage)


def _matches(ours: re.Pattern[str], name: str) -> bool:
    return ours.fullmatch(name) is not None


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
    clear(folder, [*(f".hydra/{name}" for name in RECORDS), *OURS], keep=[folder / LOCK])
    for stage in folder.glob(STAGES):
        if is_ours(stage, MARKS):
            _clear(stage)
            if not others(stage, known=lambda name: name == LOCK):
                remove(stage)
