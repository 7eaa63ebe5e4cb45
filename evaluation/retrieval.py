"""Query i must find document i among all documents: MRR and recall@10, by cosine or by TF-IDF.

Shape letters: B queries of one block, Q queries, N documents, D width.
"""

import logging
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from contracts import RetrievalTask
from evaluation.embed import Pool
from evaluation.statistics import Scores, mean_with_interval, share_with_interval

log = logging.getLogger(__name__)

CUTOFF = 10
BLOCK = 1024  # queries compared with all documents at a time
TIE = 1e-6  # similarities of equal float32 vectors differ by this much with their place in the matrix


def retrieval_scores(task: RetrievalTask, pool: Pool) -> Scores:
    queries_QD, documents_ND = _unit(pool.of(task.queries)), _unit(pool.of(task.documents))
    return _scores(task, "cosine", lambda start, stop: queries_QD[start:stop] @ documents_ND.T)


def tfidf_baseline(task: RetrievalTask) -> Scores:
    """What counting words achieves; vocabulary and document frequencies come from the documents alone."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import, and only needed here

    vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    documents = vectorizer.fit_transform(task.documents)
    queries = vectorizer.transform(task.queries)
    return _scores(
        task, "tfidf", lambda start, stop: torch.from_numpy((queries[start:stop] @ documents.T).toarray()).float()
    )


def _unit(vectors_ND: Tensor) -> Tensor:
    lost = int((~vectors_ND.isfinite().all(-1)).sum())
    if lost:
        log.warning("%d of %d vectors are not finite; their cosines count as 0", lost, len(vectors_ND))
    return normalize(torch.where(vectors_ND.isfinite().all(-1, keepdim=True), vectors_ND, 0.0), dim=-1)


def _scores(task: RetrievalTask, protocol: str, similarities: Callable[[int, int], Tensor]) -> Scores:
    if not task.queries:
        return Scores({}, {})
    ranks_Q = torch.cat(list(_ranks(len(task.queries), similarities)))
    mrr, mrr_interval = mean_with_interval(1 / ranks_Q)
    recall, recall_interval = share_with_interval(ranks_Q <= CUTOFF)
    names = f"{task.name}/{protocol}/mrr", f"{task.name}/{protocol}/recall@{CUTOFF}"
    return Scores(
        dict(zip(names, (mrr, recall), strict=True)),
        dict(zip(names, (mrr_interval, recall_interval), strict=True)),
    )


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
