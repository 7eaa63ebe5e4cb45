"""Logging to stderr, for commands and for the Python API."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

from contrastive_encoders.core.runtime.process_group import find_ranks

NOISY_LOGGERS = (
    "httpx",
    "httpx2",
    "huggingface_hub",
    "urllib3",
    "filelock",
    "fsspec",
    "botocore",
    "aiobotocore",
    "faiss",
    "openai",
    "sentence_transformers",
)  # they log a line per request


def log_to_terminal(quiet: bool = False) -> None:
    """Configure logging to stderr as plain messages. If there are several ranks, only rank 0 logs messages below the
    level of warnings.
    """
    first = find_ranks().rank == 0
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO if first and not quiet else logging.WARNING, handlers=[_ToStderr()])


@contextlib.contextmanager
def logs_shown(quiet: bool = False) -> Iterator[None]:
    """Context manager that shows this project's log messages during a call of the Python API, unless the caller has
    configured logging.
    """
    root = logging.getLogger()
    if quiet or (root.handlers and root.isEnabledFor(logging.INFO)):
        yield
        return
    handler = _ToStderr()
    # the root logger already shows it
    handler.addFilter(lambda record: record.levelno < logging.WARNING or not root.handlers)
    logger = logging.getLogger("contrastive_encoders")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _ToStderr(logging.StreamHandler[TextIO]):
    """Log handler that looks up ``sys.stderr`` for each message, because a progress bar replaces ``sys.stderr``
    temporarily.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """Ignore the assigned stream, because the handler always writes to the current ``sys.stderr``."""
