"""Pairs by BM25 retrieval among the input sentences.

Those that follow are kept, as the paper's baseline has it; those that contradict only where they are asked for.

BM25 is that of bm25s, an optional extra.

The index and the sentences are held in memory, by every worker: about 60 bytes per word. Each sentence is compared
with all others, so the time grows with the square of their number.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.core.gense_prompts import DIRECTIONS, Direction
from contrastive_encoders.synthesis.recipe_configs import Bm25, RetrievalConfig
from contrastive_encoders.synthesis.triplet_recipe import (
    CandidateSource,
    SentenceBaseline,
    SentenceCandidates,
)

WORD = r"(?u)\b\w+\b"  # letters and digits, case aside; no stop words: their weight is small in any language


@dataclass(kw_only=True)
class Retrieval(RetrievalConfig, SentenceBaseline):
    """``contrastive-encoders generate recipe=gense_retrieval``."""

    required: ClassVar[dict[str, str]] = {
        **SentenceBaseline.required,
        "generator": "the folder or hub id of a GenSE generator, which tells what follows from a sentence among what "
        "is retrieved for it",
    }

    def plan(self) -> None:
        _library()  # before the sentences are read
        super().plan()

    def method(self) -> dict[str, Any]:
        return {"bm25": asdict(self.bm25), "input": self.given, "contradictions": self.contradictions}

    def source(self, inputs: Iterable[str]) -> Callable[[], CandidateSource]:
        directions = DIRECTIONS if self.contradictions == "retrieved" else DIRECTIONS[:1]
        return partial(Retrieved, list(inputs), self.bm25, directions)


class Retrieved:
    """A source with the same neighbours for all directions; the discriminator tells to which they belong."""

    def __init__(self, sentences: Sequence[str], how: Bm25, directions: Sequence[Direction]) -> None:
        self.neighbours, self.directions = BM25Index(sentences, how), directions

    def __call__(self, first: int, inputs: Sequence[str]) -> list[SentenceCandidates]:
        places = range(first, first + len(inputs))
        return [
            SentenceCandidates(
                self.neighbours.sentences[place],
                {direction: [(one, True) for one in some] for direction in self.directions},
            )
            for place, some in zip(places, self.neighbours.of(places), strict=True)
        ]


class BM25Index:
    """An index over all of a corpus."""

    def __init__(self, sentences: Sequence[str], how: Bm25) -> None:
        if len(sentences) < 2:
            raise InputError("input: wanted at least two sentences, as others are retrieved for each. Give more.")
        self.sentences, self.top = sentences, min(how.top, len(sentences) - 1)
        self.index = _library().BM25(method="lucene", k1=how.k1, b=how.b)
        self.index.index(_words(sentences, ids=True), show_progress=False)

    def of(self, places: Sequence[int]) -> list[list[str]]:
        """For each place those most like the sentence there, the best first; none that share no word with it."""
        asked = _words([self.sentences[place] for place in places], ids=False)
        found_QK, scores_QK = self.index.retrieve(asked, k=self.top + 1, show_progress=False, backend_selection="numpy")
        neighbours = []
        for place, found_K, scores_K in zip(places, found_QK.tolist(), scores_QK.tolist(), strict=True):
            others = [one for one, score in zip(found_K, scores_K, strict=True) if one != place and score > 0]
            neighbours.append([self.sentences[one] for one in others[: self.top]])
        return neighbours


def _words(sentences: Sequence[str], *, ids: bool) -> Any:
    """Words, or as ``ids`` with their vocabulary, which is a tenth of the memory."""
    options: dict[str, Any] = {"token_pattern": WORD, "stopwords": None, "return_ids": ids, "show_progress": False}
    return _library().tokenize(list(sentences), **options)


def _library() -> Any:
    try:
        import bm25s
    except ModuleNotFoundError:
        raise missing_package("bm25s", "retrieval", key="recipe", value="gense_retrieval") from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
