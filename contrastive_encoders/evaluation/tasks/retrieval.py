"""Retrieval tasks, which rank documents for queries by cosine, TF-IDF, or BM25.

Documents with equal similarities are in random order. Each metric is its expectation over all orders, in closed form.
If ties counted as correct, a collapsed encoder, whose similarities are all equal, would score 100 %. Without ties, the
metrics are those of trec_eval, except map@k, which is divided by at most k, as in sentence-transformers.

    pydocs/test  query, document; written by contrastive-encoders download-data pydocs

Shape letters: B queries of one block, Q queries, N documents, P pairs of a query and a relevant document, D width,
T distinct ties.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import (
    Changes,
    CorpusInfo,
    InputError,
    Prompted,
    RetrievalData,
    Role,
    ScoreChange,
    missing_package,
)
from contrastive_encoders.evaluation.embedding_pool import DIGITS, EmbeddingPool, unit_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table, table
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.statistics.bootstrap import Estimate, mean_of_queries

METRICS = ("mrr", "recall@10", "ndcg@10")
EXAMPLES = 3  # queries whose first document changed in training
BLOCK = 1024  # queries compared with all documents at a time
CELLS = 2**24  # similarities in memory at a time: 128 MiB
TIE = 10.0**-DIGITS  # float64 cosines of equal embeddings differ by less
MISSING = -1  # this and lower numbers: a relevant document that is not among the documents


class RetrievalTask:
    """Task that ranks documents for queries by the encoder's cosines.

    Texts that are not `Prompted` get the encoder's prompts for queries and documents.
    """

    def __init__(self, task: RetrievalData, metrics: Sequence[str] = METRICS) -> None:
        self.texts_to_match, self.name, self.metrics = task, task.name, tuple(metrics)
        self.queries, self.documents = with_role(task.queries, "query"), with_role(task.documents, "document")

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.queries
        yield self.documents

    def score_names(self) -> list[str]:
        return self.names_for("cosine")

    def names_for(self, protocol: str) -> list[str]:
        """Return the names of the scores that a protocol computes."""
        return [f"{self.name}/{protocol}/{metric}" for metric in self.metrics] if self.queries else []

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        device = options.device.type if options.device.type == "cuda" else "cpu"  # other devices have no float64
        return self.scores("cosine", self.cosines(pool, device), intervals=options.intervals)

    def cosines(self, pool: EmbeddingPool, device: str) -> Callable[[int, int], Tensor]:
        """Return a function that computes the cosines of the queries from ``start`` to ``stop`` with all N documents,
        (B, N) float64.
        """
        message = "embeddings contain NaN or infinity; their cosines count as 0"
        queries_QD, documents_ND = (
            unit_rows(pool.lookup(texts).double(), message=message).to(device) for texts in self.texts()
        )
        return self._without_unranked(lambda start, stop: queries_QD[start:stop] @ documents_ND.T)

    def _without_unranked(self, similarities: Callable[[int, int], Tensor]) -> Callable[[int, int], Tensor]:
        """Wrap ``similarities`` in a function that returns -inf for the documents that are excluded for a query."""
        unranked = self.texts_to_match.unranked_documents
        if not unranked:
            return similarities

        def without(start: int, stop: int) -> Tensor:
            masked_BN = similarities(start, stop).clone()
            for query in unranked.keys() & range(start, start + len(masked_BN)):
                masked_BN[query - start, unranked[query]] = -torch.inf
            return masked_BN

        return without

    @property
    def corpus(self) -> CorpusInfo:
        """Return the number of documents and, if known, the type of the queries (``query_kind``)."""
        info = CorpusInfo(documents=len(self.documents))
        if kind := self.texts_to_match.query_kind:
            info["query_kind"] = kind
        return info

    def judged_texts(self) -> Iterator[str]:
        """Yield the queries, and the documents that are relevant for a query."""
        yield from self.queries
        for relevant in _relevant(self.texts_to_match):
            yield from (self.documents[place] for place in relevant if place > MISSING)

    def first_documents(self, pool: EmbeddingPool) -> list[int]:
        """Return the index of the most similar document of each query."""
        blocks = self.blocks(self.cosines(pool, "cpu"))
        return [place for block_BN in blocks for place in block_BN.argmax(-1).tolist()]

    def blocks(self, similarities: Callable[[int, int], Tensor]) -> Iterator[Tensor]:
        """Yield the similarities of all queries, for a block of queries at a time."""
        queries, rows = len(self.queries), rows_per_block(len(self.documents))
        return (similarities(start, min(start + rows, queries)) for start in range(0, queries, rows))

    def changes(self, before: Sequence[int], after: Sequence[int]) -> Changes:
        """Compare the top document of each query before and after training. The examples depend only on the texts."""
        queries, documents = self.texts_to_match.queries, self.texts_to_match.documents
        relevant = _relevant(self.texts_to_match)
        was_right, is_right = (
            [relevant[place].get(document, 0) > 0 for place, document in enumerate(documents_found)]
            for documents_found in (before, after)
        )
        gained = [place for place in range(len(queries)) if is_right[place] and not was_right[place]]
        lost = [place for place in range(len(queries)) if was_right[place] and not is_right[place]]
        drawn = sorted([*gained, *lost], key=lambda place: hashlib.sha256(queries[place].encode()).digest())
        return Changes(
            queries=len(queries),
            correct_before=sum(was_right),
            gained=len(gained),
            lost=len(lost),
            examples=[
                ScoreChange(
                    query=queries[place],
                    before=documents[before[place]],
                    after=documents[after[place]],
                    right="after" if place in gained else "before",
                )
                for place in drawn[:EXAMPLES]
            ],
        )

    def tfidf(self) -> dict[str, Estimate]:
        """Score TF-IDF, fitted on the documents alone."""
        from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import, and only needed here

        vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
        documents = vectorizer.fit_transform(self.documents)
        queries = vectorizer.transform(self.queries)
        return self.scores(
            "tfidf", lambda start, stop: torch.from_numpy((queries[start:stop] @ documents.T).toarray()).double()
        )

    def bm25(self) -> dict[str, Estimate]:
        """Score Lucene's BM25 with k1 = 1.5 and b = 0.75, without stop words or stemming, with the library bm25s.

        Raises:
            InputError: the library is not installed.
        """
        try:
            import bm25s
        except ModuleNotFoundError:
            raise missing_package("bm25s", "retrieval", key="bm25", value=True) from None
        options: dict[str, Any] = {"token_pattern": r"(?u)\b\w+\b", "stopwords": None, "show_progress": False}
        index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        index.index(bm25s.tokenize(list(self.documents), **options), show_progress=False)
        tokenized = bm25s.tokenize(list(self.queries), return_ids=False, **options)
        known = [[word for word in query if word in index.vocab_dict] for query in tokenized]
        zeros = np.zeros(len(self.documents), np.float32)

        def similarities(start: int, stop: int) -> Tensor:
            scores = [index.get_scores(query) if query else zeros for query in known[start:stop]]
            return torch.from_numpy(np.array(scores)).double()

        return self.scores("bm25", similarities)

    def scores(
        self, protocol: str, similarities: Callable[[int, int], Tensor], *, intervals: bool = True
    ) -> dict[str, Estimate]:
        """Score the ranking by ``similarities``, a function that returns the similarities of the queries from ``start``
        to ``stop`` with all N documents, (B, N).

        All protocols use the same resamples.
        """
        if not self.queries:
            return {}
        ranked = _rank_pairs(self.texts_to_match, self._without_unranked(similarities))
        key = self.name if intervals else None
        return {
            name: mean_of_queries(measure(metric, ranked), key)
            for name, metric in zip(self.names_for(protocol), self.metrics, strict=True)
        }


def with_role(texts: Sequence[str], role: Role) -> Prompted:
    """Assign a role to texts that have neither a prompt nor a role."""
    return texts if isinstance(texts, Prompted) else Prompted(texts, role=role)


def _read(root: Path, name: str, config: EvaluateConfig) -> RetrievalTask:
    columns = ("query", "document")
    rows = [[row.text(column) for column in columns] for row in read_table(table(root, f"{name}/test"), columns)]
    queries, documents = ([row[side] for row in rows] for side in range(2))
    return RetrievalTask(RetrievalData(name, queries, documents))


ENTRIES = {"pydocs": TaskEntry({"pydocs/test": None}, _read)}


class RankedPairs(NamedTuple):
    """Pairs of a query and a relevant document, with the rank of the document. Pairs of a query are adjacent, the
    highest ranks first.
    """

    query_P: Tensor
    rank_P: Tensor  # float64, from 1: the first rank of the tie; infinite if the document is not in the corpus
    size_P: Tensor  # float64, documents in the tie, including this one; 1: no tie
    relevant_P: Tensor  # float64, relevant documents in the tie, including this one
    gain_P: Tensor  # float64, mean of the relevant documents in the tie
    ideal_P: Tensor  # float64, gains of the query in descending order
    place_P: Tensor  # float64, from 1: position among the relevant documents of its query, tied ones in any order
    first_P: Tensor  # float64, the smallest position in the tie
    relevant_Q: Tensor  # float64, number of relevant documents of the query


def parse_metric(metric: str) -> tuple[str, float]:
    """Split the name of a metric: ``ndcg@10`` -> ndcg, 10.

    Raises:
        InputError: the measure is unknown.
    """
    match = re.fullmatch(r"(mrr)|(mrr|ndcg|map|recall)@([1-9]\d{0,8})", metric)
    if not match:
        expected = "mrr, mrr@K, ndcg@K, map@K, or recall@K, such as ndcg@10"
        raise InputError(key="metrics", value=repr(metric), expected=expected)
    return match[1] or match[2], float(match[3] or torch.inf)


def measure(metric: str, ranked: RankedPairs) -> Tensor:
    """Return the value of a metric for each query, (Q,) float64."""
    kind, cutoff = parse_metric(metric)
    query_P, place_P, zeros_Q = ranked.query_P, ranked.place_P, torch.zeros_like(ranked.relevant_Q)
    sum_Q = zeros_Q.index_add(0, query_P, _contributions(kind, cutoff, ranked))
    if kind == "ndcg":
        return sum_Q / zeros_Q.index_add(0, query_P, (place_P <= cutoff) * ranked.ideal_P / torch.log2(1 + place_P))
    if kind == "map":
        return sum_Q / ranked.relevant_Q.clamp(max=cutoff)
    return sum_Q / ranked.relevant_Q if kind == "recall" else sum_Q


def _contributions(kind: str, cutoff: float, ranked: RankedPairs) -> Tensor:
    """Return the expected contribution of each of P pairs to the metric of its query, (P,), if ties are ordered at
    random.
    """
    rank_P, gain_P, place_P = ranked.rank_P, ranked.gain_P, ranked.place_P
    in_top_P = (rank_P <= cutoff).double()
    if kind == "ndcg":
        found_P = in_top_P * gain_P / torch.log2(1 + rank_P)
    elif kind == "map":
        found_P = in_top_P * place_P / rank_P
    else:
        found_P = in_top_P if kind == "recall" else in_top_P * (place_P == 1) / rank_P
    tied_P = (ranked.size_P > 1) & (in_top_P > 0)
    if not tied_P.any():
        return found_P
    above_P, size_P, relevant_P = rank_P[tied_P].long() - 1, ranked.size_P[tied_P], ranked.relevant_P[tied_P]
    end_P = (above_P + size_P).clamp(max=cutoff).long()  # last rank of the tie in the top k
    ranks = torch.arange(1, int(end_P.max()) + 1, dtype=torch.float64)

    def mean_over_tie(values: Tensor) -> Tensor:
        """Return the mean of ``values`` over the ranks of the tie; ranks beyond k count as 0."""
        sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
        return (sums[end_P] - sums[above_P]) / size_P

    if kind == "ndcg":
        expected_P = gain_P[tied_P] * mean_over_tie(1 / torch.log2(1 + ranks))
    elif kind == "recall":
        expected_P = mean_over_tie(torch.ones_like(ranks))
    elif kind == "map":
        # At the j-th rank of the tie, (relevant - 1) / (size - 1) of the j - 1 documents before it are also relevant
        share_P, inverse_P = (relevant_P - 1) / (size_P - 1), mean_over_tie(1 / ranks)
        others_P = (end_P - above_P) / size_P - (above_P + 1) * inverse_P  # mean of (j - 1) / rank
        expected_P = ranked.first_P[tied_P] * inverse_P + share_P * others_P
    else:
        expected_P = (place_P[tied_P] == 1) * torch.where(relevant_P == 1, mean_over_tie(1 / ranks), 0.0)
        several_P = (relevant_P > 1) & (place_P[tied_P] == 1)
        expected_P[several_P] = _first_of_several(above_P[several_P], size_P[several_P], relevant_P[several_P], cutoff)
    found_P[tied_P] = expected_P
    return found_P


def _first_of_several(above_P: Tensor, size_P: Tensor, relevant_P: Tensor, cutoff: float) -> Tensor:
    """Return the expected reciprocal rank of the first relevant document in a tie, for each of P pairs, (P,); ranks
    beyond k count as 0.
    """
    ties_T3, tie_P = torch.unique(torch.stack([above_P, size_P, relevant_P], dim=1), dim=0, return_inverse=True)
    expected_T = torch.zeros(len(ties_T3), dtype=torch.float64)
    for i, (above, size, relevant) in enumerate(ties_T3.tolist()):
        # At most size - relevant documents precede the first one
        before = torch.arange(min(size - relevant + 1, min(cutoff, above + size) - above), dtype=torch.float64)
        none_yet = torch.cat([torch.ones(1), (1 - relevant / (size - before[:-1])).cumprod(0)])
        expected_T[i] = (none_yet * relevant / (size - before) / (above + 1 + before)).sum()
    return expected_T[tie_P]


def _relevant(task: RetrievalData) -> list[dict[int, float]]:
    """Return the relevant documents of each query, with their gains."""
    return task.relevant if task.relevant is not None else [{row: 1.0} for row in range(len(task.queries))]


def rows_per_block(documents: int) -> int:
    """Return the number of queries that are compared with all documents at a time."""
    return max(1, min(BLOCK, CELLS // documents))


def _rank_pairs(task: RetrievalData, similarities: Callable[[int, int], Tensor]) -> RankedPairs:
    relevant = _relevant(task)
    count_Q = torch.tensor([len(gains) for gains in relevant])
    query_P = torch.arange(len(relevant)).repeat_interleave(count_Q)
    document_P = torch.tensor([document for gains in relevant for document in gains])
    gain_P = torch.tensor([gain for gains in relevant for gain in gains.values()], dtype=torch.float64)
    above_P, size_P = (
        torch.cat(parts)
        for parts in zip(*_count_similar(query_P, document_P, len(task.documents), similarities), strict=True)
    )
    is_lost_P = document_P <= MISSING
    above_P[is_lost_P] = len(task.documents)
    size_P[is_lost_P] = 1
    order_P, ideal_P = _sort_within_queries(query_P, above_P), gain_P[_sort_within_queries(query_P, -gain_P)]
    above_P, size_P, gain_P, is_lost_P = (side[order_P] for side in (above_P, size_P, gain_P, is_lost_P))
    place_P = torch.arange(len(query_P)) - (count_Q.cumsum(0) - count_Q)[query_P] + 1
    _, tie_P, relevant_T = torch.unique_consecutive(
        torch.stack([query_P, above_P]), dim=1, return_inverse=True, return_counts=True
    )
    relevant_P = relevant_T[tie_P]
    gains_T = torch.zeros(len(relevant_T), dtype=torch.float64).index_add_(0, tie_P, gain_P)
    return RankedPairs(
        query_P,
        rank_P=(above_P + 1).double().masked_fill(is_lost_P, torch.inf),
        size_P=torch.where(is_lost_P, 1, size_P.maximum(relevant_P)).double(),
        relevant_P=relevant_P.double(),
        gain_P=gains_T[tie_P] / relevant_P,
        first_P=place_P[(relevant_T.cumsum(0) - relevant_T)[tie_P]].double(),
        ideal_P=ideal_P,
        place_P=place_P.double(),
        relevant_Q=count_Q.double(),
    )


def _sort_within_queries(query_P: Tensor, by_P: Tensor) -> Tensor:
    """Return the indices that sort pairs by query, then by ``by_P`` in ascending order."""
    order_P = torch.argsort(by_P, stable=True)
    return order_P[torch.argsort(query_P[order_P], stable=True)]


def _count_similar(
    query_P: Tensor, document_P: Tensor, documents: int, similarities: Callable[[int, int], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Count, for each (query, document) pair, the documents that are more similar to the query than the pair's
    document, and the documents that are equally similar.

    The counts are computed in blocks.
    """
    rows = rows_per_block(documents)
    for start in range(0, int(query_P[-1]) + 1, rows):
        similarity_BN = similarities(start, start + rows)
        first, end = torch.searchsorted(query_P, torch.tensor([start, start + rows])).tolist()
        for block_start in range(first, end, rows):
            part = slice(block_start, min(block_start + rows, end))
            row_P = (query_P[part] - start).to(similarity_BN.device)
            all_PN = similarity_BN[row_P]
            own_P1 = all_PN.gather(1, document_P[part].clamp(min=0).unsqueeze(-1).to(all_PN.device))
            yield (all_PN > own_P1 + TIE).sum(-1).cpu(), ((all_PN - own_P1).abs() <= TIE).sum(-1).cpu()
