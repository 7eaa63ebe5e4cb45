"""The ``contrastive-encoders`` entry point: every command of the project under one name, from any folder."""

import importlib
import sys
from pathlib import Path

from cli.command_names import COMMANDS, CONSOLE, use
from cli.config_files import ROOT
from cli.signals import heed_signals
from contracts import InputError

ADAPTED = "adapted"  # output folder of `adapt`
WITH_VALUE = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")  # Hydra's, a value behind each


def main() -> None:
    """Hand over to the command, which takes the words behind its name."""
    heed_signals()
    given = sys.argv[1:] or ["--help"]
    size = 2 if " ".join(given[:2]) in COMMANDS else 1
    name, words = " ".join(given[:size]), given[size:]
    if name in ("-h", "--help"):
        sys.stdout.write(overview())
        return
    if name not in COMMANDS:
        sys.stderr.write(f"{CONSOLE}: there is no command {name!r}; there are {', '.join(COMMANDS)}.\n")
        sys.exit(2)
    module = COMMANDS[name][0]
    if name == "race":
        chosen = any(word.startswith("race=") for word in words)
        words = ["hydra/help=race", *([] if chosen else ["race=head_to_head"]), *words]
    if name == "adapt":
        try:
            words = of_documents(words)
        except InputError as error:
            sys.stderr.write(f"{CONSOLE} adapt: {error}\n")
            sys.exit(2)
    # Lightning starts its other processes by this path; beside it they find our modules, wherever the user is
    sys.argv = [str(ROOT / f"{module.replace('.', '/')}.py"), *words]
    use(name)
    importlib.import_module(module).main()


def of_documents(words: list[str]) -> list[str]:
    """The words of a race over documents: files and folders stand without a key.

    Raises:
        InputError: no documents are named.
    """
    from cli.keys import word_of

    values = {place + 1 for place, word in enumerate(words) if word in WITH_VALUE}
    paths = [word for place, word in enumerate(words) if place not in values and _is_path(word)]
    if not paths and not any(word.startswith(("race.texts=", "-h", "--help")) for word in words):
        raise InputError(f"your documents are not named. Say {CONSOLE} adapt FILE_OR_FOLDER.")
    given = [word_of("", path)[1:] for path in paths]
    together = given[0] if len(given) == 1 else f"[{','.join(given)}]"
    texts = [f"race.texts={together}"] if given else []
    output = [] if any(word.startswith("output=") for word in words) else [f"output={ADAPTED}"]
    return ["hydra/help=adapt", "race=documents", *texts, *output, *(word for word in words if word not in paths)]


def _is_path(word: str) -> bool:
    """Whether a word is neither an option nor one of Hydra's: ``key=value``, ``+key=value``, ``~key``."""
    if word.startswith(("-", "+")) or (word.startswith("~") and not word.startswith("~/")):
        return False
    return "=" not in word or Path(word).exists()


def overview() -> str:
    """What ``--help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}} {does}" for name, (_, _, does) in sorted(COMMANDS.items())]
    return "\n".join(
        [
            "Contrastive sentence encoders: train, score, export and compare them, and make their data.\n",
            f"  {CONSOLE} COMMAND [KEY=VALUE ...]\n",
            *lines,
            f"\n{CONSOLE} COMMAND --help lists a command's keys.\n",
        ]
    )
