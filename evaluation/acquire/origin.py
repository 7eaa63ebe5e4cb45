"""What a set is to the code that gets it: its tables, its licence, and where they can be had, best first."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from evaluation.acquire.archives import Members
from evaluation.acquire.download import File
from evaluation.acquire.tables import Rows, Table

Maker = Callable[[Members], Rows | np.ndarray]  # an array is (vectors, width)


class Alternative(NamedTuple):
    """One place that has some or all tables of a set."""

    name: str
    files: tuple[File, ...]
    tables: Mapping[str, Maker]  # table's key -> its rows, made of the files' members


class Origin(NamedTuple):
    """A set, for example ``STS12``."""

    name: str
    licence: str
    tables: tuple[Table, ...]
    alternatives: tuple[Alternative, ...]
    note: str = ""  # what a reader of the listing should know


# One archive with every downstream set in the form in which SentEval's script leaves it: tokenised, STS lower-cased
SENTEVAL_TAR = File(
    "senteval.tar", "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main/senteval.tar"
)
SIMCSE = "senteval.tar of SimCSE"
GITHUB = "https://raw.githubusercontent.com"


def github(repository: str, commit: str, path: str, name: str | None = None) -> File:
    """A file of a GitHub repository at a commit or branch."""
    return File(name or path.rsplit("/", 1)[-1], f"{GITHUB}/{repository}/{commit}/{path}")
