"""Names of the commands, and the name that the current command was started by, for messages and help."""

import re
import sys
from pathlib import Path

CONSOLE = "contrastive-encoders"
COMMANDS = {  # name on the console -> module, how it is called without the console, what it does
    "improve": (
        "train",
        "python train.py experiment=improve",
        "make the encoder that you have better for your texts, and prove it",
    ),
    "train": ("train", "python train.py", "train an encoder, or a generator of triplets"),
    "evaluate": (
        "contrastive_encoders.cli.evaluate",
        "contrastive-encoders evaluate",
        "score any encoder with the protocols of the papers",
    ),
    "prepare-data": (
        "contrastive_encoders.cli.download_data",
        "contrastive-encoders download-data",
        "get public corpora to train on",
    ),
    "prepare-data mine": (
        "contrastive_encoders.cli.mine_negatives",
        "contrastive-encoders mine-negatives",
        "find hard negatives for pairs of texts",
    ),
    "synthesise": (
        "contrastive_encoders.cli.generate",
        "contrastive-encoders generate",
        "make a data set by instructing a language model",
    ),
    "embed": ("export.embed", "contrastive-encoders embed", "turn a file of texts into a file of vectors"),
    "export": (
        "contrastive_encoders.cli.export",
        "contrastive-encoders export",
        "write an encoder as a folder that other libraries load",
    ),
    "sweep": ("contrastive_encoders.cli.sweep", "contrastive-encoders sweep", "run a sweep file without a server"),
    "race": (
        "contrastive_encoders.cli.compare",
        "contrastive-encoders race race=head_to_head",
        "train objectives head to head, and compare",
    ),
    "adapt": (
        "contrastive_encoders.cli.compare",
        "contrastive-encoders adapt",
        "make an encoder for your documents, without labels, and prove it",
    ),
    "compare": ("contrastive_encoders.cli.compare", "contrastive-encoders compare", "set finished runs head to head"),
    "preview": ("preview", "contrastive-encoders preview", "show what a batch is, without training"),
}
_used: list[str] = []  # the console's command that this process was started as


def use(command: str) -> None:
    """From now on messages name the console's command."""
    _used[:] = [command]


def command_of(config: str) -> str:
    """Return the command whose keys are in ``configs/CONFIG.yaml``, such as ``contrastive-encoders mine-negatives``, or the
    console's command that is in use.
    """
    if _used:
        return f"{CONSOLE} {_used[0]}"
    modules = {plain: module.removesuffix(".__main__") for module, plain, _ in COMMANDS.values()}
    return min((plain for plain, module in modules.items() if f".{module}".endswith(f".{config}")), key=len)


def name_used() -> str:
    """Whose message it is: ``train.py``, ``evaluation`` or ``contrastive-encoders train``."""
    path = Path(sys.argv[0])
    return f"{CONSOLE} {_used[0]}" if _used else path.parent.name if path.stem == "__main__" else path.name


def as_used(text: str) -> str:
    """The text, with commands as the user calls them: on the console, ``contrastive-encoders NAME``."""
    if not _used:
        return text
    for name, (module, plain, _) in COMMANDS.items():
        launched = "train.py" if name == "train" else f"-m {module.removesuffix('.__main__')}"
        text = re.sub(rf"{re.escape(plain)}(?![\w.])", f"{CONSOLE} {name}", text)
        text = re.sub(rf"(torchrun [^\n]*?\d ){launched}(?![\w.])", rf"\1--no-python {CONSOLE} {name}", text)
    return text
