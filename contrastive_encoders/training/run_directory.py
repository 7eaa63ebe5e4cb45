"""The output folder of a run: checks of its contents, locking, and the checkpoint from which the run is resumed."""

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError, check_local_output
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.export.atomic_export import EXPORT
from contrastive_encoders.io.checkpoint import is_checkpoint
from contrastive_encoders.io.manifest import find_damage
from contrastive_encoders.io.model_names import PRODUCTS
from contrastive_encoders.io.output_directory import (
    LOCK,
    MARKER,
    Marker,
    check_owner,
    check_replaceable,
    lock_folder,
    overwrite_hint,
    release_lock,
    remove_entries,
    write_marker,
)
from contrastive_encoders.training.callbacks.checkpoints import LAST, find_resumable
from contrastive_encoders.training.changed_settings import (
    CONFIG_FILE,
    DURATION_KEYS,
    SettingChange,
    changes_in,
    described,
)
from contrastive_encoders.training.mirror import SNAPSHOTS, Mirror

log = logging.getLogger(__name__)

RUN = "run"  # kind of output
STAGES = "stage-*"  # one folder per stage
ENTRIES = (
    "results.json",  # removed first: without it a run is not finished
    ".hydra",
    "metrics.csv",
    "checkpoints",
    *PRODUCTS,
    "backbone",
    "neighbors",
    "teacher.json",
    "curve.png",
    "item_scores.npz",
    "wandb",
    "tensorboard",
    SNAPSHOTS,
    STAGES,
)
RESULTS_OF_TRAINING = ("metrics.csv", "checkpoints", "results.json", *PRODUCTS)


MIRRORED = (MARKER, *(name for name in ENTRIES if name not in (SNAPSHOTS, "wandb")))


def mirror_of(folder: Path, address: str | None, identity: str) -> Mirror | None:
    """Return the mirror of a run's folder, or None if ``address`` is None."""
    return None if address is None else Mirror(folder, address, MIRRORED, identity)


def is_empty(folder: Path) -> bool:
    """Return whether a folder contains no results of a run yet.

    Raises:
        InputError: the folder contains other files, or another process is training in it.
    """
    check_owner("output_dir", folder, RUN)
    if folder.exists():
        lock_folder("output_dir", folder)
        release_lock(folder / LOCK)
    return not _has_results(folder)


class Start(NamedTuple):
    """Rank 0's decision on how a run starts: whether the run is already finished, and from which checkpoint and
    backbone it starts.
    """

    finished: bool
    checkpoint: str | None = None  # to resume from
    backbone: str | None = None


def claim_folder(
    folder: Path,
    identity: str,
    *,
    resume: str | None,
    overwrite: bool,
    recipe: Mapping[str, Any] | None = None,
) -> Start:
    """Claim ``folder`` for the run with this identity, and return the checkpoint to resume from. Only rank 0 calls
    this.

    Args:
        recipe: all keys of the run, for listing the differences if the folder contains another run.

    Raises:
        InputError: the folder contains another run or other files, its contents would be lost, or another process is
            training in it.
    """
    checkpoint, own = _resume_path(resume, folder), {"config": identity}
    marker = check_owner("output_dir", folder, RUN)
    if not overwrite and marker and _is_finished(folder):
        _check_same_run(folder, marker, identity, recipe)
        return Start(True)
    lock_folder("output_dir", folder)
    marker = check_owner("output_dir", folder, RUN)  # another process may have written it in the meantime
    # another command may have claimed the directory and ended before its first step, for example because of an invalid
    # key
    is_new = overwrite or marker is None or (marker.identity != own and not _has_results(folder))
    if marker and not is_new:
        _check_same_run(folder, marker, identity, recipe)
    for name in () if is_new else PRODUCTS:
        if (folder / name).exists():  # it is replaced at the end of the run, and should not fail there
            check_replaceable("output_dir", folder / name, EXPORT)
    if is_new:
        remove_entries(folder)
    write_marker(folder, RUN, ENTRIES, own)
    # the run started from a given checkpoint, but is resumed from its own
    return Start(False, checkpoint if is_new else _resumable_checkpoint(folder, resume) or checkpoint)


def check_writable(folder: Path) -> None:
    """Check that the folder can be created and is writable.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    check_local_output("output_dir", str(folder))
    parent = folder.absolute()
    while not parent.exists():
        parent = parent.parent
    hint = "Set another output_dir."
    if not parent.is_dir():
        raise InputError(key="output_dir", value=folder, expected=f"a directory, but {parent} is a file", hint=hint)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            key="output_dir", value=folder, expected=f"a writable directory, but {parent} is not writable", hint=hint
        )


def _check_same_run(folder: Path, marker: Marker, identity: str, recipe: Mapping[str, Any] | None) -> None:
    """Check that the run in the folder has the same settings as the run to be trained.

    Raises:
        InputError: the settings differ.
    """
    if marker.identity == {"config": identity}:
        return
    found = changes_in(folder, recipe or {})
    difference = (
        f": {described(found)}"
        if found
        else (f"; they differ in whether batch_size or max_steps is set, or in a key that {folder / CONFIG_FILE} lacks")
    )
    raise InputError(
        key="output_dir",
        value=folder,
        expected=f"the same config as the run in this directory{difference}",
        hint=_options_hint(folder, found, recipe or {}),
    )


def _options_hint(folder: Path, found: Sequence[SettingChange], recipe: Mapping[str, Any]) -> str:
    """Return the hint for a run whose settings, ``recipe``, differ from those of the run that is already in the
    folder. A finished run can only be continued with more steps.
    """
    other, last = new_folder(folder), folder / "checkpoints" / LAST
    restart = (
        f"To train from scratch, set {format_override('output_dir', str(other))}, or overwrite=true to delete that run."
    )
    if not found or not last.is_file() or not all(one.can_be_resumed for one in found):
        return restart
    words = f"{format_override('resume', str(last))} {format_override('output_dir', str(other))}"
    if _is_finished(folder) and not any(one.key in DURATION_KEYS for one in found):
        lengths = {key: recipe["trainer"][key] for key in DURATION_KEYS if (recipe["trainer"][key] or -1) > 0}
        words += "".join(f" {key}={2 * length}" for key, length in lengths.items())
    return f"To continue that run with the new config, set {words}. {restart}"


def new_folder(folder: Path) -> Path:
    """Return the first of FOLDER-2, FOLDER-3, ... that does not exist."""
    return next(one for number in count(2) if not (one := folder.with_name(f"{folder.name}-{number}")).exists())


def _is_finished(folder: Path) -> bool:
    """Return whether the folder contains readable results of a run. Damaged results do not count, because the run
    writes them again from its last checkpoint.
    """
    path = folder / "results.json"
    why = find_damage(path)
    if why:
        log.warning("%s: %s. The run resumes from its last checkpoint and writes the file again.", path, why)
    return path.is_file() and not why


def _has_results(folder: Path) -> bool:
    if any((folder / name).exists() for name in RESULTS_OF_TRAINING):
        return True
    return any(_has_results(stage) for stage in folder.glob(STAGES))


def _resumable_checkpoint(folder: Path, resume: str | None) -> str | None:
    checkpoints = folder / "checkpoints"
    if not any(checkpoints.glob("*.ckpt")):
        return None
    if resume is None:
        raise InputError(
            key="resume",
            value=None,
            expected=f"auto, since {checkpoints} already contains checkpoints of this run",
            hint=overwrite_hint("output_dir"),
        )
    path, warning = find_resumable(checkpoints)
    if warning:
        log.warning(warning)
    return str(path) if path is not None else None  # killed between the first best.ckpt and the first last.ckpt


def _resume_path(resume: str | None, folder: Path) -> str | None:
    """Return the checkpoint file that the key ``resume`` names; None if ``resume`` is "auto" or None.

    Raises:
        InputError: the value is not a checkpoint file. The hint names the checkpoint of the run in this directory, and
            another output directory if the checkpoint belongs to this run.
    """
    if resume in (None, "auto"):
        return None
    if not is_checkpoint(resume):
        paths = (Path(resume) / LAST, Path(resume) / "checkpoints" / LAST)
        last = next((path for path in paths if path.is_file()), Path("...", "checkpoints", LAST))
        words = format_override("resume", str(last))
        if last.parent.parent == folder:
            words += f" {format_override('output_dir', str(new_folder(folder)))}"
        expected = "a checkpoint file of a run, auto to resume the run in output_dir, or null"
        raise InputError(key="resume", value=resume, expected=expected, hint=f"Set {words}.")
    return resume
