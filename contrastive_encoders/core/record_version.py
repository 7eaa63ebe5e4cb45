"""The format version of the project's output files: output directories, results, data sets, and checkpoints."""

from typing import Any

from contrastive_encoders.core.errors import InputError

RECORD_VERSION = 2  # 1, or none in the record: before all modules were in the package contrastive_encoders


def check_version(version: Any, kind: str, *, hint: str, **place: Any) -> None:
    """Check that an output file was written by this version of the project.

    Args:
        version: version in the record; None if it has none.
        kind: noun phrase of what was written, such as "a run".
        hint: what to do otherwise.
        place: `key` and `value`, or `location` of `InputError`.

    Raises:
        InputError: an earlier or a later version wrote it.
    """
    if version == RECORD_VERSION:
        return
    other = "a later" if isinstance(version, int) and version > RECORD_VERSION else "an earlier"
    expected = f"{kind} of this version of contrastive-encoders, not of {other} one"
    raise InputError(expected=expected, hint=hint, **place)
