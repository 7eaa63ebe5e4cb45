"""The entry point of a command, with Hydra or without it: logging, exit code, and ``--help``; with Hydra also
composition and key checks.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.core.config_schema import build
from contrastive_encoders.core.runtime.child_processes import init_process
from contrastive_encoders.core.runtime.exit_codes import exit_statuses
from contrastive_encoders.core.runtime.log_output import log_to_terminal
from contrastive_encoders.training.composition.config_errors import explain_errors
from contrastive_encoders.training.composition.config_files import CONFIGS, choices
from contrastive_encoders.training.composition.config_keys import check_numbers
from contrastive_encoders.training.composition.config_store import register, to_container
from contrastive_encoders.training.composition.key_docs import keys_of_settings, row, wrap_text
from contrastive_encoders.training.composition.literal_values import literal_overrides
from contrastive_encoders.training.composition.override_checks import check_options, check_override_syntax, check_paths

Config = TypeVar("Config")

# Arguments of a command that have the same names as groups of configs/, and the keys that they refer to
GROUP_NAME_ALIASES = {"generate": {"prompts": "+prompts.file", "model": "generator"}}


def command_line(
    config: str,
    run: Callable[[DictConfig, Sequence[str]], int | None],
    kind: type | None = None,
    failed: tuple[type[Exception], ...] = (),
) -> Callable[[Sequence[str], str], None]:
    """Return the ``main`` function of a command, which composes the config with Hydra and calls ``run``.
    ``configs/CONFIG.yaml`` names the dataclass of its keys.

    Args:
        run: takes the config and the arguments it was composed from, and returns the exit code.
        kind: the config dataclass of the command, which is registered; None: those of its groups.
        failed: error classes that end the command with exit code 1.
    """
    if kind is not None:
        register({config: kind})

    def main(arguments: Sequence[str], command: str = config) -> None:
        init_process()
        started_with = sys.argv[1:]  # `local_ranks.start_ranks` starts the other ranks with them
        arguments = [_as_a_key(argument, GROUP_NAME_ALIASES.get(config, {})) for argument in arguments]

        @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config)
        def body(cfg: DictConfig) -> None:
            log_to_terminal(quiet=bool(cfg.get("quiet")))
            with _arguments(started_with), exit_statuses(command, explain_errors(config, arguments), failed=failed):
                check_numbers(cfg)
                check_paths(cfg)
                status = run(cfg, arguments)
            if status:  # otherwise a multirun continues
                sys.exit(status)

        with exit_statuses(command, explain_errors(config, arguments, composing=True), hydra=True):
            check_options(config, arguments)
            arguments = literal_overrides(config, arguments, kind)
            check_override_syntax(config, arguments)
            with _arguments(arguments):
                body()

    return main


def run_without_hydra(
    command: str, run: Callable[[Sequence[str]], int], arguments: Sequence[str], about: str, kind: type, **options: Any
) -> None:
    """Run a command that parses its arguments itself, or print its ``--help``.

    Args:
        run: takes the arguments, and returns the exit code.
        about: the text of ``--help`` above the keys.
        kind: the config dataclass of the command.
        options: ``quiet``, as for `log_to_terminal`, and arguments of `exit_statuses`.
    """
    init_process()
    log_to_terminal(quiet=options.pop("quiet", False))
    with exit_statuses(command, **options):
        if {"-h", "--help"} & set(arguments):
            sys.stdout.write("\n".join([about, *map(row, keys_of_settings(kind)), ""]))
            return
        status = run(arguments)
    if status:
        sys.exit(status)


def config_of(cfg: DictConfig, kind: type[Config], without: str = "") -> Config:
    """Convert the composed config of a command to its config dataclass. The key ``without`` is left out.

    Raises:
        InputError: a key is unknown, or a value has another type or is out of bounds.
    """
    return build(kind, to_container(OmegaConf.masked_copy(cfg, [name for name in map(str, cfg) if name != without])))


@contextlib.contextmanager
def _arguments(arguments: Sequence[str]) -> Iterator[None]:
    """Context manager that replaces ``sys.argv[1:]``, the arguments that Hydra parses."""
    before = sys.argv[1:]
    sys.argv[1:] = arguments
    try:
        yield
    finally:
        sys.argv[1:] = before


def _as_a_key(argument: str, keys: Mapping[str, str]) -> str:
    group, equals, value = argument.partition("=")
    is_choice = group == "prompts" and value in choices(group)
    return f"{keys[group]}={value}" if equals and group in keys and not is_choice else argument


def _choices_of(*groups: str, _root_: DictConfig) -> str:
    """Return the choices of each of these config groups as text for ``--help``. Hydra's own list has one line of any
    length per group, and includes all commands.
    """
    if "job" not in _root_.hydra:  # it is also resolved while the config is composed, when it is not shown
        return ""
    loader: Any = GlobalHydra.instance().config_loader()
    return "\n".join(wrap_text(f"{group}: {', '.join(sorted(loader.get_group_options(group)))}") for group in groups)


OmegaConf.register_new_resolver("choices_of", _choices_of, replace=True)
