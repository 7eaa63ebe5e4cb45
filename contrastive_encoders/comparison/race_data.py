"""Generate the data sets of a race with ``contrastive-encoders generate`` commands, each in a child process."""

import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contrastive_encoders.comparison.run_scheduler import WRONG_INPUT
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.runtime.child_processes import start
from contrastive_encoders.core.runtime.signals import INTERRUPTED, TERMINATED


def prepare(commands: Mapping[str, Sequence[str]], options: Sequence[str] = ()) -> None:
    """Generate the missing data sets of a race. A command whose data set is finished does nothing.

    The commands write to the terminal of this process.

    Args:
        commands: overrides of each command, by name.
        options: options and overrides of Hydra for each command.

    Raises:
        InputError: a command rejected its overrides or its input, and has logged why.
        OutputError: a command failed; starting the same race again resumes it.
        KeyboardInterrupt, SystemExit: SIGINT or SIGTERM was received, and the command has kept its finished part.
    """
    for name, overrides in commands.items():
        flags = [option for option in options if option.startswith("-")]
        common = [option for option in options if not option.startswith("-")]
        process = start([sys.executable, "-m", "contrastive_encoders", "generate", *flags, *overrides, *common])
        try:
            status = process.wait()
        except (KeyboardInterrupt, SystemExit):
            process.terminate()
            process.wait()
            raise
        if status in (INTERRUPTED, -signal.SIGINT):
            raise KeyboardInterrupt
        if status in (TERMINATED, -signal.SIGTERM):
            raise SystemExit(TERMINATED)
        if status == WRONG_INPUT:
            raise InputError(
                key=f"race.prepare.{name}", expected="valid overrides of `generate`", hint="The reason is logged above."
            )
        if status:
            raise OutputError(
                f"race.prepare.{name} failed with exit code {status}; the reason is logged above. Its output "
                "so far is kept. Rerun the same command to resume."
            )


def commands_of(commands: object, where: str) -> dict[str, list[str]]:
    """Parse the ``prepare`` entry of a race, and return a mapping from the name of each `generate` command to its
    overrides.

    Raises:
        InputError: ``prepare`` is not a mapping of names to lists of overrides.
    """
    if commands is None:
        return {}
    if not isinstance(commands, Mapping) or not all(isinstance(overrides, list) for overrides in commands.values()):
        raise InputError(
            location=where,
            key="prepare",
            value=commands,
            expected="a mapping from the name of each command to a list of overrides of `generate`",
        )
    return {str(name): list(_flat(overrides)) for name, overrides in commands.items()}


def race_overrides(race: Mapping[str, Any]) -> list[str]:
    """Return all overrides of a race: the overrides of each arm, the overrides that all arms share, and the overrides
    of the selection runs.
    """
    arms, choice = race.get("arms") or {}, race.get("choose") or {}
    own = [overrides for overrides in arms.values() if isinstance(overrides, list)]
    return list(_flat([*own, race.get("common") or [], choice.get("words") or []]))


def needed(commands: Mapping[str, Sequence[str]], overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the `generate` commands whose data sets the race needs.

    A command is needed if its output directory is named in ``overrides`` or in the overrides of another needed command,
    or if the command has no ``output=``.
    """
    outputs = {name: _output_of(command) for name, command in commands.items()}
    names = {name for name, output in outputs.items() if output is None}
    texts = [*overrides, *(override for name in names for override in commands[name])]
    while texts:
        more = {
            name
            for name in commands.keys() - names
            if any(re.search(rf"{re.escape(outputs[name] or '')}(?![\w.-])", text) for text in texts)
        }
        names |= more
        texts = [override for name in more for override in commands[name] if not override.startswith("output=")]
    return {name: list(command) for name, command in commands.items() if name in names}


def _output_of(command: Sequence[str]) -> str | None:
    """Return the value of ``output=`` in the overrides of a command, or None if there is none."""
    outputs = [override.partition("=")[2].strip("'\"") for override in command if override.startswith("output=")]
    return outputs[-1] if outputs else None


def _flat(overrides: Sequence[Any]) -> Iterator[str]:
    for override in overrides:
        yield from _flat(override) if isinstance(override, list) else [str(override)]
