"""Pools of workers that run numbered tasks. A driver assigns them, and a task whose worker exits is reassigned.

The driver is responsible for output and input. Workers load their model once, are independent of each other, and read
no file of the job, so they may run on other machines. Results are returned in the order in which they are finished.
Since a result depends on its task alone, the output is the same for any number of workers.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.worker_loop import Finished, Message, More, Raised, Result, Start, Work
from contrastive_encoders.core.runtime.worker_tasks import TaskFailedError, TaskQueue, WorkItem

Answers = Generator[tuple[int | None, Any], None, None]
MAX_IDLE_LOSSES = 3  # consecutive workers that exit without a result

log = logging.getLogger(__name__)


class WorkerCrashError(Exception):
    """Raised if several consecutive workers exited before they returned a result."""


class Worker(Protocol):
    """Interface of a process that loads a model, or other data that a job needs, and processes tasks."""

    def send(self, answer: Any) -> None: ...

    def receive(self) -> Message | None:
        """Wait for the worker's next message and return it, or None if the worker has exited."""
        ...

    def stop(self) -> None:
        """Tell the worker to exit, without waiting until it has exited."""

    def end(self) -> str:
        """Terminate the worker. Return the status or reason if it had exited before, or an empty string if it was still
        running.
        """
        ...


class InProcess:
    """A pool without workers, which runs all tasks in this process."""

    def __init__(self, start: Start) -> None:
        self.start, self.state = start, None

    def __enter__(self) -> Self:
        self.state = self.start()
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(
        self, work: Work, tasks: Iterable[WorkItem], number: int | None = None, window: float = math.inf
    ) -> Answers:
        yield from work(self.state, iter(tasks))


class WorkerPool:
    """A pool of ``size`` worker processes. ``hire`` starts the worker with the given index, and ``wait`` waits for
    messages of several workers.
    """

    def __init__(self, size: int, hire: Callable[[int], Worker], wait: Callable[[Sequence[Any]], list[Any]]) -> None:
        self.size, self.hire, self.wait = size, hire, wait
        self.workers: dict[int, Worker] = {}  # by index
        self.busy = set[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            worker.stop()  # all in parallel, because a busy worker takes a moment to respond
        for worker in self.workers.values():
            worker.end()
        self.workers.clear()

    def run(
        self, work: Work, tasks: Iterable[WorkItem], number: int | None = None, window: float = math.inf
    ) -> Answers:
        """Yield (number, result) when a task is finished, and (None, report) for each progress report in between.

        Args:
            work: what a worker does with tasks. It is pickled.
            tasks: consumed as workers request them.
            number: the number of tasks, if known; no more workers than that are started.
            window: for tasks numbered 0, 1, ..., the maximum distance of an assigned task from the first without a
                result. It limits the results that a caller must buffer. After a lost task, no others are tried then.

        Raises:
            TaskFailedError: tasks whose workers exited three times. Without a window, all others have results.
            WorkerCrashError: three consecutive workers exited without a result.
            Exception: an error raised by a worker.
        """
        queue, idle_losses = TaskQueue(tasks, window), 0
        most = self.size if number is None else min(self.size, number)
        while self._engage(work, queue, most):
            places = {id(self.workers[place]): place for place in self.busy}
            for worker in self.wait([self.workers[place] for place in sorted(self.busy)]):
                place = places[id(worker)]
                match worker.receive():
                    case More():
                        worker.send(queue.next_for(place))
                    case Result(None, report):
                        yield None, report
                    case Result(int(answered), value):
                        queue.done(place, answered)
                        idle_losses = 0
                        yield answered, value
                    case Finished():
                        self.busy.remove(place)
                    case Raised(error):
                        raise error
                    case None:
                        idle_losses = 0 if self._lose(place, queue) else idle_losses + 1
                        if idle_losses == MAX_IDLE_LOSSES:
                            raise WorkerCrashError(
                                f"{idle_losses} consecutive workers exited before they finished a task"
                            )
        if queue.failed:
            raise TaskFailedError(sorted(queue.failed))

    def _engage(self, work: Work, queue: TaskQueue, most: int) -> bool:
        """Send the work function to idle workers as long as there are tasks to assign. Return whether any worker is
        busy.
        """
        for place in range(most):
            if not queue.has_more():
                break
            if place not in self.workers:
                self.workers[place] = self.hire(place)
            if place not in self.busy:
                self.busy.add(place)
                self.workers[place].send(work)
        return bool(self.busy)

    def _lose(self, place: int, queue: TaskQueue) -> list[int]:
        self.busy.remove(place)
        reason, numbers = self.workers.pop(place).end(), queue.requeue(place)
        log.warning(
            "worker %d of %d exited (%s); unfinished tasks: %s",
            place,
            self.size,
            reason or "for an unknown reason",
            ", ".join(map(str, numbers)) or "none",
        )
        return numbers


def in_order(answers: Answers) -> Iterator[Any]:
    """Yield the results of tasks in the order of their numbers, which are 0, 1, ... Results that arrive early are
    buffered.
    """
    early, expected = dict[int | None, Any](), 0
    for number, value in answers:
        early[number] = value
        while expected in early:
            yield early.pop(expected)
            expected += 1


def open_pool(
    start: Start,
    workers: int = 1,
    cluster: str | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
) -> InProcess | WorkerPool:
    """Open a pool of workers: this process, if there is one worker and no cluster; otherwise local processes, or actors
    of a Ray cluster.

    Args:
        start: loads what the work needs, once per worker. It is pickled for other processes.
        workers: the number of processes.
        cluster: ``ray``, ``auto``, or the address of a Ray cluster; None: processes on this machine.
        num_cpus: CPUs that a worker of a cluster reserves; None: Ray's default.
        num_gpus: GPUs that a worker of a cluster reserves; None: Ray's default.

    Raises:
        InputError: the cluster cannot be joined or lacks the resources, or resources are set without a cluster.
    """
    values = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    resources = {name: value for name, value in values.items() if value is not None}
    if cluster is not None:
        from contrastive_encoders.core.runtime import ray_workers

        ray_workers.join_cluster(cluster, resources)
        return WorkerPool(workers, lambda _: ray_workers.RayWorker(start, resources), ray_workers.wait_for_messages)
    if resources:
        name, value = next(iter(resources.items()))
        expected = "null if cluster is null, since only a cluster reserves resources"
        raise InputError(key=name, value=f"{value:g}", expected=expected)
    if workers == 1:
        return InProcess(start)
    from contrastive_encoders.core.runtime.local_workers import LocalWorker, wait_for_messages

    return WorkerPool(workers, lambda place: LocalWorker(start, place, workers), wait_for_messages)
