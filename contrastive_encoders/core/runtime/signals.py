"""Handlers of SIGTERM and Ctrl-C, which are installed when a command starts. Importing this module takes a few
milliseconds.
"""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes
RESEND_DELAY_S = 0.05

Handler = Callable[[int, FrameType | None], Any]


def install_signal_handlers() -> None:
    """Install handlers that exit immediately on SIGTERM or Ctrl-C. Every command begins with this: nothing is in
    progress yet, and an import may suppress an exception.
    """
    _install(_exit)
    ignore_closed_pipes()


def raise_signals() -> None:
    """Install handlers that raise SystemExit(143) on SIGTERM and KeyboardInterrupt on Ctrl-C, so that the command can
    clean up.
    """
    _install(_raise)
    sys.unraisablehook = _send_again


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Context manager in which SIGTERM or Ctrl-C ends the process immediately, for use while modules are imported."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    _install(_exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_on_sigterm() -> Any:
    """Install a handler that raises SystemExit(143) on SIGTERM, and return the previous handler."""
    sys.unraisablehook = _send_again
    return signal.signal(signal.SIGTERM, _raise)


def ignore_closed_pipes() -> None:
    """Discard further output after the process that reads a pipe, such as ``head``, has closed the pipe. The command
    continues.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # not replaced by another stream
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            stream.flush()
            replacement = io.TextIOWrapper(
                io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, replacement)


class _Pipe(io.FileIO):
    """File descriptor of a pipe that is redirected to ``os.devnull`` after the pipe's reader has closed it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def _install(handler: Handler) -> None:
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _exit, _raise):
        signal.signal(signal.SIGINT, handler)  # otherwise Ctrl-C is ignored, as after a shell's &


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(TERMINATED)


def _send_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Send a signal again if the signal's exception was raised in a destructor or in the callback of a weak reference.

    Python would print the exception and continue.
    """
    error = unraisable.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(error, SystemExit) and error.code == TERMINATED:
        number = signal.SIGTERM
    else:
        sys.__unraisablehook__(unraisable)
        return
    later = threading.Timer(RESEND_DELAY_S, os.kill, (os.getpid(), number))
    later.daemon = True
    with contextlib.suppress(RuntimeError):  # the interpreter is exiting and starts no thread
        later.start()
