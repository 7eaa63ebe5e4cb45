"""Errors that end a command: their exit status and what their message says."""

import errno
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    pass


class InputError(ValueError):
    """The command line, the config or an input file is wrong; the process exits with status 2.

    The message says where, what was wanted, what came, and what to do about it.
    """


class NotWritten(RuntimeError):
    """There is no room, or what was computed could not be written where it was wanted; the process exits with status 1.

    The message says what to do, or where it lies instead. The same command is right once there is room.
    """


def interruption_behind(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or SIGTERM in the middle of which a library stumbled while it cleared up; None where there was none.

    OmegaConf does, and a zip file that is closed while one of its members is open.
    """
    while error is not None:
        terminated = isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM
        if terminated or isinstance(error, KeyboardInterrupt):
            return error
        error = error.__context__
    return None


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of a disk that is full, or fails
