"""A suite is a list of tasks scored together: their sentences are pooled and encoded once."""

from collections.abc import Iterable, Iterator, Sequence

from contracts import Embedder, PairTask, RetrievalTask
from evaluation.embed import agree, embed_pool
from evaluation.retrieval import retrieval_scores, tfidf_baseline
from evaluation.statistics import Scores
from evaluation.sts import sts_scores

Task = PairTask | RetrievalTask


class Suite:
    """Iterating over it gives its tasks, so that a suite can be made of a suite."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.tasks: list[Task] = list(tasks)
        names = [task.name for task in self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"a suite names its tasks once, got {', '.join(twice)} twice; rename or remove one.")

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def run(self, embedder: Embedder) -> Scores:
        """(values, intervals), the very same floats on every rank; all ranks must call it."""
        pool = embed_pool(embedder, (text for task in self.tasks for text in _texts(task)))
        pairs = [task for task in self.tasks if isinstance(task, PairTask)]
        parts = [sts_scores(pairs, pool)]
        parts += [retrieval_scores(task, pool) for task in self.tasks if isinstance(task, RetrievalTask)]
        return _agreed(_merged(parts))

    def baselines(self) -> dict[str, float]:
        """TF-IDF on the retrieval tasks, which needs no encoder."""
        return _merged([tfidf_baseline(task) for task in self.tasks if isinstance(task, RetrievalTask)]).values

    def sentences(self) -> dict[str, list[str]]:
        """Task name -> its distinct texts, to look for in the training text."""
        return {task.name: list(dict.fromkeys(text for texts in _texts(task) for text in texts)) for task in self.tasks}


def _texts(task: Task) -> tuple[Sequence[str], Sequence[str]]:
    return (task.left, task.right) if isinstance(task, PairTask) else (task.queries, task.documents)


def _merged(parts: Iterable[Scores]) -> Scores:
    whole = Scores({}, {})
    for part in parts:
        whole.values.update(part.values)
        whole.intervals.update(part.intervals)
    return whole


def _agreed(scores: Scores) -> Scores:
    names = list(scores.values)
    flat = agree([number for name in names for number in (scores.values[name], *scores.intervals[name])])
    rows = [flat[start : start + 3] for start in range(0, len(flat), 3)]
    return Scores(
        {name: row[0] for name, row in zip(names, rows, strict=True)},
        {name: row[1:] for name, row in zip(names, rows, strict=True)},
    )
