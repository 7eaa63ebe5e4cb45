"""Compute scores of questions without a language model: fraction of copied words, rank of the question's passage, and
nearest passages.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.datamodules.near_duplicates import words_of
from contrastive_encoders.io.atomic import atomic_file
from contrastive_encoders.io.manifest import CorruptFileError, read_record, write_record
from contrastive_encoders.synthesis.questions.generation import QuestionCandidate
from contrastive_encoders.synthesis.questions.passages import Collection

RUN = 3  # consecutive words that count as copied
MAX_NEAREST = 64  # nearest passages stored for each question, from which negatives are chosen
COSINES_PER_BATCH = 2**26  # 256 MiB
NEIGHBORS, ABOUT = "neighbors.npz", "neighbors.json"
NO_RANK = 0

Embed = Callable[[Sequence[str]], np.ndarray]


def copied(question: str, source: str, but_for: str = "") -> float:
    """Return the fraction of the question's words that are copied from ``source``.

    A word is copied if it is in a run of `RUN` consecutive words that ``source`` contains and ``but_for`` does not. A
    question with fewer words is a single run. Case and punctuation are ignored.
    """
    words = words_of(question)
    if not words:
        return 0.0
    length = min(RUN, len(words))
    runs = _runs(source, length) - _runs(but_for, length)
    inside = set[int]()
    for at in range(len(words) - length + 1):
        if tuple(words[at : at + length]) in runs:
            inside.update(range(at, at + length))
    return len(inside) / len(words)


@lru_cache(maxsize=8)  # for the prompt's examples, and the passage of several questions
def _runs(text: str, length: int) -> frozenset[tuple[str, ...]]:
    words = words_of(text)
    return frozenset(tuple(words[at : at + length]) for at in range(len(words) - length + 1))


class NearestPassages(NamedTuple):
    """Retrieval results of an encoder for Q questions: the rank and cosine similarity of the passage for which a
    question was written, and the nearest passages of other documents. K passages are stored per question.
    """

    ranks_Q: np.ndarray  # int32: rank of its own passage, the best among ties; `NO_RANK`: not computed
    cosines_Q: np.ndarray  # float32, with its own passage
    nearest_QK: np.ndarray  # int32: passages of other document groups, nearest first; -1: fewer than K
    nearest_cosines_QK: np.ndarray  # float32


def no_ranks(number: int) -> NearestPassages:
    empty = np.zeros((number, 0), np.int32)
    return NearestPassages(np.full(number, NO_RANK, np.int32), np.full(number, np.nan, np.float32), empty, empty)


def find_neighbors(
    candidates: Sequence[QuestionCandidate], collection: Collection, encode_document: Embed, encode_query: Embed
) -> NearestPassages:
    """Rank all passages for every question by cosine similarity. Empty questions are not ranked."""
    units_PD = unit_rows(np.asarray(encode_document([one.whole for one in collection.passages]), dtype=np.float32))
    texts = list(dict.fromkeys(one["text"] for one in candidates))
    place_of = {text: place for place, text in enumerate(texts)}
    units_TD = unit_rows(np.asarray(encode_query(texts), dtype=np.float32))
    group_P = np.array([collection.groups[one.document] for one in collection.passages])
    most = min(MAX_NEAREST, len(collection.passages))
    at_once, parts = max(1, COSINES_PER_BATCH // len(collection.passages)), list[NearestPassages]()
    for at in range(0, len(candidates), at_once):
        some = candidates[at : at + at_once]
        own_Q = np.array([one["passage"] for one in some])
        cosines_QP = units_TD[[place_of[one["text"]] for one in some]] @ units_PD.T
        cosine_Q1 = np.take_along_axis(cosines_QP, own_Q[:, None], axis=1)
        ranks_Q = 1 + (cosines_QP > cosine_Q1).sum(axis=1)
        ranks_Q[[not one["text"] for one in some]] = NO_RANK
        cosines_QP[group_P[own_Q][:, None] == group_P] = -np.inf
        nearest_QK = np.argpartition(-cosines_QP, most - 1, axis=1)[:, :most]
        near_QK = np.take_along_axis(cosines_QP, nearest_QK, axis=1)
        order_QK = np.lexsort((nearest_QK, -near_QK), axis=1)
        nearest_QK = np.take_along_axis(nearest_QK, order_QK, axis=1)
        near_QK = np.take_along_axis(near_QK, order_QK, axis=1)
        nearest_QK[np.isneginf(near_QK)] = -1
        parts.append(
            NearestPassages(
                ranks_Q.astype(np.int32),
                cosine_Q1[:, 0].astype(np.float32),
                nearest_QK.astype(np.int32),
                near_QK.astype(np.float32),
            )
        )
    return NearestPassages(*map(np.concatenate, zip(*parts, strict=True)))


def read_neighbors(folder: Path, identity: dict[str, Any]) -> NearestPassages | None:
    """Read the stored result of `find_neighbors`. Return None if there is none or if ``identity`` differs."""
    try:
        if read_record(folder / ABOUT)["identity"] != identity:
            return None
        with np.load(folder / NEIGHBORS) as found:
            return NearestPassages(*(found[name] for name in NearestPassages._fields))
    except (OSError, CorruptFileError, KeyError, ValueError, EOFError):
        return None


def write_neighbors(folder: Path, found: NearestPassages, identity: dict[str, Any]) -> None:
    (folder / ABOUT).unlink(missing_ok=True)
    with atomic_file(folder / NEIGHBORS) as part, part.open("wb") as file:
        np.savez_compressed(file, **found._asdict())
    write_record(folder / ABOUT, {"identity": identity})
