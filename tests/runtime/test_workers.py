"""A pool of processes: every task is answered even if workers die; the driver raises the errors of workers."""

import os
import signal
import time
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.worker_pool import WorkerCrashError, in_order, open_pool
from contrastive_encoders.core.runtime.worker_tasks import TaskFailedError, TaskQueue, WorkItem


def load():
    return os.getpid()


def load_nothing():
    os.kill(os.getpid(), signal.SIGKILL)


def load_wrong():
    raise InputError("encoder=x: there is no such model. Name another.")


def square(loaded, tasks):
    """Return the square; two tasks run at a time.

    A payload is a file, and a worker that finds it dies with both tasks.
    """
    under_way = []
    for task in tasks:
        under_way.append(task)
        if task.payload is not None and task.payload.exists():
            if task.payload.name == "once":
                task.payload.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield None, f"{task.number} has started"
        if len(under_way) == 2:
            first = under_way.pop(0)
            yield first.number, first.number**2
    for task in under_way:
        yield task.number, task.number**2


def answered(pool, tasks):
    return {number: value for number, value in pool.run(square, tasks) if number is not None}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_task_is_answered_and_workers_do_job_after_job(workers):
    with open_pool(load, workers) as pool:
        for job in (60, 7, 0, 1):
            assert answered(pool, (WorkItem(number) for number in range(job))) == {n: n * n for n in range(job)}


def test_tasks_of_a_worker_that_dies_are_done_by_another(tmp_path):
    (tmp_path / "once").touch()
    tasks = [WorkItem(number, tmp_path / "once" if number == 5 else None) for number in range(30)]
    with open_pool(load, 2) as pool:
        assert answered(pool, tasks) == {n: n * n for n in range(30)}


def test_a_task_that_kills_three_workers_is_named_and_all_others_are_answered(tmp_path):
    (tmp_path / "always").touch()
    tasks = [WorkItem(number, tmp_path / "always" if number == 5 else None) for number in range(30)]
    found = []
    with open_pool(load, 2) as pool:
        with pytest.raises(TaskFailedError) as error:
            found.extend(pool.run(square, tasks))
        assert error.value.numbers == [5]
        assert {n: value for n, value in found if n is not None} == {n: n * n for n in range(30) if n != 5}
        assert answered(pool, [WorkItem(3)]) == {3: 9}, "the pool can still be used"


def test_an_error_of_loading_in_a_worker_is_raised_by_the_driver():
    with open_pool(load_wrong, 2) as pool, pytest.raises(InputError, match="there is no such model") as error:
        answered(pool, [WorkItem(0), WorkItem(1)])
    assert "in load_wrong" in error.value.__notes__[0]
    with open_pool(load_nothing, 2) as pool, pytest.raises(WorkerCrashError):
        answered(pool, [WorkItem(0), WorkItem(1)])


def test_workers_end_with_the_pool():
    with open_pool(load, 2) as pool:
        answered(pool, [WorkItem(number) for number in range(9)])
        processes = [worker.process.pid for worker in pool.workers.values()]
    end = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_lost_task_is_assigned_alone():
    """A task next to it is thus not blamed for the kill."""
    queue = TaskQueue([WorkItem(number) for number in range(4)])
    assert [queue.next_for(0).number, queue.next_for(0).number, queue.next_for(1).number] == [0, 1, 2]
    assert queue.requeue(0) == [0, 1]
    assert queue.next_for(1).number == 3, "it holds another, so that it gets a new one"
    assert queue.next_for(1) is None
    assert queue.next_for(2).number == 0
    assert queue.next_for(2) is None
    queue.done(2, 0)
    assert queue.next_for(2).number == 1
    assert not queue.has_more()


@pytest.mark.parametrize(("key", "value"), [("num_gpus", 1), ("num_cpus", 0.5)])
@pytest.mark.parametrize("workers", [1, 2])
def test_resources_without_a_cluster_are_refused(workers, key, value):
    with pytest.raises(InputError) as refused:
        open_pool(load, workers, **{key: value})
    assert (refused.value.key, refused.value.value) == (key, f"{value:g}")


def test_tasks_are_assigned_within_a_window_of_the_first_open_one():
    queue = TaskQueue((WorkItem(number) for number in range(6)), window=3)
    assert [queue.next_for(0).number, queue.next_for(1).number, queue.next_for(1).number] == [0, 1, 2]
    queue.done(1, 1)
    queue.done(1, 2)
    assert queue.next_for(1) is None
    assert not queue.has_more()
    queue.requeue(0)
    assert queue.next_for(1).number == 0
    queue.done(1, 0)
    assert [queue.next_for(1).number for _ in range(3)] == [3, 4, 5]
    assert queue.next_for(1) is None


@pytest.mark.parametrize("window", [1, 4])
def test_results_come_in_the_order_of_the_tasks(tmp_path, window):
    (tmp_path / "once").touch()
    tasks = (WorkItem(number, tmp_path / "once" if number == 5 else None) for number in range(30))
    with open_pool(load, 2) as pool:
        answers = ((number, value) for number, value in pool.run(square, tasks, window=window) if number is not None)
        assert list(in_order(answers)) == [n * n for n in range(30)]
