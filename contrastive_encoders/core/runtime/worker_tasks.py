"""Tasks of a job, and their assignment to workers."""

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

MAX_TRIES = 3  # for a task whose worker exits


class WorkItem(NamedTuple):
    """A task of a job, with its number and its input. Its result depends on the task alone, not on the worker or the
    number of attempts.
    """

    number: int
    payload: Any = None  # the worker's input for it; it is sent to the worker, so it must be picklable


class TaskFailedError(Exception):
    """Raised if every worker that attempted a task exited before it returned a result; ``numbers`` lists the failed
    tasks.
    """

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers)
        self.numbers = numbers


class TaskQueue:
    """Queue that assigns the tasks of a job to workers. It records which worker has which task, and reassigns the tasks
    of a worker that exited.

    A task that was lost before is assigned to a worker without other tasks, so that the cause is certain if it is lost
    again. For tasks numbered in their order, no task is assigned whose number is ``window`` or more above that of the
    first task without a result.
    """

    def __init__(self, tasks: Iterable[WorkItem], window: float = math.inf) -> None:
        self.new, self.retries, self.window = iter(tasks), deque[WorkItem](), window
        self.fetched: WorkItem | None = None  # of ``new``
        self.open = set[int]()  # assigned, and without a result
        self.assigned: dict[int, dict[int, WorkItem]] = {}  # worker -> number -> task
        self.losses = Counter[int]()
        self.failed: list[int] = []

    def has_more(self) -> bool:
        """Return whether a task can be assigned now."""
        return bool(self.retries) or self._next_new() is not None

    def next_for(self, worker: int) -> WorkItem | None:
        """Return the next task for a worker, or None if the worker must first finish its tasks, or if no task can be
        assigned.
        """
        held = self.assigned.setdefault(worker, {})
        if any(number in self.losses for number in held):
            return None
        if self.retries and not held:
            task = self.retries.popleft()
        elif new := self._next_new():
            task, self.fetched = new, None
        else:
            return None
        held[task.number] = task
        self.open.add(task.number)
        return task

    def _next_new(self) -> WorkItem | None:
        if self.fetched is None:
            self.fetched = next(self.new, None)
        if self.fetched is None or self.fetched.number - min(self.open, default=self.fetched.number) >= self.window:
            return None
        return self.fetched

    def done(self, worker: int, number: int) -> None:
        del self.assigned[worker][number]
        self.open.remove(number)

    def requeue(self, worker: int) -> list[int]:
        """Requeue the tasks of a worker that has exited, except those that failed too often. Return the numbers of all
        its tasks.
        """
        held = self.assigned.pop(worker, {})
        for number, task in held.items():
            self.losses[number] += 1
            if self.losses[number] < MAX_TRIES:
                self.retries.append(task)
            else:
                self.failed.append(number)
        return list(held)
