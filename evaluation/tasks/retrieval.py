"""Retrieval of documents for queries by cosine, TF-IDF or BM25.

Of a tie's places each is as likely as any other, so its relevant documents stand at their expected ones: counting a tie
as a win would give a collapsed encoder, whose similarities are all the same, 100 %. Without ties the measures are those
of trec_eval, but for map@k, which is divided by at most k, as sentence-transformers has it.

    pydocs/test  query, document; written by python -m datamodules.prepare pydocs

Shape letters: B queries of one block, Q queries, N documents, P pairs of a query and a relevant document, D width.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contracts import Change, Changes, InputError, RetrievalTask
from evaluation.bootstrap import Estimate, mean_of_queries
from evaluation.task import Entry, How, Options
from evaluation.tsv import read_columns, read_text, table
from evaluation.vectors import DIGITS, Pool, Prompted, unit_rows

METRICS = ("mrr", "recall@10", "ndcg@10")
EXAMPLES = 3  # of queries that find another document after training
BLOCK = 1024  # queries compared with all documents at a time
CELLS = 2**24  # similarities held at a time: 128 MiB
TIE = 10.0**-DIGITS  # float64 cosines of equal vectors differ by less
LOST = -1  # and below: a relevant document that is not among the documents


class Retrieval:
    """``prompts`` of queries and of documents; None: the encoder's own."""

    def __init__(
        self,
        task: RetrievalTask,
        metrics: Sequence[str] = METRICS,
        prompts: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self.texts_to_match, self.name, self.metrics = task, task.name, tuple(metrics)
        self.queries, self.documents = (
            Prompted(texts, prompt) for texts, prompt in zip((task.queries, task.documents), prompts, strict=True)
        )

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.queries
        yield self.documents

    def score_names(self) -> list[str]:
        return self.named("cosine")

    def named(self, protocol: str) -> list[str]:
        """The names of the scores of a protocol."""
        return [f"{self.name}/{protocol}/{metric}" for metric in self.metrics] if self.queries else []

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        device = how.device.type if how.device.type == "cuda" else "cpu"  # others have no float64
        return self.scores("cosine", self.cosines(pool, device), intervals=how.intervals)

    def cosines(self, pool: Pool, device: str) -> Callable[[int, int], Tensor]:
        """(start, stop) -> (B, N) float64 cosines of these queries with all documents, where they are computed."""
        what = "vectors are not finite; their cosines count as 0"
        queries_QD, documents_ND = (unit_rows(pool.of(texts).double(), what=what).to(device) for texts in self.texts())
        return lambda start, stop: queries_QD[start:stop] @ documents_ND.T

    @property
    def is_one_to_one(self) -> bool:
        """Whether query i must find document i, and no other."""
        return self.texts_to_match.relevant is None

    def found_first(self, pool: Pool) -> list[int]:
        """The most similar document of each query."""
        cosines, queries = self.cosines(pool, "cpu"), len(self.queries)
        blocks = (cosines(start, min(start + BLOCK, queries)) for start in range(0, queries, BLOCK))
        return [place for block_BN in blocks for place in block_BN.argmax(-1).tolist()]

    def changes(self, before: Sequence[int], after: Sequence[int]) -> Changes:
        """Compare the first document of each query before and after training; the text alone draws examples."""
        queries, documents = self.texts_to_match.queries, self.texts_to_match.documents
        places = range(len(queries))
        gained = [place for place in places if before[place] != place == after[place]]
        lost = [place for place in places if before[place] == place != after[place]]
        drawn = sorted([*gained, *lost], key=lambda place: hashlib.sha256(queries[place].encode()).digest())
        return Changes(
            queries=len(queries),
            right_before=sum(before[place] == place for place in places),
            gained=len(gained),
            lost=len(lost),
            examples=[
                Change(
                    query=queries[place],
                    before=documents[before[place]],
                    after=documents[after[place]],
                    right="after" if place in gained else "before",
                )
                for place in drawn[:EXAMPLES]
            ],
        )

    def tfidf(self) -> dict[str, Estimate]:
        """Score TF-IDF; vocabulary and document frequencies come from the documents alone."""
        from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import, and only needed here

        vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
        documents = vectorizer.fit_transform(self.documents)
        queries = vectorizer.transform(self.queries)
        return self.scores(
            "tfidf", lambda start, stop: torch.from_numpy((queries[start:stop] @ documents.T).toarray()).double()
        )

    def bm25(self) -> dict[str, Estimate]:
        """Score Lucene's BM25 with k1 = 1.5 and b = 0.75, without stop words or stems, by the library bm25s.

        Raises:
            InputError: the library is not installed.
        """
        try:
            import bm25s
        except ModuleNotFoundError:
            raise InputError("BM25 wants bm25s. Say pip install 'contrastive-encoders[retrieval]'.") from None
        words: dict[str, Any] = {"token_pattern": r"(?u)\b\w+\b", "stopwords": None, "show_progress": False}
        index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        index.index(bm25s.tokenize(list(self.documents), **words), show_progress=False)
        asked = bm25s.tokenize(list(self.queries), return_ids=False, **words)
        known = [[word for word in query if word in index.vocab_dict] for query in asked]
        nothing = np.zeros(len(self.documents), np.float32)

        def similarities(start: int, stop: int) -> Tensor:
            found = [index.get_scores(query) if query else nothing for query in known[start:stop]]
            return torch.from_numpy(np.array(found)).double()

        return self.scores("bm25", similarities)

    def scores(
        self, protocol: str, similarities: Callable[[int, int], Tensor], *, intervals: bool = True
    ) -> dict[str, Estimate]:
        """The measures of any similarities of queries start to stop with all documents, (B, N); of all protocols by the
        same resamples.
        """
        if not self.queries:
            return {}
        ranked, key = _ranked(self.texts_to_match, similarities), self.name if intervals else None
        return {
            name: mean_of_queries(measure(metric, ranked), key)
            for name, metric in zip(self.named(protocol), self.metrics, strict=True)
        }


def _read(root: Path, name: str, options: Options) -> Retrieval:
    columns = ("query", "document")
    rows = [
        [read_text(where, column, cell) for column, cell in zip(columns, cells, strict=True)]
        for where, cells in read_columns(table(root, f"{name}/test"), columns)
    ]
    queries, documents = ([row[side] for row in rows] for side in range(2))
    return Retrieval(RetrievalTask(name, queries, documents))


ENTRIES = {"pydocs": Entry({"pydocs/test": None}, _read)}


class Ranked(NamedTuple):
    """Pairs of a query and a relevant document, a query's together and the best places first."""

    query_P: Tensor
    rank_P: Tensor  # float64, from 1; infinite where the document is not there
    gain_P: Tensor  # float64
    ideal_P: Tensor  # float64, the gains of the query, the greatest first
    place_P: Tensor  # float64, from 1: among the relevant documents of its query
    relevant_Q: Tensor  # float64, how many


def kind_and_most(metric: str) -> tuple[str, float]:
    """``ndcg@10`` -> ndcg, 10.

    Raises:
        InputError: there is no such measure.
    """
    found = re.fullmatch(r"(mrr)|(mrr|ndcg|map|recall)@([1-9]\d{0,8})", metric)
    if not found:
        raise InputError(f"metrics: {metric!r} is none. Wanted mrr, mrr@K, ndcg@K, map@K or recall@K, e.g. ndcg@10.")
    return found[1] or found[2], float(found[3] or torch.inf)


def measure(metric: str, ranked: Ranked) -> Tensor:
    """(Q,) float64"""
    kind, most = kind_and_most(metric)
    query_P, rank_P, gain_P, ideal_P, place_P, relevant_Q = ranked
    seen_P, nothing_Q = (rank_P <= most).double(), torch.zeros_like(relevant_Q)
    if kind == "ndcg":
        dcg_Q = nothing_Q.index_add(0, query_P, seen_P * gain_P / torch.log2(1 + rank_P))
        return dcg_Q / nothing_Q.index_add(0, query_P, (place_P <= most) * ideal_P / torch.log2(1 + place_P))
    if kind == "map":
        return nothing_Q.index_add(0, query_P, seen_P * place_P / rank_P) / relevant_Q.clamp(max=most)
    if kind == "recall":
        return nothing_Q.index_add(0, query_P, seen_P) / relevant_Q
    return nothing_Q.index_add(0, query_P, seen_P * (place_P == 1) / rank_P)


def _ranked(task: RetrievalTask, similarities: Callable[[int, int], Tensor]) -> Ranked:
    relevant = task.relevant if task.relevant is not None else [{row: 1.0} for row in range(len(task.queries))]
    count_Q = torch.tensor([len(found) for found in relevant])
    query_P = torch.arange(len(relevant)).repeat_interleave(count_Q)
    document_P = torch.tensor([document for found in relevant for document in found])
    gain_P = torch.tensor([gain for found in relevant for gain in found.values()], dtype=torch.float64)
    better_P, tied_P = (
        torch.cat(parts)
        for parts in zip(*_compared(query_P, document_P, len(task.documents), similarities), strict=True)
    )
    better_P[document_P <= LOST] = len(task.documents)
    order_P, ideal_P = _within(query_P, better_P), gain_P[_within(query_P, -gain_P)]
    better_P, tied_P, gain_P = (side[order_P] for side in (better_P, tied_P, gain_P))
    place_P = torch.arange(len(query_P)) - (count_Q.cumsum(0) - count_Q)[query_P] + 1
    _, tie_P, sizes = torch.unique_consecutive(
        torch.stack([query_P, better_P]), dim=1, return_inverse=True, return_counts=True
    )
    number_P = torch.arange(len(query_P)) - (sizes.cumsum(0) - sizes)[tie_P] + 1
    rank_P = better_P + number_P * (tied_P + 1).double() / (sizes[tie_P] + 1)
    rank_P[document_P[order_P] <= LOST] = torch.inf
    # any of a tie's relevant documents may be at any of their places
    shared_P = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, tie_P, gain_P)[tie_P] / sizes[tie_P]
    return Ranked(query_P, rank_P, shared_P, ideal_P, place_P.double(), count_Q.double())


def _within(query_P: Tensor, by_P: Tensor) -> Tensor:
    """(P,) pairs in ascending order of something, a query's together."""
    order_P = torch.argsort(by_P, stable=True)
    return order_P[torch.argsort(query_P[order_P], stable=True)]


def _compared(
    query_P: Tensor, document_P: Tensor, documents: int, similarities: Callable[[int, int], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Count for each pair the documents that are more similar, and those as similar, itself included, in blocks."""
    rows = max(1, min(BLOCK, CELLS // documents))
    for start in range(0, int(query_P[-1]) + 1, rows):
        similarity_BN = similarities(start, start + rows)
        begin, end = torch.searchsorted(query_P, torch.tensor([start, start + rows])).tolist()
        for at in range(begin, end, rows):
            part = slice(at, min(at + rows, end))
            row_P = (query_P[part] - start).to(similarity_BN.device)
            all_PN = similarity_BN[row_P]
            own_P1 = all_PN.gather(1, document_P[part].clamp(min=0).unsqueeze(-1).to(all_PN.device))
            yield (all_PN > own_P1 + TIE).sum(-1).cpu(), ((all_PN - own_P1).abs() <= TIE).sum(-1).cpu()
