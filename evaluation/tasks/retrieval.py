"""Query i must find document i among all documents: MRR and recall@10, by cosine or by TF-IDF.

Shape letters: B queries of one block, Q queries, N documents, D width.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from contracts import RetrievalTask
from evaluation.statistics import Estimate, mean
from evaluation.task import How
from evaluation.vectors import Pool, unit_rows

CUTOFF = 10
METRICS = ("mrr", f"recall@{CUTOFF}")
BLOCK = 1024  # queries compared with all documents at a time
TIE = 1e-6  # similarities of equal float32 vectors differ by this much with their place in the matrix


class Retrieval:
    def __init__(self, task: RetrievalTask) -> None:
        self.texts_to_match, self.name = task, task.name

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.texts_to_match.queries
        yield self.texts_to_match.documents

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/{metric}" for metric in METRICS] if self.texts_to_match.queries else []

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        task = self.texts_to_match
        queries_QD, documents_ND = (
            unit_rows(pool.of(texts), what="vectors are not finite; their cosines count as 0") for texts in self.texts()
        )
        key = task.name if how.intervals else None
        return _scores(task, "cosine", lambda start, stop: queries_QD[start:stop] @ documents_ND.T, key)


def tfidf_baseline(task: RetrievalTask) -> dict[str, Estimate]:
    """What counting words achieves; vocabulary and document frequencies come from the documents alone."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import, and only needed here

    vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    documents = vectorizer.fit_transform(task.documents)
    queries = vectorizer.transform(task.queries)
    return _scores(
        task, "tfidf", lambda start, stop: torch.from_numpy((queries[start:stop] @ documents.T).toarray()).float()
    )


def _scores(
    task: RetrievalTask, protocol: str, similarities: Callable[[int, int], Tensor], key: str | None = None
) -> dict[str, Estimate]:
    if not task.queries:
        return {}
    ranks_Q = torch.cat(list(_ranks(len(task.queries), similarities)))
    found = (mean(1 / ranks_Q, key), mean(ranks_Q <= CUTOFF, key))
    return {f"{task.name}/{protocol}/{metric}": estimate for metric, estimate in zip(METRICS, found, strict=True)}


def _ranks(queries: int, similarities: Callable[[int, int], Tensor]) -> Iterator[Tensor]:
    """Ranks from 1, float64, block by block; a tie takes the middle of its places.

    Counting a tie as a win would give a collapsed encoder, whose similarities are all the same, 100 %.
    """
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        similarity_BN = similarities(start, stop)
        own_B1 = similarity_BN[torch.arange(stop - start), torch.arange(start, stop)].unsqueeze(-1)
        better_B = (similarity_BN > own_B1 + TIE).sum(-1)
        tied_B = ((similarity_BN - own_B1).abs() <= TIE).sum(-1)  # its own document among them
        yield better_B + (tied_B.double() + 1) / 2
