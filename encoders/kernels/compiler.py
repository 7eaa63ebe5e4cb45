"""Setup of torch's compiler for single layers: check whether it works, and measure the cost of compilation."""

import functools
import signal
import time
from typing import Any, NamedTuple

import torch

from contrastive_encoders.compat import call_around_compilations, compiled_graphs, set_up_compiler
from contrastive_encoders.core import InputError

DEFAULT_BACKEND = "inductor"
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # terminals and schedulers send these to each process of a run
MAX_GRAPHS = 64  # per function: sizes are symbolic, except for size 1 and the presence of a mask


class Cost(NamedTuple):
    """Time spent on compilation, in seconds, and number of compiled graphs (forward and backward)."""

    seconds: float
    graphs: int


class _Watch:
    """Timer of compilations, which blocks SIGINT and SIGTERM while a compilation runs.

    A signal that asks the run to stop would terminate compilers such as g++, torch would raise an error, and the step
    would not be finished. Compilers inherit the blocked signals.
    """

    def __init__(self) -> None:
        self.started, self.seconds = time.monotonic(), 0.0

    def start(self, *_: Any) -> None:
        self.started = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)

    def stop(self, *_: Any) -> None:
        self.seconds += time.monotonic() - self.started
        signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)


@functools.cache
def _watch() -> _Watch:
    return _Watch()


def cost() -> Cost:
    """Return the cost of compilation in this process so far, which is zero if nothing was compiled."""
    if not _watch.cache_info().currsize:
        return Cost(0.0, 0)
    return Cost(_watch().seconds, compiled_graphs())


def configure_compiler() -> None:
    """Set up torch's compiler for single layers, and start measuring the time of compilation."""
    set_up_compiler(MAX_GRAPHS)
    call_around_compilations(_watch().start, _watch().stop)


def check_compiler(device: torch.device, backend: str) -> None:
    """Check that torch's compiler works on a device.

    Raises:
        InputError: If nothing can be compiled on this device.
    """
    if (why := compiler_error(device, backend)) is not None:
        raise InputError(
            key="model.compile",
            value=True,
            expected=f"false, or {'a C++ compiler (g++)' if device.type == 'cpu' else 'Triton, a C compiler (gcc)'} "
            f"and Python's headers for torch's compiler ({why})",
        )


@functools.cache
def compiler_error(device: torch.device, backend: str) -> str | None:
    """Compile a small function, and return the first line of the error, or None if compilation works.

    This takes a second or two.
    """
    try:
        torch.compile(lambda x: x.sin() * x, backend=backend)(torch.ones(8, device=device))
    except Exception as error:  # noqa: BLE001  # each part of the toolchain raises different errors
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and "raised:" not in line]
        return lines[0].rstrip(".") if lines else type(error).__name__
    return None
