"""An exported folder: what is one, and writing it in the place of an earlier one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts import InputError
from files.claims import MARK, leave_mark, refuse_others
from files.whole import whole_folder

# What an export may hold: of earlier releases there is no list, and this is how their folders are known
FILES = re.compile(
    r"README\.md|(config|modules|config_sentence_transformers|sentence_bert_config|generation_config|generator)\.json"
    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|vocab\.txt|merges\.txt"
    r"|(spiece|sentencepiece\.bpe|tokenizer)\.model|chat_template\.jinja|model(_int8)?\.onnx"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
    r"|\d_[A-Z]\w+/(config\.json|model\.safetensors)"
)
# The first heading of the card that every export has, but where another's card lay beside the encoder
CARD = re.compile(r"^# A (sentence encoder|generator and discriminator)( trained with \S+)?$", flags=re.MULTILINE)


def check_replaceable(folder: Path, key: str = "output") -> None:
    """Check that all in the folder is an export's, by its mark, or as earlier releases wrote it.

    Where it lies in the folder of a run, the names are enough: whose it is, is known there.

    Raises:
        InputError: something else lies in it.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{key}={folder}: wanted a folder, but this is a file. Name another.")
    of_a_run = (folder.parent / ".hydra" / "identity").is_file()
    former = of_a_run or (not (folder / MARK).exists() and _has_our_card(folder / "README.md"))
    refuse_others(key, folder, known=lambda name: former and FILES.fullmatch(name) is not None)


def _has_our_card(card: Path) -> bool:
    try:
        return CARD.search(card.read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


@contextmanager
def export_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into; it takes the place of ``folder`` when the block ends well.

    Raises:
        InputError: what is there is no export.
    """
    check_replaceable(folder)
    with whole_folder(folder) as part:
        yield part
        leave_mark(part)
