"""A full disk or an unusable folder gives one line and an exit code, in any library."""

import errno
import os

import pytest
from omegaconf.errors import ConfigAttributeError
from safetensors import SafetensorError

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.exit_codes import exit_statuses

FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "F/x"), 1, f"F/x: {os.strerror(errno.ENOSPC)}"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), 1, f": {os.strerror(errno.EFBIG)}"),
        (Exception(f"{os.strerror(errno.EFBIG)} (os error 27)"), 1, f": {os.strerror(errno.EFBIG)}"),  # tokenizers
        (OSError("23040 requested and 22496 written"), 1, f": {os.strerror(errno.ENOSPC)}"),  # numpy
        (SafetensorError(f"I/O error: {FULL} (os error 28)"), 1, f": {FULL}"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "F"), 2, f"F: {os.strerror(errno.EACCES)}"),
        (NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "F"), 2, f"F: {os.strerror(errno.ENOTDIR)}"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "F"), 2, f"F: {os.strerror(errno.EROFS)}"),
    ],
)
def test_a_disk_error_ends_with_one_line_and_its_exit_code(capsys, error, status, reason):
    with pytest.raises(SystemExit) as exited, exit_statuses():
        raise error
    line = capsys.readouterr().err
    assert (exited.value.code, line.count("\n")) == (status, 1)
    assert reason in line


@pytest.mark.parametrize("error", [ValueError("(os error x)"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")])
def test_other_errors_are_raised_unchanged(error):
    with pytest.raises(type(error)), exit_statuses():
        raise error


def left_while_clearing_up(signaled, error):
    try:
        raise signaled
    finally:
        raise error("'NoneType' object has no attribute '_invalidate_flags_cache'")


@pytest.mark.parametrize(("signaled", "status"), [(SystemExit(143), 143), (KeyboardInterrupt(), 130)])
@pytest.mark.parametrize("error", [AttributeError, ConfigAttributeError, InputError])
def test_a_signal_is_not_hidden_by_an_error_in_the_cleanup(signaled, status, error):
    with pytest.raises(SystemExit) as left, exit_statuses():
        left_while_clearing_up(signaled, error)
    assert left.value.code == status
