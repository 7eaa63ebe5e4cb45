"""Mine hard negatives: the texts of a corpus that are nearest to an anchor, without its positives.

Texts that are nearly as near as the positives are left out by margins.

Ranks are counted among what is left, as sentence-transformers' ``mine_hard_negatives`` counts them; the margins are
those of NV-Retriever (Moreira et al. 2024).

Shape letters: A anchors, C texts of the corpus, D width, B anchors of a block, W candidates that are looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from contracts import InputError
from datamodules.mining.nearest_neighbours import NearestSearch, unit

ANCHORS_AT_ONCE = 1024


class Pairs(NamedTuple):
    """Anchors and texts of the corpus, each once; texts are named by their places."""

    anchors: list[str]
    corpus: list[str]
    positives: list[list[int]]  # of each anchor
    own: list[list[int]]  # where the anchor itself stands in the corpus, if it does
    read: int  # rows, those that come twice among them


class MiningRules(NamedTuple):
    """Which of the nearest are taken."""

    negatives: int  # of each anchor
    range_min: int  # so many of the nearest that are left are passed over
    range_max: int | None  # those behind are not taken; None: as many as are needed, ten times that with a margin
    absolute_margin: float | None  # a negative's cosine is at least this below that of the farthest positive
    relative_margin: float | None  # or this share of it below
    sampling: Literal["top", "random"]
    seed: int

    def last_rank(self, most_positives: int) -> int:
        if self.range_max is not None:
            return self.range_max
        margin = self.absolute_margin is not None or self.relative_margin is not None
        return self.range_min + self.negatives * (10 if margin else 1) + most_positives

    def check(self) -> None:
        """Raises InputError where nothing could be taken."""
        if self.negatives < 1 or self.range_min < 0:
            raise InputError(
                f"negatives={self.negatives} range_min={self.range_min}: wanted at least 1 negative, from rank 0 on."
            )
        if self.range_max is not None and self.range_max - self.range_min < self.negatives:
            raise InputError(
                f"range_max={self.range_max}: between it and range_min={self.range_min} there is no room for "
                f"{self.negatives} negatives. Wanted {self.range_min + self.negatives} or more."
            )
        for key, most in (("absolute_margin", 2), ("relative_margin", 1)):
            margin = getattr(self, key)
            if margin is not None and not 0 <= margin <= most:
                raise InputError(f"{key}={margin}: wanted 0 to {most}.")


class Mined(NamedTuple):
    """What an anchor got."""

    anchor: int
    positive_scores: list[float]  # cosines with its positives, in their order
    negatives: list[int]  # the nearest first; fewer than asked for where there are no more
    negative_scores: list[float]


def pairs_of(rows: Iterable[Sequence[str]], more: Iterable[str] = ()) -> Pairs:
    """Of rows of an anchor and a positive; the corpus is ``more`` and all positives."""
    place_of: dict[str, int] = {}
    for text in more:
        place_of.setdefault(text, len(place_of))
    positives: dict[str, list[int]] = {}
    read = 0
    for anchor, positive, *_ in rows:
        read += 1
        known, place = positives.setdefault(anchor, []), place_of.setdefault(positive, len(place_of))
        if place not in known:
            known.append(place)
    own = [[place_of[anchor]] if anchor in place_of else [] for anchor in positives]
    return Pairs(list(positives), list(place_of), list(positives.values()), own, read)


def mine(
    pairs: Pairs,
    anchors_AD: np.ndarray,
    corpus_CD: np.ndarray,
    rules: MiningRules,
    nearest: NearestSearch,
    device: str = "cpu",
) -> Iterator[Mined]:
    """What each anchor gets, in order. The vectors may be maps of files; ``nearest`` searches those of the corpus."""
    excluded = [{*found, *own} for found, own in zip(pairs.positives, pairs.own, strict=True)]
    most = max(map(len, excluded))
    last = rules.last_rank(max(map(len, pairs.positives)))
    for first in range(0, len(anchors_AD), ANCHORS_AT_ONCE):
        rows_BD = unit(anchors_AD[first : first + ANCHORS_AT_ONCE], device)
        found_BW = nearest(rows_BD, min(last + most, len(corpus_CD)))
        for at, (scores_W, places_W) in enumerate(zip(*(one.cpu().numpy() for one in found_BW), strict=True)):
            number = first + at
            found = pairs.positives[number]
            cosines = (unit(corpus_CD[found], device) @ rows_BD[at]).tolist()
            kept = ~np.isin(places_W, [-1, *excluded[number]])
            kept &= scores_W <= _highest(min(cosines), rules)
            chosen = _chosen(np.flatnonzero(kept)[:last][rules.range_min :], rules, number)
            yield Mined(number, cosines, places_W[chosen].tolist(), scores_W[chosen].tolist())


def _highest(positive: float, rules: MiningRules) -> float:
    """The cosine that no negative exceeds."""
    absolute = np.inf if rules.absolute_margin is None else positive - rules.absolute_margin
    relative = np.inf if rules.relative_margin is None else positive - abs(positive) * rules.relative_margin
    return float(min(absolute, relative))


def _chosen(ranked: np.ndarray, rules: MiningRules, number: int) -> np.ndarray:
    if rules.sampling == "top" or len(ranked) <= rules.negatives:
        return ranked[: rules.negatives]
    drawn = np.random.default_rng((rules.seed, number)).choice(len(ranked), rules.negatives, replace=False)
    return ranked[np.sort(drawn)]
