"""Log lines on stderr, of commands and of functions called from Python."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

from contrastive_encoders.runtime.process_group import find_ranks

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
    """Plain lines on stderr; of several processes the first one says what all know."""
    first = find_ranks().rank == 0
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO if first and not quiet else logging.WARNING, handlers=[_ToStderr()])


@contextlib.contextmanager
def logs_shown(quiet: bool = False) -> Iterator[None]:
    """The same lines while a function of ours works for somebody who has set up no log of his own; then no more."""
    root = logging.getLogger()
    if quiet or (root.handlers and root.isEnabledFor(logging.INFO)):
        yield
        return
    handler = _ToStderr()
    handler.addFilter(lambda record: record.levelno < logging.WARNING or not root.handlers)  # which says it already
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
    """To stderr as it is when something is said: a live line moves it, and goes on below."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """It is always the same."""
