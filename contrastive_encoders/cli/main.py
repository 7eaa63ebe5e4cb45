"""The ``contrastive-encoders`` command: every command of the project under one name."""

import difflib
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from contrastive_encoders.core.errors import InputError
from contrastive_encoders.core.runtime.signals import install_signal_handlers
from contrastive_encoders.core.versions import LIBRARIES, PROJECT, version_of

COMMANDS = {  # name -> module of contrastive_encoders.cli, what it does
    "train": ("train", "train an encoder, or a generator of triplets"),
    "improve": ("train", "fine-tune an encoder for your texts, and test whether it improved"),
    "adapt": ("compare", "adapt an encoder to documents without labels, and test whether it improved"),
    "preview": ("preview", "show the contents of batches, without training"),
    "evaluate": ("evaluate", "evaluate any encoder with the protocols of the papers"),
    "compare": ("compare", "compare finished runs"),
    "race": ("compare", "train several objectives with the same budget, and compare them"),
    "sweep": ("sweep", "run a hyperparameter sweep without a server"),
    "generate": ("generate", "generate a dataset with a language model"),
    "mine-negatives": ("mine_negatives", "mine hard negatives for text pairs"),
    "download-data": ("download_data", "download public corpora for training"),
    "export": ("export", "export an encoder for other libraries"),
    "embed": ("embed", "embed files of text"),
    "completion": ("completion", "print the script for shell completion"),
}
ADAPT_OUTPUT = "adapted"  # output folder of `adapt`
ADAPT_KEYS = ("encoding", "input_column")  # keys of `generate` that `adapt` passes on
ROW_SUFFIXES = (
    ".jsonl",
    ".json",
    ".csv",
    ".tsv",
    ".parquet",
    ".xlsx",
)  # files of rows; each may be compressed with gzip
DATASET_FILES = ("state.json", "dataset_dict.json")  # in a folder that datasets' save_to_disk has written
OPTIONS_WITH_VALUE = (
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--cfg",
    "-c",
    "--package",
    "-p",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names with the arguments after it; the default is ``sys.argv[1:]``."""
    install_signal_handlers()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write(overview())
        return
    if name == "--version":
        sys.stdout.writelines(f"{package} {version_of(package)}\n" for package in (PROJECT, *LIBRARIES))
        return
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" The nearest is {near[0]}." if near else ""
        names = ", ".join(COMMANDS)
        sys.stderr.write(f"contrastive-encoders: unknown command {name!r}: expected one of {names}.{hint}\n")
        sys.exit(2)
    try:  # `exit_statuses` imports Hydra; the other commands' mains call it themselves
        if name in EXPANSIONS:
            rest = EXPANSIONS[name](rest)
        importlib.import_module(f"contrastive_encoders.cli.{COMMANDS[name][0]}").main(rest, name)
    except InputError as error:
        sys.stderr.write(f"contrastive-encoders {name}: {error}\n")
        sys.exit(2)


def adapt_arguments(arguments: list[str]) -> list[str]:
    """Expand the arguments of ``adapt`` to those of ``compare`` with ``race=documents``. Its ``output`` is called
    ``output_dir`` here, as in ``improve``. `ADAPT_KEYS`, which messages of `generate` name, are keys of the race.

    Raises:
        InputError: no documents are named, or ``output`` is set.
    """
    _, texts, rest = _paths("adapt", "race.texts", arguments)
    for key, _, value in (argument.partition("=") for argument in rest):
        if key == "output":
            raise InputError(key=key, value=value, expected="a key that exists", hint=f"Set output_dir={value}.")
    rest = [re.sub("^output_dir=", "output=", argument) for argument in rest]
    rest = [re.sub(f"^({'|'.join(ADAPT_KEYS)})=", r"race.\1=", argument) for argument in rest]
    output = [] if any(argument.startswith("output=") for argument in rest) else [f"output={ADAPT_OUTPUT}"]
    return _insert_arguments(["hydra/help=adapt", "race=documents", *texts, *output], rest)


def improve_arguments(arguments: list[str]) -> list[str]:
    """Expand the arguments of ``improve`` to those of ``train`` with ``experiment=improve``. Folders, and files without
    rows, are documents.

    Raises:
        InputError: no texts are named.
    """
    paths, texts, rest = _paths("improve", "data.path", arguments)
    is_chosen = any(argument.startswith("data=") for argument in arguments)
    data = [] if is_chosen or not any(map(_contains_documents, paths)) else ["data=text"]
    return _insert_arguments(["hydra/help=improve", "experiment=improve", *data, *texts], rest)


def race_arguments(arguments: list[str]) -> list[str]:
    """Expand the arguments of ``race`` to those of ``compare``: ``race=head_to_head`` is added unless another race is
    chosen.
    """
    is_chosen = any(argument.startswith("race=") for argument in arguments)
    return _insert_arguments(["hydra/help=race", *([] if is_chosen else ["race=head_to_head"])], arguments)


# command -> function that expands its arguments
EXPANSIONS = {"adapt": adapt_arguments, "improve": improve_arguments, "race": race_arguments}


def _insert_arguments(added: list[str], arguments: list[str]) -> list[str]:
    """Insert arguments between the leading options, which Hydra reads first, and the first ``KEY=VALUE``."""
    values = {place + 1 for place, argument in enumerate(arguments) if argument in OPTIONS_WITH_VALUE}
    keys = (place for place, argument in enumerate(arguments) if not argument.startswith("-") and place not in values)
    first = next(keys, len(arguments))
    return [*arguments[:first], *added, *arguments[first:]]


def _paths(command: str, key: str, arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split the arguments of ``command``, and return its paths, an argument that sets ``key`` to these paths, and the
    other arguments.

    Raises:
        InputError: there is no path, and the key is not set; or an argument is neither a path nor KEY=VALUE.
    """
    from contrastive_encoders.core.override_format import format_override

    values = {place + 1 for place, argument in enumerate(arguments) if argument in OPTIONS_WITH_VALUE}
    paths = [argument for place, argument in enumerate(arguments) if place not in values and _is_path(argument)]
    if not paths and not any(argument.startswith((f"{key}=", "-h", "--help")) for argument in arguments):
        raise InputError(key=key, expected=f"a file or a directory of texts after the command {command}")
    for path in paths:
        if re.fullmatch(r"\w+", path) and not Path(path).exists():  # perhaps a key
            hint = f"contrastive-encoders {command} --help lists the keys."
            raise InputError(key=path, expected="a file or a directory that exists, or KEY=VALUE", hint=hint)
    listed = [format_override("", path)[1:] for path in paths]
    value = listed[0] if len(listed) == 1 else f"[{','.join(listed)}]"
    return paths, [f"{key}={value}"] if listed else [], [argument for argument in arguments if argument not in paths]


def _contains_documents(path: str) -> bool:
    """Return whether a path is a document or a folder of documents, as opposed to a table or a dataset with rows."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return not any((folder / name).exists() for name in DATASET_FILES)
    return folder.is_file() and Path(folder.name.lower().removesuffix(".gz")).suffix not in ROW_SUFFIXES


def _is_path(argument: str) -> bool:
    """Return whether an argument is a path, that is, neither an option nor an override (``key=value``, ``+key=value``,
    ``~key``).
    """
    if argument.startswith(("-", "+")) or (argument.startswith("~") and not argument.startswith("~/")):
        return False
    return "=" not in argument or Path(argument).exists()


def overview() -> str:
    """Return the text of ``contrastive-encoders --help``, which lists the commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}} {does}" for name, (_, does) in COMMANDS.items()]
    return "\n".join(
        [
            "Train, evaluate, compare, and export contrastive sentence encoders, and generate training data.\n",
            "  contrastive-encoders COMMAND [KEY=VALUE ...]\n",
            *lines,
            "\ncontrastive-encoders COMMAND --help lists a command's keys.\n",
        ]
    )
