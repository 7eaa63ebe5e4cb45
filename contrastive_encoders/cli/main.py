"""The ``contrastive-encoders`` entry point: every command of the project under one name, from any folder."""

import importlib
import sys
from pathlib import Path

from contrastive_encoders.composition.command_names import COMMANDS, CONSOLE, use
from contrastive_encoders.composition.config_files import ROOT
from contrastive_encoders.core import InputError
from contrastive_encoders.runtime.signals import heed_signals

ADAPTED = "adapted"  # output folder of `adapt`
ROWS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")  # files of rows; each may be compressed with gzip
DATASET_FILES = ("state.json", "dataset_dict.json")  # in a folder that datasets' save_to_disk has written
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
    if name in OF_PATHS:
        try:
            words = OF_PATHS[name](words)
        except InputError as error:
            sys.stderr.write(f"{CONSOLE} {name}: {error}\n")
            sys.exit(2)
    # Lightning starts its other processes by this path; beside it they find our modules, wherever the user is
    sys.argv = [str(ROOT / f"{module.replace('.', '/')}.py"), *words]
    use(name)
    importlib.import_module(module).main()


def adapt_words(words: list[str]) -> list[str]:
    """Return the words of a race over documents.

    Raises:
        InputError: no documents are named.
    """
    _, texts, rest = _paths("adapt", "race.texts", words)
    output = [] if any(word.startswith("output=") for word in words) else [f"output={ADAPTED}"]
    return ["hydra/help=adapt", "race=documents", *texts, *output, *rest]


def improve_words(words: list[str]) -> list[str]:
    """Return the words of a training with ``experiment=improve``: folders and files without rows are documents.

    Raises:
        InputError: no texts are named.
    """
    paths, texts, rest = _paths("improve", "data.path", words)
    is_chosen = any(word.startswith("data=") for word in words)
    data = [] if is_chosen or not any(map(_holds_documents, paths)) else ["data=text"]
    return ["hydra/help=improve", "experiment=improve", *data, *texts, *rest]


OF_PATHS = {"adapt": adapt_words, "improve": improve_words}  # commands whose files and folders are named without a key


def _paths(command: str, key: str, words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the paths among the words, the word that sets ``key`` to them, and all other words.

    Raises:
        InputError: there is no path, and the key is not set.
    """
    from contrastive_encoders.composition.config_keys import word_of

    values = {place + 1 for place, word in enumerate(words) if word in WITH_VALUE}
    paths = [word for place, word in enumerate(words) if place not in values and _is_path(word)]
    if not paths and not any(word.startswith((f"{key}=", "-h", "--help")) for word in words):
        raise InputError(
            key=key, expected="a file or a folder of your texts", hint=f"Say {CONSOLE} {command} FILE_OR_FOLDER."
        )
    listed = [word_of("", path)[1:] for path in paths]
    together = listed[0] if len(listed) == 1 else f"[{','.join(listed)}]"
    return paths, [f"{key}={together}"] if listed else [], [word for word in words if word not in paths]


def _holds_documents(path: str) -> bool:
    """Whether a path is a folder of documents or a document, not a table or a data set with rows."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return not any((folder / name).exists() for name in DATASET_FILES)
    return folder.is_file() and Path(folder.name.lower().removesuffix(".gz")).suffix not in ROWS


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
