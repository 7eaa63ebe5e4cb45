"""Tasks that a user defines: scored pairs, triplets, retrieval, and labels, each with its configuration keys."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np

from contrastive_encoders.composition.import_target import imported, is_allowed, untrusted
from contrastive_encoders.core import InputError, Prompted, RatedPairs, RetrievalData
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.evaluation.custom_tasks.beir import (
    PARTS,
    Files,
    IgnoreIdenticalIds,
    is_beir,
    read_set,
    sets_in,
)
from contrastive_encoders.evaluation.custom_tasks.columns import TableRow, columns_in, files_of, read
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions, Task
from contrastive_encoders.evaluation.tasks.classification import Classification, ClassificationSpec
from contrastive_encoders.evaluation.tasks.knn_kmeans import SCORES, KNNKMeansTask
from contrastive_encoders.evaluation.tasks.labeled import arranged, read_label
from contrastive_encoders.evaluation.tasks.paraphrase import Paraphrases
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask, kind_and_most
from contrastive_encoders.evaluation.tasks.sts import CustomMetricPairs, SimilarityTask
from contrastive_encoders.evaluation.tasks.triplets import TripletTask
from contrastive_encoders.io import column_names
from contrastive_encoders.io.column_names import Names, choose_columns
from contrastive_encoders.io.file_discovery import form_of, list_files
from contrastive_encoders.io.text_files import ENCODING_MEANING, Encoding
from contrastive_encoders.statistics.bootstrap import Estimate, average

CLASSIFIER = "classifier"
SETS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}
SPLIT_FILE_PATTERN = re.compile(rf"({'|'.join(SETS)})(-\d+-of-\d+)?(\.[^.]+)(\.gz)?")  # split file


PROMPT = 'text in front of every input; null: that of the encoder; "": none'
QUERY_PROMPT = "text in front of every query (triplets: of the first text); null: the encoder's prompt for queries"
DOCUMENT_PROMPT = "text in front of every document (triplets: of the other texts); null: its prompt for documents"


@dataclass(frozen=True, kw_only=True)
class OwnTask:
    """Base class of a user's tasks. If ``columns`` is None, the columns with known names are used."""

    known: ClassVar[tuple[tuple[Names, ...], ...]]  # for each group of columns, alternative names

    path: str | Sequence[str] | None = config_field(None, ".jsonl, .csv, .tsv, .parquet; a file, several, a directory")
    columns: Sequence[str] | None = config_field(None, "names of the columns; null: the usual ones of the kind")
    encoding: str | None = config_field(None, ENCODING_MEANING)

    @property
    def text_encoding(self) -> Encoding:
        return Encoding(self.encoding, "encoding")

    @abstractmethod
    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        """Return the tasks of this name.

        Raises:
            InputError: a file is missing or damaged, or no score can be computed from it.
        """

    def files(self) -> list[Path]:
        """Return the files that the task is read from."""
        return files_of(self.path or [], "path")

    @classmethod
    def fits(cls, there: Sequence[str]) -> bool:
        """Return whether a file with these columns may be of this kind."""
        return all(choose_columns(there, group) for group in cls.known)

    def check(self) -> None:
        if self.path is None:
            raise InputError("path is not set: wanted a file or a folder.")
        wanted = sum(len(group[0]) for group in self.known)
        if self.columns is not None and (len(self.columns) != wanted or len(set(self.columns)) < wanted):
            names = ", ".join(name for group in self.known for name in group[0])
            raise InputError(f"columns={list(self.columns)}: wanted {wanted} different names, in the place of {names}.")

    def _names(self, file: Path) -> list[str]:
        if self.columns is not None:
            return list(self.columns)
        there = columns_in(file, self.text_encoding)
        return [name for group in self.known for name in choose_columns(there, group) or group[0]]

    def _rows(self, split: str | None) -> Iterator[tuple[TableRow, list[str]]]:
        """Yield each row that belongs to this split or to no split, and the names of its columns."""
        files, others, kept = self.files(), set[str](), 0
        for file in files:
            names = self._names(file)
            for found in read([file], names, encoding=self.text_encoding):
                if split is None or found.split_name() in (None, split):
                    kept += 1
                    yield found, names
                else:
                    others.add(str(found.split_name()))
        if not kept:
            raise InputError(f"{files[0]}: no row of split {split}; there are {', '.join(sorted(others))}.")


@dataclass(frozen=True, kw_only=True)
class OwnPairs(OwnTask):
    known = (column_names.RATED_PAIRS, column_names.RATINGS)

    split: str | None = config_field(None, 'rows to use, if the rows have a "split"; null: all')
    prompt: str | None = config_field(None, PROMPT)
    metric: str | None = config_field(
        None,
        "package.module.function(cosines, scores): a further score in its own unit; allow_targets=[package] allows it",
    )

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        measured = None if self.metric is None else _function(self.metric, config.allow_targets or [])
        left, right, gold = list[str](), list[str](), list[float]()
        for found, (first, second, rating) in self._rows(self.split):
            left.append(found.text(first))
            right.append(found.text(second))
            gold.append(found.number(rating))
        if len(values := set(gold)) < 2:
            raise InputError(
                f"{self.files()[0]}: all {len(gold)} rows have the score {gold[0]:g}, and nothing can be told from a "
                "constant; wanted scores that differ."
            )
        sides = Prompted(left, self.prompt), Prompted(right, self.prompt)
        pairs = RatedPairs(name, *sides, np.array(gold), [name] * len(gold))
        usual: Task = Paraphrases(pairs, 0.5, f1=True) if values == {0, 1} else SimilarityTask(pairs)
        return [usual] if measured is None else [usual, CustomMetricPairs(pairs, measured)]


def _function(target: str, allowed: Sequence[str]) -> Callable[[np.ndarray, np.ndarray], float]:
    if not is_allowed(target, allowed):
        raise untrusted("metric", target)
    found = imported("metric", target)
    if not callable(found):
        raise InputError(f"metric={target}: wanted a function of predictions and gold, got {type(found).__name__}.")
    return cast(Callable[[np.ndarray, np.ndarray], float], found)


@dataclass(frozen=True, kw_only=True)
class OwnTriplets(OwnTask):
    known = ((*column_names.SCORED_TRIPLETS, *column_names.TRIPLETS),)

    split: str | None = config_field(None, 'rows to use, if the rows have a "split"; null: all')
    query_prompt: str | None = config_field(None, QUERY_PROMPT)
    document_prompt: str | None = config_field(None, DOCUMENT_PROMPT)

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        rows = [[found.text(one) for one in names] for found, names in self._rows(self.split)]
        anchors, *others = zip(*rows, strict=True)
        documents = [Prompted(side, self.document_prompt, "document") for side in others]
        return [TripletTask(name, [Prompted(anchors, self.query_prompt, "query"), *documents])]


@dataclass(frozen=True, kw_only=True)
class OwnRetrieval(OwnTask):
    known = (column_names.ANSWERS,)

    split: str | None = config_field(
        None, "split of the qrels, the rows, or a directory of several sets; null: test, or the only one"
    )
    queries: str | None = config_field(None, "file with _id and text, if it is not in the directory")
    corpus: str | None = config_field(None, "file with _id, text, and optionally title")
    qrels: str | None = config_field(
        None,
        "file with query-id, corpus-id, and optionally score; or as TREC has them: query, iteration, document, score",
    )
    query_prompt: str | None = config_field(None, QUERY_PROMPT)
    document_prompt: str | None = config_field(None, DOCUMENT_PROMPT)
    ignore_identical_ids: IgnoreIdenticalIds = config_field(
        "auto",
        "whether a document with the id of the query is not ranked for it, as in ArguAna and Quora; auto: if the texts "
        "are equal, too",
    )
    metrics: Sequence[str] = config_field(
        ("ndcg@10", "mrr@10", "map@100", "recall@10", "recall@100"), "ndcg@K, mrr@K, map@K, recall@K"
    )

    def check(self) -> None:
        for metric in self.metrics:
            kind_and_most(metric)
        if not (self.queries and self.corpus and self.qrels):
            super().check()

    def files(self) -> list[Path]:
        sets = self._sets()
        if sets is None:
            return super().files()
        return list(dict.fromkeys(file for one in sets.values() for part in one for file in part))

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        sets = self._sets()
        if sets is None:
            found = {"": self._of_rows(name)}
        else:
            found = {
                part: read_set(f"{name}-{part}" if part else name, files, self.ignore_identical_ids, self.text_encoding)
                for part, files in sets.items()
            }
        tasks = [RetrievalTask(self._prompted(one), self.metrics) for one in found.values()]
        return [tasks[0]] if list(found) == [""] else [TaskGroup(name, tasks)]

    def _prompted(self, task: RetrievalData) -> RetrievalData:
        queries = Prompted(task.queries, self.query_prompt, "query")
        return task._replace(queries=queries, documents=Prompted(task.documents, self.document_prompt, "document"))

    def _sets(self) -> dict[str, Files] | None:
        """Return the sets of a folder or of given files, or None if the data are rows."""
        given = {
            part: [file.path for file in list_files(getattr(self, part), part, any_name=part == "qrels")]
            for part in PARTS
            if getattr(self, part)
        }
        folder = Path(self.path) if isinstance(self.path, str) else None
        return sets_in(folder, self.split, given) if given or (folder and is_beir(folder)) else None

    def _of_rows(self, name: str) -> RetrievalData:
        """Read each text once. A query may occur in several rows."""
        queries, documents = dict[str, dict[int, float]](), dict[str, int]()
        for found, (query, document) in self._rows(self.split):
            place = documents.setdefault(found.text(document), len(documents))
            queries.setdefault(found.text(query), {})[place] = 1.0
        return RetrievalData(name, list(queries), list(documents), list(queries.values()))


@dataclass(frozen=True, kw_only=True)
class OwnLabels(OwnTask):
    known = (column_names.TEXTS, column_names.LABELS)

    prompt: str | None = config_field(None, PROMPT)
    scores: Sequence[str] = config_field(
        (CLASSIFIER, *SCORES), "scores to compute; the classifier has the keys protocol, nhid, and seed"
    )
    neighbors: int = config_field(5, "nearest neighbors that vote", ge=1)

    def check(self) -> None:
        super().check()
        if unknown := [one for one in self.scores if one not in (CLASSIFIER, *SCORES)]:
            raise InputError(f"scores: {unknown[0]!r} is none. Wanted some of {', '.join((CLASSIFIER, *SCORES))}.")

    def files(self) -> list[Path]:
        """Return the files of a folder that are named after a split, or all files if no name matches."""
        there = Path(self.path) if isinstance(self.path, str) else None
        inside = sorted(there.iterdir()) if there and there.is_dir() else []
        return [one for one in inside if SPLIT_FILE_PATTERN.fullmatch(one.name) and form_of(one)] or super().files()

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        rows = dict[str, list[tuple[TableRow, str, str]]]()
        for found, (text, label) in self._rows(None):
            named = SPLIT_FILE_PATTERN.fullmatch(Path(found.where.rpartition(":")[0]).name)
            split = found.split_name() or (named[1] if named else None)
            rows.setdefault("all" if split is None else SETS.get(split, split), []).append((found, text, label))
        rows = _usual_parts(rows)
        known = {
            one: number
            for number, one in enumerate(sorted({row.word(one) for row, _, one in next(iter(rows.values()))}))
        }
        if len(known) < 2:
            raise InputError(f"{self.files()[0]}: its rows have {len(known)} label; wanted two that differ, or more.")
        parts = {}
        for part, found_rows in rows.items():
            labels = [read_label(row.where, label, row.word(label), known) for row, _, label in found_rows]
            made = arranged(str(self.path), ([row.text(text) for row, text, _ in found_rows],), labels, labels, (0,))
            parts[part] = made._replace(sides=(Prompted(made.sides[0], self.prompt),))
        tasks = list[Task]()
        if CLASSIFIER in self.scores:
            tasks.append(Classification(name, ClassificationSpec(), list(known), parts, config))
        if set(self.scores) & set(SCORES):
            tasks.append(KNNKMeansTask(name, parts, self.scores, self.neighbors, config.seed))
        return tasks


def _usual_parts(rows: dict[str, list[tuple[TableRow, str, str]]]) -> dict[str, list[tuple[TableRow, str, str]]]:
    """Return ``all``, or ``train``, ``dev`` if present, and ``test``, with the training rows first."""
    if len(rows) == 1:
        return {"all": next(iter(rows.values()))}
    if set(rows) == {"train", "dev"}:
        return {"train": rows["train"], "test": rows["dev"]}
    if set(rows) - {"dev"} != {"train", "test"}:
        raise InputError(f"wanted rows of train and test, perhaps of dev, or all of none; there are {', '.join(rows)}.")
    return {part: rows[part] for part in ("train", "dev", "test") if part in rows}


class TaskGroup:
    """Sets that are scored one by one, and the means of their scores."""

    def __init__(self, name: str, tasks: Sequence[RetrievalTask]) -> None:
        self.name, self.tasks = name, list(tasks)

    def texts(self) -> Iterator[Sequence[str]]:
        for task in self.tasks:
            yield from task.texts()

    def score_names(self) -> list[str]:
        means = [f"{self.name}/cosine/{metric}" for metric in self.tasks[0].metrics]
        return [*means, *(name for task in self.tasks for name in task.score_names())]

    def score(self, pool: EmbeddingPool, how: ScoringOptions) -> dict[str, Estimate]:
        found = [task.score(pool, how) for task in self.tasks]
        means = [average(values) for values in zip(*(one.values() for one in found), strict=True)]
        parts = {name: value for one in found for name, value in one.items()}
        return dict(zip(self.score_names(), means, strict=False)) | parts


KINDS: dict[str, type[OwnTask]] = {  # in the order in which the columns of a file are compared with them
    "triplets": OwnTriplets,
    "pairs": OwnPairs,
    "labeled": OwnLabels,
    "retrieval": OwnRetrieval,
}


def kind_of(path: str | Sequence[str], encoding: str | None = None) -> str:
    """Return the kind of task of a file or folder, from the names of its columns or of its files.

    Raises:
        InputError: no kind matches.
    """
    if isinstance(path, str) and is_beir(Path(path)):
        return "retrieval"
    file = files_of(path, "path")[0]
    there = columns_in(file, Encoding(encoding, "encoding"))
    for kind, cls in KINDS.items():
        if cls.fits(there):
            return kind
    wanted = "; ".join(
        f"{kind} {', '.join(name for group in cls.known for name in group[0])}" for kind, cls in KINDS.items()
    )
    raise InputError(
        f"{file}: its columns {', '.join(map(repr, there)) or '(none)'} do not say what to score. Wanted those of "
        f"{wanted}; or kind and columns in a YAML file."
    )
