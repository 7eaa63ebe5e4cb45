"""Types of custom tasks: scored pairs, triplets, retrieval, and labels, each with its configuration keys."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import yaml

from contrastive_encoders.core import InputError, Prompted, RatedPairs, RetrievalData
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.core.import_target import imported, is_allowed, untrusted
from contrastive_encoders.evaluation.custom_tasks.beir import (
    Files,
    IgnoreIdenticalIds,
    find_sets,
    read_set,
)
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import TableRow, read_custom_table, read_header
from contrastive_encoders.evaluation.task import ScoringOptions, Task
from contrastive_encoders.evaluation.tasks.classification import Classification, ClassificationSpec
from contrastive_encoders.evaluation.tasks.knn_kmeans import SCORES, KNNKMeansTask
from contrastive_encoders.evaluation.tasks.labeled import senteval_order
from contrastive_encoders.evaluation.tasks.paraphrase import Paraphrases
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask, parse_metric
from contrastive_encoders.evaluation.tasks.sts import CustomMetricPairs, SimilarityTask
from contrastive_encoders.evaluation.tasks.triplets import TripletTask
from contrastive_encoders.io import column_names
from contrastive_encoders.io.beir_layout import PARTS, is_beir
from contrastive_encoders.io.column_names import Names, choose_columns
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.rows import header_advice
from contrastive_encoders.io.text_files import ENCODING_MEANING, Encoding
from contrastive_encoders.statistics.bootstrap import Estimate, average

CLASSIFIER = "classifier"
SPLIT_NAMES = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}
SPLIT_FILE_PATTERN = re.compile(rf"({'|'.join(SPLIT_NAMES)})(-\d+-of-\d+)?(\.[^.]+)(\.gz)?")  # split file


PROMPT = 'prompt that is prepended to every input; null: the encoder\'s default prompt; "": no prompt'
QUERY_PROMPT = (
    "prompt that is prepended to every query (for triplets, to the first text); null: the encoder's prompt for queries"
)
DOCUMENT_PROMPT = (
    "prompt that is prepended to every document (for triplets, to the other texts); null: the encoder's prompt for "
    "documents"
)


@dataclass(frozen=True, kw_only=True)
class CustomTask:
    """Base class of custom tasks: the fields are the task's configuration keys, and `read` reads its files."""

    # If ``columns`` is None, the columns with known names are used
    known: ClassVar[tuple[tuple[Names, ...], ...]]  # for each group of columns, alternative names

    path: str | Sequence[str] | None = config_field(
        None, "file, list of files, or directory that contains the data of the task (.jsonl, .csv, .tsv, or .parquet)"
    )
    columns: Sequence[str] | None = config_field(
        None, "names of the columns; null: the standard names of this kind of task"
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)

    @property
    def text_encoding(self) -> Encoding:
        return Encoding(self.encoding, "encoding")

    @abstractmethod
    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        """Read the data, and return the tasks that score embeddings on them.

        Raises:
            InputError: a file is missing or damaged, or no score can be computed from it.
        """

    def files(self) -> list[Path]:
        """Return the files from which the task is read."""
        return [file.path for file in list_files(self.path or [], "path")]

    @classmethod
    def matches_columns(cls, columns: Sequence[str]) -> bool:
        """Return whether a file with these columns can be read as this kind of task."""
        return all(choose_columns(columns, group) for group in cls.known)

    def check(self) -> None:
        if self.path is None:
            raise InputError(key="path", value=None, expected="a file or a directory")
        count = sum(len(group[0]) for group in self.known)
        if self.columns is not None and (len(self.columns) != count or len(set(self.columns)) < count):
            names = ", ".join(name for group in self.known for name in group[0])
            expected = f"{count} different names, which replace {names}"
            raise InputError(key="columns", value=list(self.columns), expected=expected)

    def _names(self, file: Path) -> list[str]:
        if self.columns is not None:
            return list(self.columns)
        columns = read_header(file, self.text_encoding)
        return [name for group in self.known for name in choose_columns(columns, group) or group[0]]

    def _rows(self, split: str | None) -> Iterator[tuple[TableRow, list[str]]]:
        """Yield (row, column names) for each row of a split. Rows that name no split belong to every split.

        If ``split`` is None, all rows are yielded.
        """
        files, others, count = self.files(), set[str](), 0
        for file in files:
            names = self._names(file)
            for row in read_custom_table(file, names, encoding=self.text_encoding):
                if split is None or row.split_name() in (None, split):
                    count += 1
                    yield row, names
                else:
                    others.add(str(row.split_name()))
        if not count:
            expected = f"one of the splits in {files[0]} ({', '.join(sorted(others))})"
            raise InputError(key="split", value=split, expected=expected)


@dataclass(frozen=True, kw_only=True)
class CustomPairs(CustomTask):
    known = (column_names.RATED_PAIRS, column_names.RATINGS)

    split: str | None = config_field(
        None, 'split whose rows are used, if the rows have a column "split"; null: all rows'
    )
    prompt: str | None = config_field(None, PROMPT)
    metric: str | None = config_field(
        None,
        "import path, such as package.module.function, of a function that computes an additional score from the "
        "cosines of the pairs and their gold scores; its package must be listed in allow_targets",
    )

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        metric = None if self.metric is None else _function(self.metric, config.allow_targets or [])
        left, right, gold = list[str](), list[str](), list[float]()
        for row, (first, second, rating) in self._rows(self.split):
            left.append(row.text(first))
            right.append(row.text(second))
            gold.append(row.number(rating))
        if len(values := set(gold)) < 2:
            raise InputError(
                location=str(self.files()[0]),
                value=f"{gold[0]:g} in all {len(gold)} rows",
                expected="at least two different scores",
            )
        sides = Prompted(left, self.prompt), Prompted(right, self.prompt)
        pairs = RatedPairs(name, *sides, np.array(gold), [name] * len(gold))
        task: Task = Paraphrases(pairs, 0.5, f1=True) if values == {0, 1} else SimilarityTask(pairs)
        return [task] if metric is None else [task, CustomMetricPairs(pairs, metric)]


def _function(target: str, allowed: Sequence[str]) -> Callable[[np.ndarray, np.ndarray], float]:
    if not is_allowed(target, allowed):
        raise untrusted("metric", target)
    function = imported("metric", target)
    if not callable(function):
        expected = f"a function of cosines and scores, not {type(function).__name__}"
        raise InputError(key="metric", value=target, expected=expected)
    return cast(Callable[[np.ndarray, np.ndarray], float], function)


@dataclass(frozen=True, kw_only=True)
class CustomTriplets(CustomTask):
    known = ((*column_names.SCORED_TRIPLETS, *column_names.TRIPLETS),)

    split: str | None = config_field(
        None, 'split whose rows are used, if the rows have a column "split"; null: all rows'
    )
    query_prompt: str | None = config_field(None, QUERY_PROMPT)
    document_prompt: str | None = config_field(None, DOCUMENT_PROMPT)

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        rows = [[row.text(one) for one in names] for row, names in self._rows(self.split)]
        anchors, *others = zip(*rows, strict=True)
        documents = [Prompted(side, self.document_prompt, "document") for side in others]
        return [TripletTask(name, [Prompted(anchors, self.query_prompt, "query"), *documents])]


@dataclass(frozen=True, kw_only=True)
class CustomRetrieval(CustomTask):
    known = (column_names.ANSWERS,)

    split: str | None = config_field(
        None,
        "name of the split or data set to use. If the data have relevance judgments (qrels): a split of the qrels "
        '(null: test, or the only split). If the rows have a column "split": a value of this column (null: all rows).'
        " If the directory contains several data sets: the name of one (null: all data sets)",
    )
    queries: str | None = config_field(
        None, "file of the queries, with the columns _id and text; null: the queries in the directory `path`"
    )
    corpus: str | None = config_field(
        None,
        "file of the documents, with the columns _id, text, and optionally title; null: the corpus in the directory "
        "`path`",
    )
    qrels: str | None = config_field(
        None,
        "file of the relevance judgments, with the columns query-id, corpus-id, and optionally score, or in TREC's "
        "format (query, iteration, document, score); null: the qrels in the directory `path`",
    )
    query_prompt: str | None = config_field(None, QUERY_PROMPT)
    document_prompt: str | None = config_field(None, DOCUMENT_PROMPT)
    ignore_identical_ids: IgnoreIdenticalIds = config_field(
        "auto",
        "whether to exclude, for each query, the document with the same id, as in ArguAna and Quora; auto: exclude it "
        "only if the two texts are equal",
    )
    metrics: Sequence[str] = config_field(
        ("ndcg@10", "mrr@10", "map@100", "recall@10", "recall@100"),
        "metrics to compute: ndcg@K, mrr@K, map@K, or recall@K",
    )

    def check(self) -> None:
        for metric in self.metrics:
            parse_metric(metric)
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
            sets_by_name = {"": self._task_from_rows(name)}
        else:
            sets_by_name = {
                part: read_set(f"{name}-{part}" if part else name, files, self.ignore_identical_ids, self.text_encoding)
                for part, files in sets.items()
            }
        tasks = [RetrievalTask(self._with_prompts(one), self.metrics) for one in sets_by_name.values()]
        return [tasks[0]] if list(sets_by_name) == [""] else [TaskGroup(name, tasks)]

    def _with_prompts(self, task: RetrievalData) -> RetrievalData:
        queries = Prompted(task.queries, self.query_prompt, "query")
        return task._replace(queries=queries, documents=Prompted(task.documents, self.document_prompt, "document"))

    def _sets(self) -> dict[str, Files] | None:
        """Return a mapping from the name of each data set in BEIR's layout to its files, or None if the data are
        (query, document) rows.
        """
        paths = {
            part: [file.path for file in list_files(getattr(self, part), part, any_name=part == "qrels")]
            for part in PARTS
            if getattr(self, part)
        }
        folder = Path(self.path) if isinstance(self.path, str) else None
        return find_sets(folder, self.split, paths) if paths or (folder and is_beir(folder)) else None

    def _task_from_rows(self, name: str) -> RetrievalData:
        """Build retrieval data from (query, document) rows. Queries and documents may occur in several rows."""
        queries, documents = dict[str, dict[int, float]](), dict[str, int]()
        for row, (query, document) in self._rows(self.split):
            place = documents.setdefault(row.text(document), len(documents))
            queries.setdefault(row.text(query), {})[place] = 1.0
        return RetrievalData(name, list(queries), list(documents), list(queries.values()))


@dataclass(frozen=True, kw_only=True)
class CustomLabels(CustomTask):
    known = (column_names.TEXTS, column_names.LABELS)

    prompt: str | None = config_field(None, PROMPT)
    scores: Sequence[str] = config_field(
        (CLASSIFIER, *SCORES),
        "scores to compute; the evaluation's keys `protocol`, `nhid`, and `seed` configure the classifier",
    )
    neighbors: int = config_field(5, "number of nearest neighbors that vote on the label", ge=1)

    def check(self) -> None:
        super().check()
        if unknown := [one for one in self.scores if one not in (CLASSIFIER, *SCORES)]:
            raise InputError(key="scores", value=unknown[0], expected=f"one of {', '.join((CLASSIFIER, *SCORES))}")

    def files(self) -> list[Path]:
        """Return the files of a folder that are named after a split, or all files if no name matches."""
        folder = Path(self.path) if isinstance(self.path, str) else None
        files = sorted(folder.iterdir()) if folder and folder.is_dir() else []
        return [one for one in files if SPLIT_FILE_PATTERN.fullmatch(one.name) and form_of(one)] or super().files()

    def read(self, name: str, config: EvaluateConfig) -> list[Task]:
        rows = dict[str, list[tuple[TableRow, str, str]]]()
        for row, (text, label) in self._rows(None):
            match = SPLIT_FILE_PATTERN.fullmatch(Path(row.where.rpartition(":")[0]).name)
            split = row.split_name() or (match[1] if match else None)
            rows.setdefault("all" if split is None else SPLIT_NAMES.get(split, split), []).append((row, text, label))
        rows = _standard_splits(rows)
        known = {
            one: number
            for number, one in enumerate(sorted({row.word(one) for row, _, one in next(iter(rows.values()))}))
        }
        if len(known) < 2:
            raise InputError(
                location=str(self.files()[0]), value=f"{len(known)} label", expected="at least two different labels"
            )
        parts = {}
        for part, part_rows in rows.items():
            labels = [row.label(label, known) for row, _, label in part_rows]
            split_rows = senteval_order(
                str(self.path), ([row.text(text) for row, text, _ in part_rows],), labels, labels, (0,)
            )
            parts[part] = split_rows._replace(sides=(Prompted(split_rows.sides[0], self.prompt),))
        tasks = list[Task]()
        if CLASSIFIER in self.scores:
            tasks.append(Classification(name, ClassificationSpec(), list(known), parts, config))
        if set(self.scores) & set(SCORES):
            tasks.append(KNNKMeansTask(name, parts, self.scores, self.neighbors, config.seed))
        return tasks


def _standard_splits(rows: dict[str, list[tuple[TableRow, str, str]]]) -> dict[str, list[tuple[TableRow, str, str]]]:
    """Return a mapping from split names to rows. The splits are either ``all`` alone, or ``train``, ``dev`` (optional),
    and ``test``, in this order.

    If there is no test split, the dev split is used as the test split.
    """
    if len(rows) == 1:
        return {"all": next(iter(rows.values()))}
    if set(rows) == {"train", "dev"}:
        return {"train": rows["train"], "test": rows["dev"]}
    if set(rows) - {"dev"} != {"train", "test"}:
        raise InputError(
            key="split", value=", ".join(rows), expected="the splits train and test (dev is optional), or no splits"
        )
    return {part: rows[part] for part in ("train", "dev", "test") if part in rows}


class TaskGroup:
    """Group of retrieval tasks that reports the scores of each task, and the mean of each score over all tasks."""

    def __init__(self, name: str, tasks: Sequence[RetrievalTask]) -> None:
        self.name, self.tasks = name, list(tasks)

    def texts(self) -> Iterator[Sequence[str]]:
        for task in self.tasks:
            yield from task.texts()

    def score_names(self) -> list[str]:
        means = [f"{self.name}/cosine/{metric}" for metric in self.tasks[0].metrics]
        return [*means, *(name for task in self.tasks for name in task.score_names())]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        found = [task.score(pool, options) for task in self.tasks]
        means = [average(values) for values in zip(*(one.values() for one in found), strict=True)]
        parts = {name: value for one in found for name, value in one.items()}
        return dict(zip(self.score_names(), means, strict=False)) | parts


KINDS: dict[str, type[CustomTask]] = {  # in the order in which the columns of a file are compared with them
    "triplets": CustomTriplets,
    "pairs": CustomPairs,
    "labeled": CustomLabels,
    "retrieval": CustomRetrieval,
}


def kind_of(path: str | Sequence[str], encoding: str | None = None) -> str:
    """Infer the kind of task (triplets, pairs, labeled, or retrieval) from column names or the files of a folder.

    Raises:
        InputError: no kind matches.
    """
    if isinstance(path, str) and is_beir(Path(path)):
        return "retrieval"
    file = list_files(path, "path")[0].path
    columns = read_header(file, codec := Encoding(encoding, "encoding"))
    for kind, cls in KINDS.items():
        if cls.matches_columns(columns):
            return kind
    known_columns = "; ".join(
        f"{kind} ({', '.join(name for group in cls.known for name in group[0])})" for kind, cls in KINDS.items()
    )
    hint = "Rename the columns."
    if len(columns) > 1:
        kind, used = ("retrieval", columns[:2]) if len(columns) == 2 else ("pairs", columns[:3])
        task = {"my_task": {"kind": kind, "path": str(file), "columns": used}}
        example = yaml.safe_dump(task, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
        hint = f"Rename the columns, or write a YAML file, such as `{example.strip()}`, and name it in custom_tasks."
    raise InputError(
        location=str(file),
        key="columns",
        value=", ".join(map(repr, columns)) or "none",
        expected=f"the columns of one of these kinds of tasks: {known_columns}",
        hint=header_advice(file, codec, hint),
    )
