"""Geometry of an embedding space, measured on STS-B: alignment, uniformity, anisotropy, effective rank, and norm.

The scores are raw values, not percentages. With the normalized embedding f (Wang and Isola 2020):

    alignment  = mean of |f(x) - f(y)|^2 over pairs rated above the threshold (4, as in ST5 and GenSE); lower is better
    uniformity = log of the mean of exp(-2 |f(x) - f(y)|^2) over pairs of sentences; lower is better

(GenSE's equations 4 and 5 contain norms without the square and a minus sign, but its figure follows the definitions
above.) Uniformity is computed over all pairs i < j of the 2 x rows sentences, without sampling. A sentence that occurs
in several rows counts as often as it occurs, as with ``torch.pdist`` on the concatenated columns.
``uniformity-distinct`` counts each text once.

The other scores are computed over distinct texts. Anisotropy is the mean cosine of two different texts (Ethayarajh
2019). The effective rank (Roy and Vetterli 2007) is exp of the entropy of the singular values, scaled to sum 1, of the
(U, D) matrix of the embeddings, which are not normalized; it is also computed for the centered matrix. The last scores
are the mean and standard deviation of the norms.

Shape letters: P rows of the table, N = 2 P sentences, U distinct texts, D width, B block of texts.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from contrastive_encoders.core import InputError, RatedPairs
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, finite_rows, unit_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import SENTEVAL
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.evaluation.tasks.sts import LAYOUTS, STSB, STSLayout, read_pairs
from contrastive_encoders.statistics.bootstrap import Estimate, mean

THRESHOLD = 4.0
BLOCK = 512  # texts compared with all others at a time: 512 x U float64


class Geometry:
    """Task that computes geometry scores.

    Score names start with the name of the pairs, as in ``stsb-dev@senteval/geometry/uniformity``.

    ``alignment`` becomes ``alignment>3`` with a ``threshold`` of 3. Its interval is a bootstrap over its pairs. The
    interval of uniformity is over the table's rows, to first order: the row means of the kernel are resampled, not the
    N^2 kernel, with an error of O(1/N). Those of anisotropy and the mean norm are over texts. The ranks and the
    standard deviation have no interval.
    """

    def __init__(self, name: str, pairs: RatedPairs, threshold: float = THRESHOLD) -> None:
        self.name, self.pairs, self.threshold = name, pairs, threshold
        self.positive = [row for row, score in enumerate(pairs.gold) if score > threshold]
        if not self.positive:
            raise InputError(
                key="alignment_threshold",
                value=f"{threshold:g}",
                expected=f"a lower value, because no pair of {pairs.name} is rated above {threshold:g}",
            )
        self.distinct = list(dict.fromkeys([*pairs.left, *pairs.right]))

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.distinct

    def score_names(self) -> list[str]:
        above = "" if self.threshold == THRESHOLD else f">{self.threshold:g}"
        metrics = (
            f"alignment{above}",
            "uniformity",
            "uniformity-distinct",
            "anisotropy",
            "effective-rank",
            "effective-rank-centred",
            "norm",
            "norm-std",
        )
        return [f"{self.pairs.name}/geometry/{metric}" for metric in metrics]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        vectors_UD = finite_rows(pool.lookup(self.distinct).double(), self.name)
        units_UD = unit_rows(vectors_UD, self.name)
        row_of = {text: row for row, text in enumerate(self.distinct)}
        pairs_P2 = torch.tensor(
            [[row_of[a], row_of[b]] for a, b in zip(self.pairs.left, self.pairs.right, strict=True)]
        )
        key = ScoreName.parse(self.pairs.name).without_form() if options.intervals else None
        norms_U = vectors_UD.norm(dim=-1)
        estimates = (
            mean(squared_distances(units_UD, pairs_P2[self.positive]), key, scale=1.0),
            *uniformities(units_UD, pairs_P2, key),
            anisotropy(units_UD, key),
            Estimate(effective_rank(vectors_UD)),
            Estimate(effective_rank(vectors_UD - vectors_UD.mean(0))),
            mean(norms_U, key, scale=1.0),
            Estimate(float(norms_U.std(correction=0))),
        )
        return dict(zip(self.score_names(), estimates, strict=True))


def squared_distances(units_UD: Tensor, pairs_P2: Tensor) -> Tensor:
    """Return the squared distances of P pairs of unit vectors, 2 - 2 cos, (P,)."""
    cosine_P = (units_UD[pairs_P2[:, 0]] * units_UD[pairs_P2[:, 1]]).sum(-1)
    return (2 - 2 * cosine_P).clamp(min=0)


def uniformities(units_UD: Tensor, pairs_P2: Tensor, key: str | None) -> tuple[Estimate, Estimate]:
    """Return the uniformity of all sentences of the pairs, including repeated ones, and the uniformity of the distinct
    texts.
    """
    count_U = torch.bincount(pairs_P2.flatten(), minlength=len(units_UD)).double()
    sums_U2 = kernel_sums(units_UD, torch.stack([count_U, torch.ones_like(count_U)], dim=-1))
    self_U = torch.exp(4 * (units_UD.square().sum(-1) - 1))
    others_U2 = sums_U2 - self_U.unsqueeze(-1)  # without the pair of a sentence with itself
    per_row_P = others_U2[:, 0][pairs_P2].sum(-1)
    return _log_mean(per_row_P, 2 * len(pairs_P2), key), _log_mean(others_U2[:, 1], len(units_UD), key)


def _log_mean(sums: Tensor, sentences: int, key: str | None) -> Estimate:
    """Estimate the logarithm of the mean kernel value over ordered pairs of sentences.

    Args:
        sums: for each row, the sum of the kernel values of its pairs.
        sentences: number of sentences.
        key: key of the bootstrap; None: no interval.
    """
    value = math.log(float(sums.sum()) / (sentences * (sentences - 1)))
    replicates_R = mean(sums / sums.mean(), key, scale=1.0).replicates_R
    if replicates_R is None:
        return Estimate(value)
    # Both sentences of a pair are resampled: its weight is w_i w_j, to first order w_i + w_j - 1
    return Estimate(value, value + torch.log((2 * replicates_R - 1).clamp(min=1e-12)))


def kernel_sums(units_UD: Tensor, weights_UW: Tensor) -> Tensor:
    """Return, for each of U texts u and each of W weightings, the sum over all texts v, including u, of weight_v exp(-2
    |u - v|^2).

    Each pair is computed once. No logarithms are needed, because the exponent is between -8 and 0 for unit vectors.
    """
    sums_UW = torch.zeros_like(weights_UW)
    for start in range(0, len(units_UD), BLOCK):
        stop = min(start + BLOCK, len(units_UD))
        kernel_BV = (units_UD[start:stop] @ units_UD[start:].T).sub_(1).mul_(4).clamp_(max=0).exp_()
        sums_UW[start:stop] += kernel_BV @ weights_UW[start:]
        sums_UW[stop:] += kernel_BV[:, stop - start :].T @ weights_UW[start:stop]
    return sums_UW


def anisotropy(units_UD: Tensor, key: str | None) -> Estimate:
    """Return the mean cosine of two different texts, computed from the sum of all embeddings."""
    others_U = units_UD @ units_UD.sum(0) - units_UD.square().sum(-1)
    cosine = mean(others_U / (len(units_UD) - 1), key, scale=1.0)
    if cosine.replicates_R is None:
        return cosine
    return Estimate(cosine.value, (2 * cosine.replicates_R - cosine.value).clamp(-1, 1))


def effective_rank(matrix_UD: Tensor) -> float:
    """Return exp(entropy of the normalized singular values), from 1 to min(U, D), or 0 for a matrix of zeros."""
    singular_D = torch.linalg.svdvals(matrix_UD)
    if float(singular_D.sum()) == 0:
        return 0.0
    return float(torch.special.entr(singular_D / singular_D.sum()).sum().exp())


_SPLITS = {"": LAYOUTS["stsb"].rows, "-dev": LAYOUTS["stsb-dev"].rows, "-all": dict(STSB)}


def _read(split: str, root: Path, name: str, config: EvaluateConfig) -> Geometry:
    form = SENTEVAL if name.endswith(SENTEVAL) else ""
    pairs = read_pairs(root, f"stsb{split}{form}", STSLayout(_SPLITS[split], 0, 5))
    return Geometry(name, pairs, config.alignment_threshold)


ENTRIES = {
    f"stsb{split}-geometry": TaskEntry(rows, partial(_read, split), senteval=True) for split, rows in _SPLITS.items()
}
