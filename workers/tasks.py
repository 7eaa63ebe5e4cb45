"""Tasks of a job: what a worker is given, and which worker holds which task."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

MOST_TRIES = 3  # of a task whose worker ends


class Task(NamedTuple):
    """A part of a job. Its result is a function of this alone, whoever computes it, and however often."""

    number: int
    payload: Any = None  # what a worker needs for it; it travels, so it can be pickled


class TasksLost(Exception):
    """Tasks whose workers ended each time that they were tried; ``numbers`` says which."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers)
        self.numbers = numbers


class Dealer:
    """Gives tasks to workers that ask, and takes back those of a worker that has ended.

    A task that was lost before is dealt to a worker that holds no other, so that it alone is to blame next time.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.new, self.again = iter(tasks), deque[Task]()
        self.ahead: Task | None = None  # of ``new``, looked at already
        self.held: dict[int, dict[int, Task]] = {}  # worker -> number -> task
        self.losses = Counter[int]()
        self.failed: list[int] = []

    def has_more(self) -> bool:
        """Return whether a task waits for a worker."""
        if self.ahead is None:
            self.ahead = next(self.new, None)
        return bool(self.again) or self.ahead is not None

    def next_for(self, worker: int) -> Task | None:
        """Return a task, or None where this worker is to finish what it holds first, or none is left."""
        held = self.held.setdefault(worker, {})
        if any(number in self.losses for number in held):
            return None
        if self.again and not held:
            task = self.again.popleft()
        elif self.has_more() and self.ahead is not None:
            task, self.ahead = self.ahead, None
        else:
            return None
        held[task.number] = task
        return task

    def done(self, worker: int, number: int) -> None:
        del self.held[worker][number]

    def lost(self, worker: int) -> list[int]:
        """Take back the tasks of a worker that has ended, and return their numbers."""
        held = self.held.pop(worker, {})
        for number, task in held.items():
            self.losses[number] += 1
            if self.losses[number] < MOST_TRIES:
                self.again.append(task)
            else:
                self.failed.append(number)
        return list(held)
