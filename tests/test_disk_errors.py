"""A full disk or an unusable folder gives one line and an exit code, in any library."""

import errno
import os

import pytest
from omegaconf.errors import ConfigAttributeError
from safetensors import SafetensorError

from contrastive_encoders.core import InputError
from contrastive_encoders.runtime.exit_codes import exit_statuses


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "F/x"), 1, "F/x: No space left on device. Make room"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), 1, "this command: File too large. Make room"),
        (Exception("File too large (os error 27)"), 1, "File too large. Make room"),  # tokenizers
        (OSError("23040 requested and 22496 written"), 1, "No space left on device. Make room"),  # numpy
        (SafetensorError("I/O error: No space left on device (os error 28)"), 1, "No space left on device. Make room"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "F"), 2, "F: Permission denied. Name another"),
        (NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "F"), 2, "F: Not a directory."),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "F"), 2, "F: Read-only file system."),
    ],
)
def test_one_line_and_a_status(capsys, error, status, said):
    with pytest.raises(SystemExit) as left, exit_statuses():
        raise error
    told = capsys.readouterr().err
    assert (left.value.code, told.count("\n")) == (status, 1)
    assert said in told


@pytest.mark.parametrize("error", [ValueError("(os error x)"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")])
def test_what_is_no_affair_of_a_disk_stays_an_error(error):
    with pytest.raises(type(error)), exit_statuses():
        raise error


def left_while_clearing_up(signaled, error):
    try:
        raise signaled
    finally:
        raise error("'NoneType' object has no attribute '_invalidate_flags_cache'")


@pytest.mark.parametrize(("signaled", "status"), [(SystemExit(143), 143), (KeyboardInterrupt(), 130)])
@pytest.mark.parametrize("error", [AttributeError, ConfigAttributeError, InputError])
def test_a_signal_is_not_hidden_by_what_stumbles_over_it(signaled, status, error):
    with pytest.raises(SystemExit) as left, exit_statuses():
        left_while_clearing_up(signaled, error)
    assert left.value.code == status
