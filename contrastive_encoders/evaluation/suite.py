"""Suite of tasks, which encodes each sentence once and distributes the tasks over ranks.

Embeddings trained by prefixes are scored in full, and then for each prefix size: ``stsb@256/cosine/spearman``.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import Changes, CorpusInfo, Embedder, InputError, ItemScores, RatedPairs, RetrievalData
from contrastive_encoders.core.runtime.process_group import gather, group_ranks
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, LastPoolEmbeddings, Store, embed_pool
from contrastive_encoders.evaluation.paper_tables import averages
from contrastive_encoders.evaluation.scorer import Scorer
from contrastive_encoders.evaluation.task import ScoringOptions, Task
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from contrastive_encoders.evaluation.tasks.sts import SimilarityTask, cosines
from contrastive_encoders.statistics.bootstrap import Estimate, Scores

POOLED_TEXTS = 400_000  # limits the embeddings in memory: 1.2 GB at 768 features


class Suite(Scorer):
    """Scorer of encoders on a list of tasks. Iteration yields the tasks, so a suite can be made from a suite.

    Embeddings are also scored when truncated to their first ``size`` dimensions, for each of ``sizes``.
    """

    def __init__(
        self,
        tasks: Iterable[Task | RatedPairs | RetrievalData],
        row_count_mismatches: Mapping[str, str] | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        self.sizes: list[int | None] = [None, *sizes]
        self.tasks: list[Task] = [_task_of(task) for task in tasks]
        self.row_count_mismatches = dict(row_count_mismatches or {})  # reported in the results
        names = [name for task in self.tasks for name in task.score_names()]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise InputError(
                key="tasks",
                value=", ".join(duplicates),
                expected="tasks whose scores have different names",
                hint="Rename or remove a task.",
            )

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def run(
        self,
        embedder: Embedder,
        *,
        intervals: bool,
        store: Store | None = None,
        report: Callable[[str, float], None] | None = None,
        find_first: bool = True,
        **options: Any,
    ) -> Scores:
        """Score an encoder on all tasks, with identical scores on every rank. All ranks must call this.

        Args:
            embedder: the encoder.
            intervals: whether to compute intervals.
            store: keeps embeddings for the next call.
            report: ``report(task, seconds)`` is called for each task that this rank scored.
            find_first: whether to also find the first document of each query, ``Scores.first_documents``.
            **options: options of `Embedder.embed`.
        """
        scoring, unit = ScoringOptions(embedder.device, intervals), embedder.normalize
        by_size = {size: dict[str, Estimate]() for size in self.sizes}
        similarities, first_documents = dict[str, Tensor](), dict[str, list[int]]()
        for group in _groups(self.tasks):
            pool = embed_pool(embedder, (texts for task in group for texts in task.texts()), store, **options)
            for size in self.sizes:
                by_size[size].update(_score_distributed(group, pool.truncate(size, unit=unit), scoring, report))
            if find_first:
                first_documents.update(
                    {task.name: task.first_documents(pool) for task in group if isinstance(task, RetrievalTask)}
                )
            if intervals:
                pairs = [task.pairs for task in group if isinstance(task, SimilarityTask)]
                similarities.update({one.name: cosines(one, pool, warn=False) for one in pairs})
        ordered, members = dict[str, Estimate](), dict[str, list[str]]()
        for size, scores in by_size.items():
            in_order = {name: scores[name] for task in self.tasks for name in task.score_names()}
            for one in list(averages(in_order)):
                in_order[one.name] = one.estimate
                members[score_name_at_size(one.name, size)] = [score_name_at_size(name, size) for name in one.members]
            ordered |= {score_name_at_size(name, size): estimate for name, estimate in in_order.items()}
        items = items_of(self.tasks, similarities, ordered) if intervals else None
        return Scores.from_estimates(ordered, members, items, first_documents)

    def score(
        self,
        module: Any,
        *,
        intervals: bool,
        store: LastPoolEmbeddings | None = None,
        autocast: torch.dtype | None = None,
        progress: bool = False,
    ) -> Scores:
        """Score the encoder of a module in training with `run`; see `Scorer`."""
        return self.run(module.encoder, intervals=intervals, store=store, autocast=autocast, progress=progress)

    def score_names(self) -> list[str]:
        """Return the names of the scores that ``run`` computes."""
        names = [name for task in self.tasks for name in task.score_names()]
        names += [one.name for one in averages(dict.fromkeys(names, Estimate(0.0)))]
        return [score_name_at_size(name, size) for size in self.sizes for name in names]

    def baselines(self) -> dict[str, float]:
        """Return the scores of TF-IDF, a baseline without an encoder, on the retrieval tasks."""
        return {name: estimate.value for name, estimate in self._baselines.items()}

    def with_baselines(self, items: ItemScores) -> ItemScores:
        """Return ``items`` with the baselines' scores of single test items added, so that an encoder can be compared
        with the baselines query by query.
        """
        replicates, values = _arrays_of_items(self._baselines)
        return items._replace(replicates={**items.replicates, **replicates}, values={**items.values, **values})

    @cached_property
    def _baselines(self) -> dict[str, Estimate]:
        tasks = [task for task in self.tasks if isinstance(task, RetrievalTask)]
        return {name: estimate for task in tasks for name, estimate in task.tfidf().items()}

    def changes(self, before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, Changes]:
        """Compare the top document of each retrieval query before and after training (``Scores.first_documents``)."""
        tasks = [task for task in self.tasks if isinstance(task, RetrievalTask) and task.name in before]
        return {task.name: task.changes(before[task.name], after[task.name]) for task in tasks}

    def corpora(self) -> dict[str, CorpusInfo]:
        return {task.name: task.corpus for task in self.tasks if isinstance(task, RetrievalTask)}

    def sentences(self) -> dict[str, list[str]]:
        """Return the distinct texts of each task, which are searched for in the training data. Documents that are
        relevant for no query are omitted.
        """
        return {
            task.name: list(dict.fromkeys(task.judged_texts() if isinstance(task, RetrievalTask) else _all_texts(task)))
            for task in self.tasks
        }


def score_name_at_size(name: str, size: int | None) -> str:
    """Return the name of a score of embeddings truncated to ``size`` dimensions (None: full embeddings)."""
    return str(replace(ScoreName.parse(name), size=size))


def _task_of(task: Task | RatedPairs | RetrievalData) -> Task:
    """Wrap rated pairs or retrieval data in a task. A task is returned unchanged."""
    if isinstance(task, RatedPairs):
        return SimilarityTask(task)
    return RetrievalTask(task) if isinstance(task, RetrievalData) else task


def _size(task: Task) -> int:
    return sum(len(texts) for texts in task.texts())


def _groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield groups of tasks that are embedded together: up to ``POOLED_TEXTS`` texts, or a single larger task."""
    group, texts = list[Task](), 0
    for task in tasks:
        size = _size(task)
        if group and texts + size > POOLED_TEXTS:
            yield group
            group, texts = [], 0
        group.append(task)
        texts += size
    if group:
        yield group


def _score_distributed(
    group: Sequence[Task], pool: EmbeddingPool, options: ScoringOptions, report: Callable[[str, float], None] | None
) -> dict[str, Estimate]:
    """Return the scores of all tasks, each computed on one rank. The first error is raised on all ranks."""
    rank, world = group_ranks()
    scores_of_rank = dict[str, Estimate]()
    problem: Exception | None = None
    for task in sorted(group, key=_size, reverse=True)[rank::world]:
        start_time = time.perf_counter()
        try:
            scores_of_rank.update(task.score(pool, options))
        except Exception as error:  # noqa: BLE001  # the other ranks wait for this rank, so they must receive the error
            problem = error
            break
        if report:
            report(task.name, time.perf_counter() - start_time)
    failure = problem and (isinstance(problem, InputError), f"{type(problem).__name__}: {problem}")
    ranks = gather((scores_of_rank, failure))
    if problem:
        raise problem
    merged = dict[str, Estimate]()
    for scores, failure in ranks:
        if failure:
            is_input, message = failure
            raise InputError(message) if is_input else RuntimeError(f"another process failed while scoring: {message}")
        merged.update(scores)
    return merged


def items_of(tasks: Sequence[Task], similarities: Mapping[str, Tensor], scores: Mapping[str, Estimate]) -> ItemScores:
    """Return the scores of single test items, by which encoders are compared."""
    pairs = {task.name: task.pairs for task in tasks if isinstance(task, SimilarityTask)}
    replicates, values = _arrays_of_items(scores)
    retrieval = {task.name: task.texts_to_match for task in tasks if isinstance(task, RetrievalTask)}
    several = dict[str, str]()  # score -> digest, for items that are forums or images
    for task in tasks:
        if task.name not in pairs.keys() | retrieval.keys():
            names = {ScoreName.parse(name).full_task for name in task.score_names() if name in values}
            several |= dict.fromkeys(names, _digest(_texts_of(task))) if names else {}
    return ItemScores(
        cosines={name: values_N.numpy() for name, values_N in similarities.items()},
        gold={name: np.asarray(task.gold, np.float64) for name, task in pairs.items()},
        subsets={name: np.array(task.subsets) for name, task in pairs.items()},
        digests={name: _digest(_parts_of_pairs(task)) for name, task in pairs.items()}
        | {name: _digest(_parts_of_retrieval(task)) for name, task in retrieval.items()}
        | several,
        replicates=replicates,
        values=values,
    )


def _arrays_of_items(scores: Mapping[str, Estimate]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the bootstrap replicates and the values of single queries, each as a mapping from the names of the scores
    that contain them.
    """
    return (
        {name: one.replicates_R.float().numpy() for name, one in scores.items() if one.replicates_R is not None},
        {name: one.values_N.numpy() for name, one in scores.items() if one.values_N is not None},
    )


def _all_texts(task: Task) -> Iterator[str]:
    return (text for texts in task.texts() for text in texts)


def _texts_of(task: Task) -> Iterator[str]:
    """Yield all texts of a task, with an empty string after each list of texts."""
    for texts in task.texts():
        yield from texts
        yield ""


def _parts_of_pairs(task: RatedPairs) -> Iterator[str]:
    """Yield both texts and the rating of each pair, in order, as strings to hash into a digest."""
    for left, right, gold in zip(task.left, task.right, task.gold, strict=True):
        yield from (left, right, repr(float(gold)))


def _parts_of_retrieval(task: RetrievalData) -> Iterator[str]:
    """Yield the queries, documents, relevance judgments, and excluded documents as strings to hash into a digest."""
    relevant = None if task.relevant is None else [sorted(one.items()) for one in task.relevant]
    yield from (*task.queries, "", *task.documents, "", repr(relevant))
    if task.unranked_documents:
        yield repr(sorted(task.unranked_documents.items()))


def _digest(parts: Iterable[str]) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 of strings, to identify a task's data."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
