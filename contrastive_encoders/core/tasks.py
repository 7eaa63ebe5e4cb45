"""Data classes of the evaluation: sentence pairs, queries with documents, and scores per test item."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from contrastive_encoders.core.encoder_prompts import Role

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    import numpy as np


ITEMS_FILE = "items.npz"


class Prompted(list[str]):
    """Texts and the prompt in front of each of them.

    Args:
        prompt: the prompt; None: the encoder's own for texts with this role.
        role: None: texts without a role, such as both sides of a pair.
    """

    prompt: str | None
    role: Role | None

    def __init__(self, texts: Iterable[str], prompt: str | None = None, role: Role | None = None) -> None:
        super().__init__(texts)
        self.prompt, self.role = prompt, role


class PairTask(NamedTuple):
    """Sentence pairs with a human rating, as one STS test set. A side may be `Prompted`."""

    name: str  # e.g. "sts12", "sts12@senteval", "stsb-dev", "stsb", "sickr", "sickr-all"
    left: list[str]
    right: list[str]
    gold: "np.ndarray"  # (pairs,) float64
    subsets: list[str]  # (pairs,) name of the subset of each pair; one name where there are none


class RetrievalTask(NamedTuple):
    """Each query must find its documents among all documents. Both may be `Prompted`."""

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]] | None = None  # per query: document -> gain, < 0: not there; None: document i
    query_kind: str = ""  # plural noun, such as "titles", if the queries were made from documents
    unranked_documents: dict[int, list[int]] = {}  # query -> documents not ranked for it: the query itself, near-copies


class ItemScores(NamedTuple):
    """What single test items came to: ``items.npz`` beside ``results.json``, an array KIND/NAME for each entry.

    Two runs are compared item by item where the digests of a task are equal.
    """

    cosines: "dict[str, np.ndarray]"  # task of pairs -> (pairs,) float64
    gold: "dict[str, np.ndarray]"  # (pairs,) float64
    subsets: "dict[str, np.ndarray]"  # (pairs,) names
    digests: dict[str, str]  # of texts and gold
    replicates: "dict[str, np.ndarray]"  # score -> (resamples,) float32; resample r is the same items for any encoder
    values: "dict[str, np.ndarray]" = {}  # score of retrieval -> (queries,) float64, whose mean it is
    replicates_before: "dict[str, np.ndarray]" = {}  # both of the encoder before training, of the same items
    values_before: "dict[str, np.ndarray]" = {}
