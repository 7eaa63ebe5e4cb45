"""Score a reranker, which reorders the top documents that an encoder retrieves for each query.

The documents after these keep the encoder's order. A score is named ``task/reranked/ndcg@10``. In training, it is
compared, query by query, with the score of the encoder alone, which is the score before training.

Shape letters: Q queries, K documents that are reranked, B queries of one block, N documents.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contrastive_encoders.core import CorpusInfo, Embedder, InputError, PairScorer, RetrievalData
from contrastive_encoders.core.runtime.process_group import gather, group_ranks
from contrastive_encoders.evaluation.embedding_pool import Store, embed_pool
from contrastive_encoders.evaluation.scorer import Scorer
from contrastive_encoders.evaluation.suite import items_of
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from contrastive_encoders.statistics.bootstrap import Estimate, Scores

log = logging.getLogger(__name__)

RERANKED_SIMILARITY = 3.0  # minimum similarity of a reranked document, above every cosine


class RetrievedDocuments(NamedTuple):
    """The encoder's cosines for a retrieval task, and the top documents of each query."""

    cosines: Callable[[int, int], Tensor]  # (start, stop) -> (B, N) float64
    places_QK: Tensor  # positions of the documents, the nearest first


class RerankingScorer(Scorer):
    """Scorer that evaluates a reranker on the ``top`` documents that an encoder retrieves.

    ``retriever`` loads the encoder if needed.
    """

    def __init__(
        self,
        tasks: Sequence[RetrievalTask],
        retriever: Callable[[], Embedder],
        top: int,
        store: Store | None = None,
    ) -> None:
        self.tasks, self.top, self.store = list(tasks), top, store
        self._retriever = retriever
        self._found = dict[str, RetrievedDocuments]()

    def subset(self, tasks: Iterable[RetrievalTask]) -> "RerankingScorer":
        """Return a scorer for ``tasks`` only, which shares the retrieved documents with this scorer."""
        part = RerankingScorer(list(tasks), self._retriever, self.top, self.store)
        part._found = self._found
        return part

    def __iter__(self) -> Iterator[RetrievalTask]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def score_names(self) -> list[str]:
        return [name for task in self.tasks for name in task.names_for("reranked")]

    def score(
        self,
        module: PairScorer,
        *,
        intervals: bool,
        store: Any = None,
        autocast: torch.dtype | None = None,
        progress: bool = False,
    ) -> Scores:
        """Score a `PairScorer` on all tasks. All ranks must call this, and get identical scores."""
        self._retrieve()
        estimates = dict[str, Estimate]()
        for task in self.tasks:
            scores_QK = self._reranked(task, module, autocast, progress)
            estimates |= task.scores("reranked", self._ordered(task, scores_QK), intervals=intervals)
        return self._as_scores(estimates, intervals)

    def before(self, module: Any, *, intervals: bool = True, **options: Any) -> Scores:
        """Return the scores of the encoder without the reranker, under the names of the reranker's scores."""
        self._retrieve()
        task_scores = (
            task.scores("reranked", self._found[task.name].cosines, intervals=intervals) for task in self.tasks
        )
        return self._as_scores({name: one for scores in task_scores for name, one in scores.items()}, intervals)

    def _as_scores(self, estimates: dict[str, Estimate], intervals: bool) -> Scores:
        return Scores.from_estimates(estimates, items=items_of(self.tasks, {}, estimates) if intervals else None)

    def sentences(self) -> dict[str, list[str]]:
        return {task.name: list(dict.fromkeys(task.judged_texts())) for task in self.tasks}

    def corpora(self) -> dict[str, CorpusInfo]:
        return {task.name: task.corpus for task in self.tasks}

    def _retrieve(self) -> None:
        """Retrieve the top documents for each task, unless they are already stored. They never change, because the
        encoder is not trained.
        """
        if not (tasks := [task for task in self.tasks if task.name not in self._found]):
            return
        embedder = self._retriever()
        for task in tasks:
            pool = embed_pool(embedder, task.texts(), self.store)
            cosines, top = task.cosines(pool, "cpu"), min(self.top, len(task.documents))
            places = [block_BN.topk(top).indices for block_BN in task.blocks(cosines)]
            self._found[task.name] = RetrievedDocuments(cosines, torch.cat(places))

    def _reranked(
        self, task: RetrievalTask, scorer: PairScorer, autocast: torch.dtype | None, progress: bool
    ) -> Tensor:
        """Return the reranker's scores of K documents for each of Q queries, (Q, K).

        Queries are distributed over the ranks.
        """
        rank, world = group_ranks()
        places_QK = self._found[task.name].places_QK
        own = range(rank, len(places_QK), world)
        texts: RetrievalData = task.texts_to_match
        queries = [texts.queries[query] for query in own for _ in range(places_QK.shape[1])]
        documents = [texts.documents[place] for query in own for place in places_QK[query].tolist()]
        scores = scorer.score_pairs(queries, documents, autocast=autocast, progress=progress).double()
        scores_QK = torch.empty(places_QK.shape, dtype=torch.float64)
        for other, part in enumerate(gather(scores)):
            scores_QK[other::world] = part.view(-1, places_QK.shape[1])
        missing_QK = scores_QK.isnan()
        if missing := int(missing_QK.sum()):
            message = "scores of the reranker are NaN; these documents are ranked last"
            log.warning("%s: %d of %d %s", task.name, missing, scores_QK.numel(), message)
        return scores_QK.masked_fill(missing_QK, -torch.inf)

    def _ordered(self, task: RetrievalTask, scores_QK: Tensor) -> Callable[[int, int], Tensor]:
        """Return a function that computes similarities: the encoder's cosines, except that the reranked documents come
        first, in the order of the reranker's scores.
        """
        cosines, places_QK = self._found[task.name]

        def similarities(start: int, stop: int) -> Tensor:
            part_BK = scores_QK[start:stop]
            lower_BK = torch.searchsorted(part_BK.sort(dim=1).values, part_BK)  # number of documents with a lower score
            return cosines(start, stop).scatter(1, places_QK[start:stop], RERANKED_SIMILARITY + lower_BK.double())

        return similarities


def retrieval_tasks(tasks: Iterable[Any], where: str) -> list[RetrievalTask]:
    """Return the retrieval tasks, the only tasks on which a reranker can be scored.

    Raises:
        InputError: there are no such tasks.
    """
    tasks = list(tasks)
    selected = [task for task in tasks if isinstance(task, RetrievalTask)]
    if not selected:
        names = ", ".join(task.name for task in tasks) or "none"
        raise InputError(
            location=where, expected="a retrieval task, such as a BEIR directory or the task pydocs", value=names
        )
    return selected
