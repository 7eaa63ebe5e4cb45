"""Data that a race makes before anything is trained: commands of ``python -m synthesis``, each in a child process."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.child_processes import start
from cli.signals import INTERRUPTED, TERMINATED
from comparison.train_processes import WRONG_INPUT
from contracts import InputError, NotWritten

SYNTHESIS = Path(__file__).resolve().parents[1] / "synthesis" / "__main__.py"


def prepare(commands: Mapping[str, Sequence[str]], options: Sequence[str] = ()) -> None:
    """Make the data of a race, or what is missing of it; a command whose data set is finished does nothing.

    ``options`` are words for Hydra in each command. What a command prints is shown.

    Raises:
        InputError: a command refused its words or its input, and has said why.
        NotWritten: a command failed; the same race goes on with it.
        KeyboardInterrupt, SystemExit: SIGINT or SIGTERM came, and the command has kept what it had.
    """
    for name, words in commands.items():
        flags = [option for option in options if option.startswith("-")]
        rest = [option for option in options if not option.startswith("-")]
        process = start([sys.executable, str(SYNTHESIS), *flags, *words, *rest])
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
            raise InputError(f"race.prepare.{name}: python -m synthesis refused its input, for the reason above.")
        if status:
            raise NotWritten(
                f"race.prepare.{name}: python -m synthesis ended with status {status}, for the reason above. What it "
                "had written is kept; the same command goes on."
            )


def commands_of(given: object, where: str) -> dict[str, list[str]]:
    """Return the words of each command of a race's ``prepare``, by the command's name.

    Raises:
        InputError: it is no mapping of a name to the words of a command.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(words, list) for words in given.values()):
        raise InputError(f"{where}: wanted prepare, a mapping of a name to words of python -m synthesis.")
    return {str(name): list(_flat(words)) for name, words in given.items()}


def _flat(words: Sequence[Any]) -> Iterator[str]:
    """The words, and in their place those of lists among them."""
    for word in words:
        yield from _flat(word) if isinstance(word, list) else [str(word)]
