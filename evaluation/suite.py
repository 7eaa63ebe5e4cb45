"""A suite is a list of tasks scored together: their sentences are encoded once, their scores dealt to ranks."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from contracts import Embedder, InputError, PairTask, RetrievalTask
from evaluation.averages import averages
from evaluation.catalogue import ENTRIES, has_form
from evaluation.embed import VectorStore, embed_pool
from evaluation.items import items_of
from evaluation.retrieval import Retrieval, tfidf_baseline
from evaluation.statistics import Estimate, Scores
from evaluation.sts import Similarity, item_cosines
from evaluation.task import How, Task

log = logging.getLogger(__name__)

POOLED_TEXTS = 400_000  # bounds the vectors that are held at a time: 1.2 GB at 768 features


class Suite:
    """Iterating over it gives its tasks, so that a suite can be made of a suite."""

    def __init__(
        self,
        tasks: Iterable[Task | PairTask | RetrievalTask],
        not_as_published: Mapping[str, str] | None = None,
    ) -> None:
        self.tasks: list[Task] = [_task_of(task) for task in tasks]
        self.not_as_published = dict(not_as_published or {})  # of the tables; the results say it
        names = [name for task in self.tasks for name in task.score_names()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"a suite computes a score once, got {', '.join(twice)} twice; rename or remove a task.")

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def run(
        self,
        embedder: Embedder,
        *,
        intervals: bool = True,
        store: VectorStore | None = None,
        report: Callable[[str, float], None] | None = None,
    ) -> Scores:
        """The very same scores on every rank; all ranks must call it.

        ``store`` keeps vectors for the next time. ``report(task, seconds)`` hears of each task that this rank scored.
        """
        how, found = How(_device_of(embedder), intervals), dict[str, Estimate]()
        cosines = dict[str, Tensor]()
        for group in _groups(self.tasks):
            pool = embed_pool(embedder, (texts for task in group for texts in task.texts()), store)
            rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
            mine = dict[str, Estimate]()
            problem: Exception | None = None
            for task in _longest_first(group)[rank::world]:
                began = time.perf_counter()
                try:
                    mine.update(task.score(pool, how))
                except Exception as error:  # noqa: BLE001  # the other ranks wait for this one's scores, and must hear of it
                    problem = error
                    break
                if report:
                    report(task.name, time.perf_counter() - began)
            found.update(_exchanged(mine, problem))
            if intervals:
                cosines.update({t.name: item_cosines(t.pairs, pool) for t in group if isinstance(t, Similarity)})
        ordered = {name: found[name] for task in self.tasks for name in task.score_names()}
        members = dict[str, list[str]]()
        for one in list(averages(ordered, WITH_FORM)):
            ordered[one.name], members[one.name] = one.estimate, one.members
        bounds = {name: estimate.interval() for name, estimate in ordered.items()}
        return Scores(
            {name: estimate.value for name, estimate in ordered.items()},
            {name: interval for name, interval in bounds.items() if interval is not None},
            members,
            items_of(self.tasks, cosines, ordered) if intervals else None,
        )

    def scored_of(self, module: nn.Module) -> Any:
        """The part of a module in training that ``run`` is given."""
        return module.encoder

    def score_names(self) -> list[str]:
        """What ``run`` will compute, known without vectors."""
        names = [name for task in self.tasks for name in task.score_names()]
        return names + [one.name for one in averages(dict.fromkeys(names, Estimate(0.0)), WITH_FORM)]

    def baselines(self) -> dict[str, float]:
        """TF-IDF on the retrieval tasks, which needs no encoder."""
        found = dict[str, Estimate]()
        for task in self.tasks:
            if isinstance(task, Retrieval):
                found.update(tfidf_baseline(task.texts_to_match))
        return {name: estimate.value for name, estimate in found.items()}

    def sentences(self) -> dict[str, list[str]]:
        """Task name -> its distinct texts, to look for in the training text."""
        return {task.name: list(dict.fromkeys(text for texts in task.texts() for text in texts)) for task in self.tasks}


def suite_of(tasks: Iterable[Task | PairTask | RetrievalTask]) -> Suite:
    return tasks if isinstance(tasks, Suite) else Suite(tasks)


WITH_FORM = frozenset(name for name in ENTRIES if has_form(name))


def _task_of(task: Task | PairTask | RetrievalTask) -> Task:
    if isinstance(task, PairTask):
        return Similarity(task)
    return Retrieval(task) if isinstance(task, RetrievalTask) else task


def _device_of(embedder: Embedder) -> torch.device:
    weight = next(embedder.parameters(), None) if isinstance(embedder, nn.Module) else None
    return torch.device("cpu") if weight is None else weight.device


def _size(task: Task) -> int:
    return sum(len(texts) for texts in task.texts())


def _longest_first(tasks: Sequence[Task]) -> list[Task]:
    return sorted(tasks, key=_size, reverse=True)


def _groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Tasks that share a pool of vectors: as many as fit, at least one."""
    group, held = list[Task](), 0
    for task in tasks:
        size = _size(task)
        if group and held + size > POOLED_TEXTS:
            yield group
            group, held = [], 0
        group.append(task)
        held += size
    if group:
        yield group


def _exchanged(mine: dict[str, Estimate], problem: Exception | None) -> dict[str, Estimate]:
    """The scores of all ranks; the first problem is raised on all of them."""
    if not dist.is_initialized():
        if problem:
            raise problem
        return mine
    said: list[Any] = [None for _ in range(dist.get_world_size())]
    message = None if problem is None else (isinstance(problem, InputError), f"{type(problem).__name__}: {problem}")
    dist.all_gather_object(said, (mine, message))
    if problem:
        raise problem
    whole = dict[str, Estimate]()
    for theirs, told in said:
        if told is not None:
            raise InputError(told[1]) if told[0] else RuntimeError(f"another process failed while scoring: {told[1]}")
        whole.update(theirs)
    return whole
