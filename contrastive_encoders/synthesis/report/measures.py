"""Compute statistics of the accepted texts of each label: lengths, distinct n-grams, copies, and lexical overlap."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from contrastive_encoders.synthesis.report.texts import ReportText
from contrastive_encoders.synthesis.rules.filters import fold, is_folded_copy

MAX_DISTINCT_TEXTS = 20_000  # texts; distinct-n decreases with the number of texts, so always the first ones are used
BINS = 20
MAX_WORDS = 60  # words; longer texts are in the last bin


class LabelStatistics(NamedTuple):
    """Statistics of the accepted texts with one label. Rates are between 0 and 1."""

    texts: int
    mean_words: float
    words: list[int]  # number of texts with 0, 1, ... MAX_WORDS (and more) words
    distinct_1: float  # distinct words over all words
    distinct_2: float  # distinct bigrams over all bigrams
    copies: float  # share of texts that equal x1
    folded_copies: float  # the same, ignoring case and punctuation
    overlap: float  # mean Jaccard similarity of the words of x1 and x2, ignoring case and punctuation
    overlaps: list[int]  # texts in BINS bins of overlap from 0 to 1


def measure(accepted: Sequence[ReportText], labels: Sequence[str]) -> dict[str, LabelStatistics]:
    """Compute the statistics of the accepted texts with each label."""
    return {label: _measure_label([one for one in accepted if one.label == label]) for label in labels}


def _measure_label(texts: Sequence[ReportText]) -> LabelStatistics:
    lengths = [one.words for one in texts]
    plain = [fold(one.text).split() for one in texts[:MAX_DISTINCT_TEXTS]]
    words = [word for one in plain for word in one]
    pairs = [pair for one in plain for pair in pairwise(one)]
    given = [(one.text, one.x1) for one in texts if one.x1 is not None]
    overlaps = [overlap for one in texts if (overlap := one.overlap) is not None]
    return LabelStatistics(
        texts=len(texts),
        mean_words=sum(lengths) / max(len(lengths), 1),
        words=np.bincount(np.minimum(lengths, MAX_WORDS).astype(int), minlength=MAX_WORDS + 1).tolist(),
        distinct_1=len(set(words)) / max(len(words), 1),
        distinct_2=len(set(pairs)) / max(len(pairs), 1),
        copies=sum(text == x1 for text, x1 in given) / max(len(given), 1),
        folded_copies=sum(is_folded_copy(text, x1) for text, x1 in given) / max(len(given), 1),
        overlap=sum(overlaps) / max(len(overlaps), 1),
        overlaps=np.histogram(overlaps, BINS, (0, 1))[0].tolist(),
    )
