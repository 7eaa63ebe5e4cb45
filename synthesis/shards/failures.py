"""What ends a synthesis, other than wrong input: in a sentence that says how it goes on."""

import contextlib
import errno
from collections.abc import Iterator

from contracts import InputError


class SynthesisFailed(Exception):
    """Writing failed; what was whole before is whole still."""


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """A disk that is full, or a folder that may not be written to, in a sentence."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename or 'output'}: {error.strerror or error}."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise SynthesisFailed(f"{message} Make room; the same command goes on where this one stopped.") from error
        raise InputError(f"{message} Choose another output.") from error
