"""Data classes of the evaluation: sentence pairs, queries with documents, and scores per test item."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from contrastive_encoders.core.encoder_prompts import Role

if TYPE_CHECKING:  # a command that only prints its help should not import torch
    import numpy as np


ITEMS_FILE = "item_scores.npz"


class Prompted(list[str]):
    """List of texts that share a prompt, which is prepended to each text.

    Args:
        prompt: the prompt; None: the encoder's own for texts with this role.
        role: None: texts without a role, such as both sides of a pair.
    """

    prompt: str | None
    role: Role | None

    def __init__(self, texts: Iterable[str], prompt: str | None = None, role: Role | None = None) -> None:
        super().__init__(texts)
        self.prompt, self.role = prompt, role


class RatedPairs(NamedTuple):
    """Sentence pairs with human ratings, such as an STS test set: the data of a `SimilarityTask`.

    A side may be `Prompted`.
    """

    name: str  # e.g. "sts12", "sts12@senteval", "stsb-dev", "stsb", "sickr", "sickr-all"
    left: list[str]
    right: list[str]
    gold: "np.ndarray"  # (pairs,) float64
    subsets: list[str]  # (pairs,) name of the subset of each pair; one name if there are no subsets


class RetrievalData(NamedTuple):
    """Queries, the documents that are ranked for them, and the relevant documents of each query: the data of a
    `RetrievalTask`.

    Both may be `Prompted`.
    """

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]] | None = None  # per query: document (< 0: missing) -> gain; None: document i
    query_kind: str = ""  # plural noun, such as "titles", if the queries were made from documents
    # query -> documents not ranked for it: the query itself, near-duplicates
    unranked_documents: dict[int, list[int]] = {}


class ItemScores(NamedTuple):
    """Scores of individual test items. They are stored in ``item_scores.npz`` next to ``results.json``, as an array
    KIND/NAME for each entry.

    Two runs are compared item by item if the digests of a task are equal.
    """

    cosines: "dict[str, np.ndarray]"  # task of pairs -> (pairs,) float64
    gold: "dict[str, np.ndarray]"  # (pairs,) float64
    subsets: "dict[str, np.ndarray]"  # (pairs,) names
    digests: dict[str, str]  # of texts and gold
    # score -> (resamples,) float32; resample r consists of the same items for any encoder
    replicates: "dict[str, np.ndarray]"
    values: "dict[str, np.ndarray]" = {}  # score of retrieval -> (queries,) float64; the score is their mean
    replicates_before: "dict[str, np.ndarray]" = {}  # both for the encoder before training, on the same items
    values_before: "dict[str, np.ndarray]" = {}
