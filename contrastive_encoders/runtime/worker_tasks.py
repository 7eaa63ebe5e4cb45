"""Tasks of a job: what a worker is given, and which worker holds which task."""

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

MOST_TRIES = 3  # of a task whose worker ends


class WorkItem(NamedTuple):
    """A part of a job. Its result is a function of the task alone, whichever worker computes it, and however often."""

    number: int
    payload: Any = None  # what a worker needs for it; it travels, so it can be pickled


class TaskFailedError(Exception):
    """Tasks failed because their workers ended each time; ``numbers`` names them."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers)
        self.numbers = numbers


class TaskQueue:
    """The queue of a job's tasks. It knows which worker holds which task, and deals those of a worker that ended again.

    A task that was lost before is dealt to a worker that holds no other, so that it alone is to blame next time. Of
    tasks that are numbered in their order, none is dealt ``window`` or more behind the first without a result.
    """

    def __init__(self, tasks: Iterable[WorkItem], window: float = math.inf) -> None:
        self.new, self.again, self.window = iter(tasks), deque[WorkItem](), window
        self.ahead: WorkItem | None = None  # of ``new``, looked at already
        self.open = set[int]()  # dealt, and without a result
        self.held: dict[int, dict[int, WorkItem]] = {}  # worker -> number -> task
        self.losses = Counter[int]()
        self.failed: list[int] = []

    def has_more(self) -> bool:
        """Return whether there is a task to deal now."""
        return bool(self.again) or self._next_new() is not None

    def next_for(self, worker: int) -> WorkItem | None:
        """Return the next task for a worker; None if it must finish those that it holds first, or if none is left."""
        held = self.held.setdefault(worker, {})
        if any(number in self.losses for number in held):
            return None
        if self.again and not held:
            task = self.again.popleft()
        elif new := self._next_new():
            task, self.ahead = new, None
        else:
            return None
        held[task.number] = task
        self.open.add(task.number)
        return task

    def _next_new(self) -> WorkItem | None:
        if self.ahead is None:
            self.ahead = next(self.new, None)
        if self.ahead is None or self.ahead.number - min(self.open, default=self.ahead.number) >= self.window:
            return None
        return self.ahead

    def done(self, worker: int, number: int) -> None:
        del self.held[worker][number]
        self.open.remove(number)

    def lost(self, worker: int) -> list[int]:
        """Requeue the tasks of a worker that has ended, unless they failed too often; return the numbers of all."""
        held = self.held.pop(worker, {})
        for number, task in held.items():
            self.losses[number] += 1
            if self.losses[number] < MOST_TRIES:
                self.again.append(task)
            else:
                self.failed.append(number)
        return list(held)
