"""Check whether torch's compiler works here, set it up for single layers, and measure what compilation costs."""

import functools
import signal
import time
from typing import Any, NamedTuple

import torch

from contrastive_encoders.compat import call_around_compilations, compiled_graphs, set_up_compiler
from contrastive_encoders.core import InputError

USUAL = "inductor"
SENT_TO_ALL = (signal.SIGINT, signal.SIGTERM)  # by a terminal or a scheduler, to each process of a run
MAX_GRAPHS = 64  # of one function: its sizes are symbols, but 1 is not, nor is whether there is a mask


class Cost(NamedTuple):
    """Seconds that compilation took, and number of graphs compiled for forward and backward passes."""

    seconds: float
    graphs: int


class _Watch:
    """Measures how long a compilation takes, and holds back signals meanwhile. A signal that asks the run to stop would
    end compilers such as g++, which inherit what is held back here; torch would raise an error, and the step would not
    be finished.
    """

    def __init__(self) -> None:
        self.begun, self.seconds = time.monotonic(), 0.0

    def start(self, *_: Any) -> None:
        self.begun = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, SENT_TO_ALL)

    def stop(self, *_: Any) -> None:
        self.seconds += time.monotonic() - self.begun
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT_TO_ALL)


@functools.cache
def _watch() -> _Watch:
    return _Watch()


def cost() -> Cost:
    """Return the cost of compilation in this process so far; zero if nothing was compiled."""
    if not _watch.cache_info().currsize:
        return Cost(0.0, 0)
    return Cost(_watch().seconds, compiled_graphs())


def configure_compiler() -> None:
    """Set up torch's compiler for single layers, and start the clock of compilation."""
    set_up_compiler(MAX_GRAPHS)
    call_around_compilations(_watch().start, _watch().stop)


def check_compiler(device: torch.device, backend: str) -> None:
    """Check that the compiler works.

    Raises:
        InputError: nothing can be compiled on this device.
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
    """Compile a small function, which takes a second or two. Return the compiler's error, or None if it works."""
    try:
        torch.compile(lambda x: x.sin() * x, backend=backend)(torch.ones(8, device=device))
    except Exception as error:  # noqa: BLE001  # each part of the tool chain has its own
        said = [line.strip() for line in str(error).splitlines() if line.strip() and "raised:" not in line]
        return said[0].rstrip(".") if said else type(error).__name__
    return None
