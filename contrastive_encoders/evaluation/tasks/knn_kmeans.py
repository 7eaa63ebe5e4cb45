"""Agreement of an embedding space with labels, without training: nearest-neighbor accuracy and k-means V-measure.

Embeddings are normalized. The neighbors of test rows are training rows, or all other rows if the set has no splits. The
test rows are clustered into as many clusters as they have labels.

Shape letters: N rows, C classes, K neighbors, D width.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, unit_rows
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.classification import LabeledSplit
from contrastive_encoders.statistics.bootstrap import Estimate, mean, v_measure

SCORES = {"knn": "knn/accuracy", "kmeans": "kmeans/v-measure"}
BLOCK = 1024  # rows compared with all others at a time
INITIALIZATIONS = 10  # initializations of k-means, of which the best is used


class KNNKMeansTask:
    """Task that scores labeled texts by nearest neighbors and k-means; ``parts`` is the same as in `Classification`."""

    def __init__(
        self, name: str, parts: Mapping[str, LabeledSplit], scores: Sequence[str], neighbors: int, seed: int
    ) -> None:
        self.name, self.parts, self.scores = name, dict(parts), [one for one in SCORES if one in scores]
        self.neighbors, self.seed = neighbors, seed

    def texts(self) -> Iterator[Sequence[str]]:
        for part in self.parts.values():
            yield part.sides[0]

    def score_names(self) -> list[str]:
        return [f"{self.name}/{SCORES[one]}" for one in self.scores]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        known, test = self.parts.get("train"), self.parts.get("all") or self.parts["test"]
        vectors_ND, gold_N = self._vectors(test, pool), torch.from_numpy(test.labels_N)
        key, estimates = self.name if options.intervals else None, dict[str, Estimate]()
        if "knn" in self.scores:
            others = None if known is None else (self._vectors(known, pool), known.labels_N)
            right_N = torch.from_numpy(self._voted(vectors_ND, others or (vectors_ND, test.labels_N), others is None))
            estimates[f"{self.name}/{SCORES['knn']}"] = mean(right_N == gold_N, key)
        if "kmeans" in self.scores:
            estimates[f"{self.name}/{SCORES['kmeans']}"] = v_measure(self._clusters(vectors_ND, gold_N), gold_N, key)
        return estimates

    def _vectors(self, part: LabeledSplit, pool: EmbeddingPool) -> Tensor:
        return unit_rows(pool.lookup(part.sides[0]).double(), self.name)

    def _voted(self, test_ND: Tensor, known: tuple[Tensor, np.ndarray], without_itself: bool) -> np.ndarray:
        """Predict the label of each of N texts, (N,), as the most frequent label of its nearest neighbors; of equally
        frequent labels, the one with the smallest index.
        """
        known_MD, labels_M = known
        predicted = []
        for start in range(0, len(test_ND), BLOCK):
            cosine_BM = test_ND[start : start + BLOCK] @ known_MD.T
            if without_itself:
                cosine_BM.diagonal(start).fill_(-torch.inf)
            near_BK = cosine_BM.topk(min(self.neighbors, len(known_MD) - without_itself), dim=-1).indices
            votes_BC = torch.nn.functional.one_hot(torch.from_numpy(labels_M)[near_BK], int(labels_M.max()) + 1).sum(1)
            predicted.append(np.argmax(votes_BC.numpy(), axis=-1))
        return np.concatenate(predicted)

    def _clusters(self, vectors_ND: Tensor, gold_N: Tensor) -> Tensor:
        from sklearn.cluster import KMeans  # slow to import, and only needed here

        clusters = KMeans(len(gold_N.unique()), n_init=INITIALIZATIONS, random_state=self.seed)
        return torch.from_numpy(clusters.fit_predict(vectors_ND.numpy()).astype(np.int64))
