"""Import of the large modules that a command needs once its keys are checked; the import takes seconds."""

import contextlib
import gc
from collections.abc import Iterator

from contrastive_encoders.core.runtime.signals import exit_on_signals


@contextlib.contextmanager
def module_imports() -> Iterator[None]:
    """Context manager for imports of large modules: a signal ends the process, and no garbage is collected.

    Torch and the libraries that use it create a million objects, which exist until the process ends. Visiting them
    takes a sixth of the time of the imports, so later collections do not visit them either.
    """
    gc.disable()
    try:
        with exit_on_signals():
            yield
    finally:
        gc.freeze()
        gc.enable()
