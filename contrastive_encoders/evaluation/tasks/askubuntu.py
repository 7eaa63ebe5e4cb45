"""AskUbuntu: rank the candidates of each query by their cosine similarity to the query.

The protocol is that of TSDAE (Wang et al. 2021, package useb), which table 3 of GenSE follows. The 20 candidates are
sorted with a stable sort, so that ties keep the order of BM25. Queries without a similar question are left out.

    AskUbuntu/{dev,test}   query_id, positive_ids, candidate_ids (ids separated by spaces; candidates in BM25's order)
    AskUbuntu/texts        id, title, body

Shape letters: K candidates, Q queries, M metrics, D width.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from contrastive_encoders.core import InputError, Prompted
from contrastive_encoders.evaluation.embedding_pool import DIGITS, EmbeddingPool, unit_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import EMPTY, read_table, table
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.statistics.bootstrap import Estimate, mean

METRICS = ("map", "p@1", "p@5", "mrr")


class CandidateList(NamedTuple):
    """A query and its candidates, at least one of which is relevant."""

    query: str
    texts: list[str]  # K texts, in the order of BM25
    relevant: list[bool]  # K values


class AskUbuntuTask:
    """Task that ranks the candidates of each query by cosine.

    Its scores are means over queries, times 100: average precision, precision at 1 and at 5, and the reciprocal rank of
    the first relevant candidate.
    """

    def __init__(self, name: str, queries: Sequence[CandidateList]) -> None:
        self.name, self.queries = name, list(queries)

    def texts(self) -> Iterator[Sequence[str]]:
        yield Prompted((one.query for one in self.queries), role="query")
        for one in self.queries:
            yield Prompted(one.texts, role="document")

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/{metric}" for metric in METRICS]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        values_QM = torch.stack([measures(self._hits(one, pool)) for one in self.queries])
        key = self.name if options.intervals else None
        return {name: mean(values_QM[:, i], key) for i, name in enumerate(self.score_names())}

    def _hits(self, one: CandidateList, pool: EmbeddingPool) -> Tensor:
        """Return whether the candidate at each of K ranks is relevant, (K,)."""
        query_D, *_ = unit_rows(pool.lookup(Prompted([one.query], role="query")).double(), self.name)
        texts_KD = unit_rows(pool.lookup(Prompted(one.texts, role="document")).double(), self.name)
        cosine_K = (texts_KD @ query_D).round(decimals=DIGITS)
        return torch.tensor(one.relevant)[torch.argsort(cosine_K, descending=True, stable=True)]


def measures(hits_K: Tensor) -> Tensor:
    """Return average precision, precision at 1, precision at 5, and reciprocal rank of a ranking, (4,) float64."""
    ranks_K = torch.arange(1, len(hits_K) + 1, dtype=torch.float64)
    precision_K = hits_K.double().cumsum(0) / ranks_K
    at_5 = precision_K[min(5, len(hits_K)) - 1]
    return torch.stack([precision_K[hits_K].mean(), precision_K[0], at_5, 1 / ranks_K[hits_K][0]])


TEXTS = {"title": "{title}", "body": "{body}", "title+body": "{title} {body}"}


def _read(split: str, root: Path, name: str, config: EvaluateConfig) -> AskUbuntuTask:
    path = table(root, f"AskUbuntu/{split}")
    rows = list(_questions(path))
    ids = {one for _, query, _, candidates in rows for one in (query, *candidates)}
    texts = _askubuntu_texts(table(root, "AskUbuntu/texts"), ids, config.askubuntu_text)
    queries = []
    for where, query, positives, candidates in rows:
        missing = [one for one in (query, *candidates) if one not in texts]
        if missing:
            raise InputError(
                location=where,
                value=missing[0],
                expected=f"ids that exist in AskUbuntu/texts ({len(missing)} ids of this line do not)",
                hint="The table of texts is truncated or from another version. Download both tables again.",
            )
        relevant = [one in positives for one in candidates]
        queries.append(CandidateList(texts[query], [texts[one] for one in candidates], relevant))
    if not queries:
        raise InputError(location=str(path), key="positive_ids", expected="ids for at least one query")
    return AskUbuntuTask(name, queries)


def _questions(path: Path) -> Iterator[tuple[str, str, set[str], list[str]]]:
    """Yield (location, query id, positive ids, candidate ids) for each query that has a positive."""
    for row in read_table(path, ["query_id", "positive_ids", "candidate_ids"]):
        similar, candidate_ids = set(row.values["positive_ids"].split()), row.text("candidate_ids").split()
        if similar and similar.isdisjoint(candidate_ids):
            raise InputError(
                location=row.where,
                key="positive_ids",
                expected="at least one of the candidate_ids, which the average precision requires",
                hint="Download the table again or delete the row.",
            )
        if similar:
            yield row.where, row.text("query_id"), similar, candidate_ids


def _askubuntu_texts(path: Path, ids: set[str], text: str) -> dict[str, str]:
    texts = dict[str, str]()
    for row in read_table(path, ["id", "title", "body"]):
        if row.values["id"] in ids:
            parts = {name: row.values[name].strip() for name in ("title", "body")}
            texts[row.values["id"]] = TEXTS[text].format(**parts).strip() or EMPTY
    return texts


ENTRIES = {
    f"askubuntu{ending}": TaskEntry({f"AskUbuntu/{split}": 200, "AskUbuntu/texts": None}, partial(_read, split))
    for ending, split in (("", "test"), ("-dev", "dev"))
}
