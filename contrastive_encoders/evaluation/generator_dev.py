"""Scores of a generator on held-out texts: perplexity, accuracy, and their combination.

GenSE's checkpoints were selected by accuracy - 10 x perplexity, with the accuracy in percent.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import HeldOutTexts, Writer
from contrastive_encoders.evaluation.scorer import Scorer
from contrastive_encoders.evaluation.suite import items_of
from contrastive_encoders.statistics.bootstrap import Estimate, Scores, mean, ratio_of_sums

PERPLEXITY_WEIGHT = 10.0


class GeneratorDev(Scorer):
    """Scorer that evaluates a generator on held-out texts. Its only task uses texts that were held out from the
    training data.
    """

    name = "generator-dev"

    def __iter__(self) -> Iterator[Any]:
        return iter([self])

    def __len__(self) -> int:
        return 1

    def score(self, module: Writer, *, intervals: bool, **_: Any) -> Scores:
        """Score a `Writer` on its held-out texts. All ranks must call this, and get identical scores."""
        values = estimates(module.held_out_texts(), self.name if intervals else None)
        scores = dict(zip(self.score_names(), values, strict=True))
        return Scores.from_estimates(scores, items=items_of([], {}, scores) if intervals else None)

    def score_names(self) -> list[str]:
        return [f"{self.name}/{metric}" for metric in ("accuracy", "perplexity", "selection")]


def estimates(texts: HeldOutTexts, key: str | None) -> tuple[Estimate, Estimate, Estimate]:
    """Return accuracy in percent, perplexity, and accuracy - 10 x perplexity, with intervals if ``key`` is given."""
    accuracy = mean(torch.from_numpy(texts.right), key and f"{key}/pairs")
    losses, tokens = texts.losses, texts.tokens.astype(np.float64)
    if texts.batch_size is not None:  # a batch counts as its mean, independent of its number of tokens
        starts = np.arange(0, len(losses), texts.batch_size)
        losses = np.add.reduceat(losses, starts) / np.add.reduceat(tokens, starts)
        tokens = np.ones_like(losses)
    loss = ratio_of_sums(torch.from_numpy(losses), torch.from_numpy(tokens), key)
    perplexity = _combined(torch.exp, loss)
    return accuracy, perplexity, _combined(lambda right, cost: right - PERPLEXITY_WEIGHT * cost, accuracy, perplexity)


def _combined(function: Callable[..., Tensor], *parts: Estimate) -> Estimate:
    """Apply ``function`` to the values of estimates and to their bootstrap replicates, which are from independent
    resamples.
    """
    values = [torch.tensor(one.value, dtype=torch.float64) for one in parts]
    replicates = [one.replicates_R for one in parts if one.replicates_R is not None]
    return Estimate(float(function(*values)), function(*replicates) if len(replicates) == len(parts) else None)
