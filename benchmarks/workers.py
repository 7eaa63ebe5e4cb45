"""P18: what a driver costs that deals tasks to workers.

    python -m benchmarks.workers [--quick] [--cluster ray]

Empty tasks, 100,000 for two processes of this machine and 10,000 for two actors of a Ray cluster: milliseconds a task,
and by how much the driver's memory has grown at its largest. Wanted: below 2 ms, and no growth with the tasks.
"""

import time
from collections.abc import Iterator
from importlib import import_module

from benchmarks.sides import Line, arguments, report, resident
from contrastive_encoders.runtime.worker_pool import open_pool
from contrastive_encoders.runtime.worker_tasks import Task

MEGABYTE = 1_000_000


def nothing() -> None:
    """No model is loaded."""


def empty(_: None, tasks: Iterator[Task]) -> Iterator[tuple[int, int]]:
    for task in tasks:
        yield task.number, task.number


def measure(tasks: int, cluster: str | None) -> tuple[float, float]:
    """Milliseconds a task, and megabytes that the driver's memory grew by after a tenth of the tasks."""
    with open_pool(nothing, 2, cluster, num_cpus=1 if cluster else None) as pool:
        assert len(list(pool.run(empty, map(Task, range(100))))) == 100, "both have begun"
        start, before, largest = time.perf_counter(), 0, 0
        for number, _ in enumerate(pool.run(empty, map(Task, range(tasks)))):
            if number % (tasks // 100) == 0:
                largest = max(largest, resident("VmRSS"))
                before = before if number > tasks // 10 else largest
        return 1000 * (time.perf_counter() - start) / tasks, (largest - before) / MEGABYTE


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--cluster", nargs="?", const="ray", help="measure a Ray cluster, too")
    options = parser.parse_args()
    lines = []
    sides = [("processes", None, 100_000), *([("Ray", options.cluster, 10_000)] if options.cluster else [])]
    for name, cluster, tasks in sides:
        number = tasks // 100 if options.quick else tasks
        took, grown = measure(number, cluster)
        case = f"{number:,} empty tasks, 2 workers, {name}"
        lines += [
            Line("P18", case, "ms/task", took, None, None, "< 2"),
            Line("P18", f"{case}: growth of the driver", "MB", grown, None, None, "0"),
        ]
    report("Tasks without work, dealt to workers", lines, options.output)


if __name__ == "__main__":
    import_module("benchmarks.workers").main()  # another node imports the functions by this name, not from __main__
