"""CQADupStack: retrieval of duplicate questions in a forum.

The protocol is that of TSDAE (Wang et al. 2021, package useb), which table 3 of GenSE follows, not that of BEIR or
MTEB. A forum's queries are removed from its documents, and the 100 nearest documents by cosine are kept. Average
precision is computed over these 100 alone: it is normalized by the number of duplicates among them, and is 0 if there
are none. nDCG@10 is normalized by all duplicates of a query. Scores are means over a forum's queries, then the
unweighted mean over forums.

    CQADupStack/corpus        forum, id, text
    CQADupStack/{valid,test}  forum, query_id, relevant_ids (ids of the same forum separated by spaces)

Shape letters: B queries of one block, N documents, T = 100 nearest, R most duplicates of a query, D width.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from contrastive_encoders.core import InputError, Prompted
from contrastive_encoders.evaluation.embedding_pool import DIGITS, EmbeddingPool, unit_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table, table
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.statistics.bootstrap import Estimate, average, mean_of_queries

log = logging.getLogger(__name__)

MAX_DOCUMENTS = 100
CUTOFF = 10
FORUMS = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
METRICS = (f"map@{MAX_DOCUMENTS}", f"ndcg@{CUTOFF}")
CELLS = 2**25  # cosines in memory at a time: 128 MiB
MAX_QUERIES = 128  # in a block: the embeddings of their nearest documents are gathered as B x T x D float64


class Forum(NamedTuple):
    """The queries of a forum, and its documents, which exclude the queries."""

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[list[int]]  # for each query, the positions of its duplicates in the documents
    duplicates: list[int]  # for each query, the number of its duplicates, including those that are queries themselves


class ForumRetrieval:
    """Retrieval task for all forums: scores such as ``cqadupstack-android/cosine/map@100``, and the mean
    ``cqadupstack/cosine/map@100``.
    """

    def __init__(self, name: str, forums: Sequence[Forum], split: str = "") -> None:
        self.name, self.split = f"{name}{split}", split
        self.forums = [
            forum._replace(
                queries=Prompted(forum.queries, role="query"), documents=Prompted(forum.documents, role="document")
            )
            for forum in forums
        ]
        self.stem = name

    def texts(self) -> Iterator[Sequence[str]]:
        for forum in self.forums:
            yield forum.queries
            yield forum.documents

    def score_names(self) -> list[str]:
        tasks = [self.name, *(self._task(forum) for forum in self.forums)]
        return [f"{task}/cosine/{metric}" for task in tasks for metric in METRICS]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        parts: dict[str, list[Estimate]] = {metric: [] for metric in METRICS}
        for forum in self.forums:
            ap_Q, ndcg_Q = self._per_query(forum, pool, options.device)
            has_duplicates_Q = torch.tensor(forum.duplicates) > 0  # useb leaves others out of nDCG, but not out of MAP
            key = self._task(forum) if options.intervals else None
            parts[METRICS[0]].append(mean_of_queries(ap_Q, key))
            parts[METRICS[1]].append(mean_of_queries(ndcg_Q[has_duplicates_Q], key))
        estimates = {f"{self.name}/cosine/{metric}": average(estimates) for metric, estimates in parts.items()}
        for i, forum in enumerate(self.forums):
            estimates |= {f"{self._task(forum)}/cosine/{metric}": parts[metric][i] for metric in METRICS}
        return estimates

    def _task(self, forum: Forum) -> str:
        return f"{self.stem}-{forum.name}{self.split}"

    def _per_query(self, forum: Forum, pool: EmbeddingPool, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the average precision and the nDCG of each query, (Q,) each."""
        queries_QD = unit_rows(pool.lookup(forum.queries), f"{self._task(forum)} queries")
        documents_ND = unit_rows(pool.lookup(forum.documents), f"{self._task(forum)} documents")
        on_device_ND = documents_ND.to(device)
        rows = max(1, min(MAX_QUERIES, CELLS // max(1, len(documents_ND))))
        ap, ndcg = [], []
        for start in range(0, len(queries_QD), rows):
            block_BD = queries_QD[start : start + rows]
            cosine_BN = block_BD.to(device) @ on_device_ND.T
            chosen_BT = cosine_BN.topk(min(MAX_DOCUMENTS, len(documents_ND)), dim=-1).indices.cpu()
            cosine_BT, chosen_BT = _sort_by_cosine(block_BD, documents_ND, chosen_BT)
            hits_BT = _hits(chosen_BT, forum.relevant[start : start + rows])
            ap.append(average_precisions(cosine_BT, hits_BT))
            ndcg.append(ndcg_at_cutoff(hits_BT, torch.tensor(forum.duplicates[start : start + rows])))
        return torch.cat(ap), torch.cat(ndcg)


def _sort_by_cosine(queries_BD: Tensor, documents_ND: Tensor, chosen_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the nearest documents by their float64 cosines. Ties keep the order of the documents.

    In a float32 matmul, the cosines of equal documents depend on their position in the matrix and on the hardware.
    """
    chosen_BT = chosen_BT.sort(-1).values
    near_BTD = normalize(documents_ND[chosen_BT].double(), dim=-1)
    query_BD1 = normalize(queries_BD.double(), dim=-1).unsqueeze(-1)
    cosine_BT = (near_BTD @ query_BD1).squeeze(-1).round(decimals=DIGITS)
    order_BT = torch.argsort(cosine_BT, dim=-1, descending=True, stable=True)
    return cosine_BT.gather(-1, order_BT), chosen_BT.gather(-1, order_BT)


def _hits(chosen_BT: Tensor, relevant: Sequence[list[int]]) -> Tensor:
    """Return whether each of the T nearest documents of B queries is a duplicate, (B, T)."""
    max_duplicates = max((len(rows) for rows in relevant), default=0)
    relevant_BR = torch.tensor([rows + [-1] * (max_duplicates - len(rows)) for rows in relevant]).view(
        len(relevant), max_duplicates
    )
    return (chosen_BT.unsqueeze(-1) == relevant_BR.long().unsqueeze(1)).any(-1)


def average_precisions(cosine_BT: Tensor, hits_BT: Tensor) -> Tensor:
    """Return the average precision of B rankings, (B,) float64: 0 for a ranking without hits.

    Tied items enter together, as in scikit-learn.
    """
    places_T = torch.arange(cosine_BT.shape[1])
    is_end_BT = torch.ones_like(hits_BT)
    is_end_BT[:, :-1] = cosine_BT[:, 1:] != cosine_BT[:, :-1]
    # Position of the last item of each item's tie: the smallest end at or after it
    end_BT = torch.where(is_end_BT, places_T, len(places_T)).flip(-1).cummin(-1).values.flip(-1)
    precision_BT = hits_BT.double().cumsum(-1) / (places_T + 1)
    found_B = hits_BT.sum(-1)
    return (precision_BT.gather(-1, end_BT) * hits_BT).sum(-1) / found_B.clamp(min=1)


def ndcg_at_cutoff(hits_BT: Tensor, duplicates_B: Tensor) -> Tensor:
    """Return the nDCG@10 of B rankings with gains of 0 and 1, (B,) float64: 0 for queries without duplicates."""
    discount_C = 1 / torch.log2(torch.arange(2, CUTOFF + 2, dtype=torch.float64))
    top_BC = hits_BT[:, :CUTOFF].double()
    ideal_B = discount_C.cumsum(0)[duplicates_B.clamp(1, CUTOFF) - 1]
    return top_BC @ discount_C[: top_BC.shape[1]] / ideal_B


def _read(split: str, ending: str, root: Path, name: str, config: EvaluateConfig) -> ForumRetrieval:
    """Read a split (valid or test). ``ending`` is the suffix of the task in score names: -dev or empty."""
    corpus = _corpus(table(root, "CQADupStack/corpus"))
    path = table(root, f"CQADupStack/{split}")
    queries_of: dict[str, dict[str, list[str]]] = {}
    for row in read_table(path, columns := ("forum", "query_id", "relevant_ids")):
        forum, query, relevant = (row.values[name] for name in columns)
        if query not in corpus.get(forum, {}):
            raise InputError(
                location=row.where,
                value=f"{query!r} of forum {forum!r}",
                expected="the id of a question in CQADupStack/corpus",
                hint="The corpus is truncated or from another version. Download both tables again.",
            )
        queries_of.setdefault(forum, {})[query] = list(dict.fromkeys(relevant.split()))
    if not queries_of:
        hint = "Download the table again."
        raise InputError(location=str(path), value="no rows", expected="queries below the header", hint=hint)
    if set(queries_of) != set(FORUMS):
        log.warning(
            "%s: %d forums, but the published mean is over %d: %s",
            path,
            len(queries_of),
            len(FORUMS),
            ", ".join(FORUMS),
        )
    forums = [_forum(forum, corpus[forum], queries) for forum, queries in queries_of.items()]
    return ForumRetrieval("cqadupstack", forums, ending)


def _corpus(path: Path) -> dict[str, dict[str, str]]:
    """Return a mapping from each forum to its texts: {forum: {id: text}}."""
    corpus: dict[str, dict[str, str]] = {}
    for row in read_table(path, ["forum", "id", "text"]):
        corpus.setdefault(row.values["forum"], {})[row.values["id"]] = row.text("text", may_be_empty=True)
    return corpus


def _forum(name: str, corpus: dict[str, str], queries: dict[str, list[str]]) -> Forum:
    ids = [key for key in corpus if key not in queries]
    row_of = {key: row for row, key in enumerate(ids)}
    if unknown := sum(key not in corpus for relevant in queries.values() for key in relevant):
        log.warning(
            "CQADupStack: %d duplicates in forum %s are not in the corpus and cannot be retrieved", unknown, name
        )
    return Forum(
        name,
        queries=[corpus[key] for key in queries],
        documents=[corpus[key] for key in ids],
        relevant=[[row_of[key] for key in relevant if key in row_of] for relevant in queries.values()],
        duplicates=[len(relevant) for relevant in queries.values()],
    )


ENTRIES = {
    f"cqadupstack{ending}": TaskEntry(
        {"CQADupStack/corpus": None, f"CQADupStack/{split}": None}, partial(_read, split, ending)
    )
    for ending, split in (("", "test"), ("-dev", "valid"))
}
