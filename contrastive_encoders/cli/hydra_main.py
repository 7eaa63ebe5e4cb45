"""The Hydra entry point of every command: composition, key checks, logging, exit status and ``--help``."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.composition.command_names import as_used
from contrastive_encoders.composition.config_files import CONFIGS, choices
from contrastive_encoders.composition.config_keys import check_numbers, check_types, declared
from contrastive_encoders.composition.key_docs import filled
from contrastive_encoders.composition.literal_values import literal_words
from contrastive_encoders.composition.override_checks import check_options, check_paths, check_words
from contrastive_encoders.runtime.child_processes import begin_process
from contrastive_encoders.runtime.exit_codes import exit_statuses
from contrastive_encoders.runtime.process_group import find_ranks, local_rank

CHATTY = (
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
)  # too many lines
OURS = (  # loggers
    "cli",
    "datamodules",
    "encoders",
    "evaluation",
    "export",
    "losses",
    "readers",
    "reports",
    "storage",
    "train",
    "training",
)
# Words of a command that are called like a group of configs/, of which they would choose a file, and the keys they mean
AS_A_KEY = {"synthesis": {"prompts": "+prompts.file", "model": "generator"}}


def command_line(
    config: str,
    run: Callable[[DictConfig], int | None],
    keys: type | None = None,
    failed: tuple[type[Exception], ...] = (),
) -> Callable[[], None]:
    """The ``main`` of a command whose keys are in ``configs/CONFIG.yaml``.

    ``run`` gives the exit status, ``keys`` declares the types, ``failed`` are the errors of status 1.
    """

    @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config)
    def body(cfg: DictConfig) -> None:
        log_to_terminal(quiet=bool(cfg.get("quiet")))
        with exit_statuses(failed=failed, config=config):
            check_numbers(cfg)
            check_paths(cfg)
            check_types(cfg, declared(keys) if keys else {})
            status = run(cfg)
        if status:  # else a multirun goes on
            sys.exit(status)

    def main() -> None:
        begin_process()
        sys.argv[1:] = [_as_a_key(word, AS_A_KEY.get(config, {})) for word in sys.argv[1:]]
        with exit_statuses(hydra=True, config=config):
            check_options(config, sys.argv[1:])
            sys.argv[1:] = literal_words(config, sys.argv[1:], keys)
            check_words(config, sys.argv[1:])
            body()

    return main


def _as_a_key(word: str, keys: Mapping[str, str]) -> str:
    group, equals, value = word.partition("=")
    is_choice = group == "prompts" and value in choices(group)
    return f"{keys[group]}={value}" if equals and group in keys and not is_choice else word


def log_to_terminal(quiet: bool = False) -> None:
    """Plain lines on stderr; of several processes the first one says what all know."""
    first = find_ranks().rank == local_rank() == 0  # Lightning gives its processes a place on the machine alone
    for name in CHATTY:
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
    loggers = {logging.getLogger(name): logging.getLogger(name).level for name in OURS}
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in loggers.items():
            logger.removeHandler(handler)
            logger.setLevel(level)


class _ToStderr(logging.StreamHandler[TextIO]):
    """To stderr as it is when something is said: a live line moves it, and goes on below."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_AsUsed("%(message)s"))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """It is always the same."""


class _AsUsed(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return as_used(super().format(record))


def _choices_of(*groups: str, _root_: DictConfig) -> str:
    """What ``--help`` lists; Hydra's own list of the groups has a line of any length for each, and of all commands."""
    if "job" not in _root_.hydra:  # it is resolved while the config is being made, too, for nobody
        return ""
    loader: Any = GlobalHydra.instance().config_loader()
    return "\n".join(filled(f"{group}: {', '.join(sorted(loader.get_group_options(group)))}") for group in groups)


OmegaConf.register_new_resolver("choices_of", _choices_of, replace=True)
OmegaConf.register_new_resolver("as_used", as_used, replace=True)
