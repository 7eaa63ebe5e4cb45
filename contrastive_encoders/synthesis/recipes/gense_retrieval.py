"""Create pairs by BM25 retrieval among the input sentences.

Entailments are kept, as in the paper's baseline. Contradictions are kept only if ``contradictions=retrieved``.

BM25 is implemented by bm25s, an optional extra.

Every worker keeps the index and the sentences in memory: about 60 bytes per word. Each sentence is compared with all
others, so the time is quadratic in their number.
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
    Baseline,
    CandidateSource,
    SentenceCandidates,
    SentenceRecipe,
)

WORD = r"(?u)\b\w+\b"  # letters and digits, ignoring case; no stop words, since their weight is small in any language


@dataclass(kw_only=True)
class Retrieval(RetrievalConfig, Baseline, SentenceRecipe):
    """Recipe ``gense_retrieval``: pairs or triplets of sentences that BM25 retrieves and the discriminator judges."""

    required: ClassVar[dict[str, str]] = {
        **SentenceRecipe.required,
        "generator": "the directory or hub id of a GenSE generator, which judges the retrieved sentences",
    }

    def plan(self) -> None:
        _library()  # checked before the sentences are read
        super().plan()

    def method(self) -> dict[str, Any]:
        return {"bm25": asdict(self.bm25), "input": self.given, "contradictions": self.contradictions}

    def source(self, inputs: Iterable[str]) -> Callable[[], CandidateSource]:
        directions = DIRECTIONS if self.contradictions == "retrieved" else DIRECTIONS[:1]
        return partial(RetrievedCandidates, list(inputs), self.bm25, directions)


class RetrievedCandidates:
    """Source of candidates that returns the nearest sentences by BM25, as entailments and as contradictions.

    The discriminator decides to which direction a candidate belongs.
    """

    def __init__(self, sentences: Sequence[str], how: Bm25, directions: Sequence[Direction]) -> None:
        self.neighbors, self.directions = BM25Index(sentences, how), directions

    def __call__(self, first: int, inputs: Sequence[str]) -> list[SentenceCandidates]:
        places = range(first, first + len(inputs))
        return [
            SentenceCandidates(
                self.neighbors.sentences[place],
                {direction: [(one, True) for one in some] for direction in self.directions},
            )
            for place, some in zip(places, self.neighbors.of(places), strict=True)
        ]


class BM25Index:
    """BM25 index of all input sentences."""

    def __init__(self, sentences: Sequence[str], how: Bm25) -> None:
        if len(sentences) < 2:
            expected = "at least two sentences, because each sentence is used to retrieve other sentences"
            raise InputError(key="input", expected=expected)
        self.sentences, self.top = sentences, min(how.top, len(sentences) - 1)
        self.index = _library().BM25(method="lucene", k1=how.k1, b=how.b)
        self.index.index(_words(sentences, ids=True), show_progress=False)

    def of(self, places: Sequence[int]) -> list[list[str]]:
        """Retrieve the most similar sentences for each sentence whose index is in ``places``, the most similar one
        first.

        Sentences that share no word with the query sentence are left out.
        """
        asked = _words([self.sentences[place] for place in places], ids=False)
        found_QK, scores_QK = self.index.retrieve(asked, k=self.top + 1, show_progress=False, backend_selection="numpy")
        neighbors = []
        for place, found_K, scores_K in zip(places, found_QK.tolist(), scores_QK.tolist(), strict=True):
            others = [one for one, score in zip(found_K, scores_K, strict=True) if one != place and score > 0]
            neighbors.append([self.sentences[one] for one in others[: self.top]])
        return neighbors


def _words(sentences: Sequence[str], *, ids: bool) -> Any:
    """Split sentences into words. If ``ids``, return word ids and a vocabulary, which need a tenth of the memory."""
    options: dict[str, Any] = {"token_pattern": WORD, "stopwords": None, "return_ids": ids, "show_progress": False}
    return _library().tokenize(list(sentences), **options)


def _library() -> Any:
    try:
        import bm25s
    except ModuleNotFoundError:
        raise missing_package("bm25s", "retrieval", key="recipe", value="gense_retrieval") from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
