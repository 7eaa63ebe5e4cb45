"""SIGTERM and Ctrl-C handling from the first moment of a command; importing this takes a few milliseconds."""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit statuses
# Modules where nothing may be raised: in callbacks of weak references it is printed and forgotten; a zip file that is
# written (items.npz) raises ValueError in its place
STUMBLES = ("weakref", "_weakrefset", "contrastive_encoders.io.item_scores")
AGAIN = 0.05  # seconds after which a signal that would be lost is sent once more


def heed_signals() -> None:
    """What every command does before it imports what takes a moment."""
    exit_on_sigterm()
    heed_ctrl_c()
    ignore_closed_pipes()


def ignore_closed_pipes() -> None:
    """Discard what a command prints after its reader has closed the pipe, as ``head`` does: the command goes on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):  # not replaced by others
            stream.flush()
            replaced = io.TextIOWrapper(
                io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, replaced)


class _Pipe(io.FileIO):
    """A file descriptor that becomes ``os.devnull`` when its reader is gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def exit_on_sigterm() -> Any:
    """From now on SIGTERM raises SystemExit(143), so that what is under way is left whole; the handler before."""

    def leave(number: int, frame: FrameType | None) -> None:
        if _imports(frame):
            os._exit(TERMINATED)
        if not _comes_again(number, frame):
            sys.exit(TERMINATED)

    return signal.signal(signal.SIGTERM, leave)


def heed_ctrl_c() -> None:
    """From now on no KeyboardInterrupt is lost; where Ctrl-C is for others, as behind a shell's ``&``, it stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _imports(frame):
            os._exit(INTERRUPTED)
        if not _comes_again(number, frame):
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: nothing is under way, and it may swallow what is raised within it."""
    return any(one.f_code.co_filename == "<frozen importlib._bootstrap>" for one in _frames(frame))


def _comes_again(number: int, frame: FrameType | None) -> bool:
    """Whether the signal came where nothing may be raised, as while an object is thrown away (Python prints it and goes
    on); it is sent once more then."""
    stumbles = any(
        one.f_code.co_name == "__del__" or one.f_globals.get("__name__") in STUMBLES for one in _frames(frame)
    )
    if stumbles:
        later = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
        later.daemon = True
        later.start()
    return stumbles


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
