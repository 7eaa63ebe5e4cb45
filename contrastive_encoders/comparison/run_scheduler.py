"""Schedule training runs on a worker pool. Each run uses the devices of its worker and is retried once.

A worker trains in a child process, which writes to the folder named by the task, and reports how the run ended. The
driver owns the output folder and the record. To stop a run, it creates an empty file next to the run's folder; the
worker polls for this file. This works for every type of worker, both for a trial that is stopped early and for an
interruption: a running task receives no messages, but the worker can access the output folder.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from contrastive_encoders.comparison.outputs import REFUSED_FILE
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.override_format import format_override, without_replaced
from contrastive_encoders.core.runtime.child_processes import start
from contrastive_encoders.core.runtime.process_group import local_rank
from contrastive_encoders.core.runtime.signals import INTERRUPTED, TERMINATED, exit_on_sigterm
from contrastive_encoders.core.runtime.worker_pool import InProcess, WorkerCrashError, WorkerPool, open_pool
from contrastive_encoders.core.runtime.worker_tasks import MAX_TRIES, TaskFailedError, WorkItem
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.manifest import is_finished, write_record
from contrastive_encoders.io.output_directory import LOCK, MARKER

log = logging.getLogger(__name__)

TRAIN = ("-m", "contrastive_encoders", "train")  # arguments of Python
WRONG_INPUT = 2
INTERRUPTION_CODES = (INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM)
MAX_ATTEMPTS = 2
CHECKPOINTS = "checkpoints"  # folder of a run and of each of its stages
MESSAGE_PREFIX = "contrastive-encoders train: "
MAX_OUTPUT_LINES = 30  # of the output of a failed run
REPORT_INTERVAL_S = 0.5  # seconds between reports of a run to the driver


class Job(NamedTuple):
    """A training run to schedule. ``arguments`` are its overrides and Hydra options, without ``output_dir``."""

    name: str
    arguments: list[str]
    folder: Path


class JobResult(NamedTuple):
    name: str
    status: int  # exit code; 0: the run has its results
    seconds: float
    attempts: int
    output_tail: str  # last lines of the output of a failed run
    stop_reason: str = ""  # why it was stopped early
    folder: Path | None = None  # directory of the run; None while it runs

    @property
    def finished(self) -> bool:
        return self.status == 0

    @property
    def failed(self) -> bool:
        return self.status not in (0, *INTERRUPTION_CODES) and not self.stop_reason

    @property
    def refused(self) -> bool:
        """Return whether the input of the run is invalid, so that it would fail again."""
        return self.status == WRONG_INPUT

    def describe(self) -> str:
        if self.stop_reason:
            return f"stopped early ({self.stop_reason})"
        if self.status in INTERRUPTION_CODES:
            return "interrupted"
        return "done" if self.finished else f"failed with exit code {self.status}"


class DriverEnvironment(NamedTuple):
    """The program, paths, and environment variables that the driver passes to its workers."""

    program: Sequence[str]  # arguments of Python for training
    folder: Path  # working folder, to which relative paths on a command line refer
    output: Path  # absolute
    environments: list[dict[str, str]]  # one for each worker of this machine
    cluster: str | None


def open_workers(
    output: Path,
    parallel: int = 1,
    cluster: str | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
) -> InProcess | WorkerPool:
    """Open a pool of workers that train in subdirectories of ``output``. Other arguments are passed to `open_pool`.

    Raises:
        InputError: the cluster cannot be joined or lacks resources, or (when used) a worker cannot access ``output``.
    """
    path = {"PYTHONPATH": _import_path()}
    environments = (
        [{**os.environ, **path, **device} for device in device_environments(parallel)] if cluster is None else [path]
    )
    origin = DriverEnvironment(TRAIN, Path.cwd(), output.absolute(), environments, cluster)
    return open_pool(partial(prepare_worker, origin), parallel, cluster, num_cpus, num_gpus)


def _import_path() -> str:
    """Return the PYTHONPATH with which a run can import the same user modules as this process."""
    cwd = Path.cwd()
    working_folder = [str(cwd)] if any(Path(entry).resolve() == cwd for entry in sys.path) else []
    return os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *working_folder])


def device_environments(parallel: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker. They assign the visible GPUs to the workers in turn."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        visible = ",".join(map(str, range(torch.cuda.device_count())))
    names = [name for name in visible.split(",") if name]
    return [{"CUDA_VISIBLE_DEVICES": names[place % len(names)]} if names else {} for place in range(parallel)]


def prepare_worker(origin: DriverEnvironment) -> tuple[Sequence[str], dict[str, str]]:
    """Initialize a worker. Return the Python arguments of a training run, and its environment variables.

    Raises:
        InputError: this machine cannot access the output folder.
    """
    if origin.cluster is None:
        return origin.program, origin.environments[local_rank() % len(origin.environments)]
    if not (origin.output / MARKER).exists():
        raise InputError(
            key="output",
            value=origin.output,
            expected=f"a directory that the worker on {socket.gethostname()} can access",
            hint="Choose an output on a disk that all nodes of the cluster share.",
        )
    with contextlib.suppress(OSError):  # absolute paths work from any folder
        os.chdir(origin.folder)
    return origin.program, {**os.environ, **origin.environments[0]}


def train_runs(
    worker: tuple[Sequence[str], dict[str, str]], tasks: Iterable[WorkItem]
) -> Iterator[tuple[int | None, Any]]:
    """Train one run after another in a worker: yield (None, number) while a run trains, and (number, result) when it
    ends.

    A failed run is started again and resumes from its checkpoint, unless its input is invalid, since the same overrides
    would fail again.
    """
    for task in tasks:
        job, start_time = task.payload, time.monotonic()
        result = JobResult(job.name, TERMINATED, 0.0, 0, "")
        while result.attempts < MAX_ATTEMPTS and not stop_file(job.folder).exists():
            if result.attempts:
                last = "".join(result.output_tail.splitlines()[-1:])
                log.warning("%s %s and is started again. %s", job.name, result.describe(), last)
            yield None, task.number
            status, output_tail = yield from _attempt(job, task.number, *worker)
            result = JobResult(job.name, status, time.monotonic() - start_time, result.attempts + 1, output_tail)
            if status in (0, WRONG_INPUT, *INTERRUPTION_CODES):
                break
        yield task.number, result


def stop_file(folder: Path) -> Path:
    """Return the path of a stop file: the run in ``folder`` stops as soon as this file exists.

    The file is next to the folder, because the folder must be empty when a run starts.
    """
    return folder.with_name(f".{folder.name}.stop")


def _attempt(
    job: Job, number: int, program: Sequence[str], environment: dict[str, str]
) -> Generator[tuple[None, int], None, tuple[int, str]]:
    """Start a run and wait for its end. Return its exit code and, unless the code is 0, the last lines of its
    output.
    """
    options = [
        argument for argument in job.arguments if argument.startswith("-")
    ]  # Hydra reads no overrides after an option
    overrides = without_replaced([argument for argument in job.arguments if not argument.startswith("-")])
    stop, terminated = stop_file(job.folder), False
    while _is_locked(job.folder) and not stop.exists():
        yield None, number
    with tempfile.TemporaryFile() as output:  # not a pipe, because the run may outlive this process for a moment
        command = [sys.executable, *program, *options, *overrides, format_override("output_dir", str(job.folder))]
        process = start(command, environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                if stop.exists() and not terminated:
                    process.terminate()  # it saves its state
                    terminated = True
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(REPORT_INTERVAL_S)
                yield None, number
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        output.seek(0)
        status, text = process.returncode, output.read().decode(errors="replace")
        return status, last_lines(text, status == WRONG_INPUT) if status else ""


def last_lines(output: str, refused: bool) -> str:
    """Return the last lines of a run's output, or only its error message if its input was invalid (``refused``).

    Of a progress bar, only the last update is kept.
    """
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in output.rstrip().split("\n")]
    starts = [place for place, line in enumerate(lines) if line.startswith(MESSAGE_PREFIX)] if refused else []
    if starts:
        return "\n".join(lines[starts[-1] :]).removeprefix(MESSAGE_PREFIX)
    _, program, message = "\n".join(lines).partition(MESSAGE_PREFIX)  # after a progress bar without a line end
    return message if refused and program else "\n".join(lines[-MAX_OUTPUT_LINES:])


def remove_checkpoints(jobs: Iterable[Job]) -> None:
    """Remove the checkpoints of all finished runs, including runs that finished in an earlier command."""
    for job in jobs:
        if is_finished(job.folder):
            remove_matching(job.folder, CHECKPOINTS)


def remove_matching(folder: Path, pattern: str) -> None:
    """Remove all files and subdirectories of ``folder``, at any depth, whose names match a glob pattern."""
    for path in [*folder.rglob(pattern)]:
        try:
            remove(path)
        except OSError as error:  # continue with the other paths
            log.warning("%s could not be removed: %s", path, error)


def _is_locked(folder: Path) -> bool:
    """Return whether a process still holds the lock of the folder, such as a run that outlived its killed worker."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK).acquire(timeout=REPORT_INTERVAL_S):
            return False
    except Timeout:
        return True


def run_all(
    pool: InProcess | WorkerPool,
    jobs: Iterable[Job],
    record: Path,
    at_end: Callable[[Job, JobResult], None] | None = None,
    stop_reason: Callable[[Job], str] | None = None,
    at_start: Callable[[Job], None] | None = None,
) -> list[JobResult]:
    """Train the runs that have no ``results.json`` yet, in order.

    A job is taken from ``jobs`` when a worker is free, so the job may depend on the results of earlier jobs. If there
    are several workers, one job is taken in advance. A run fails if its worker has crashed three times.

    Args:
        pool: the workers.
        jobs: the runs.
        record: JSON lines file to which a line is appended for each run.
        at_end: called at the end of each run.
        stop_reason: called repeatedly during a run; if it returns a non-empty reason, the run is stopped.
        at_start: called at the start of each run.

    Raises:
        KeyboardInterrupt, SystemExit: this process or a run received SIGINT or SIGTERM; all runs have saved their
            state, and the same command resumes.
        OutputError: workers crash before they have started a run.
    """
    driver = _Driver(jobs, record, at_end, stop_reason, at_start)
    with driver.signal_handlers(), contextlib.closing(pool.run(train_runs, driver.tasks())) as answers:
        try:
            for number, value in answers:
                driver.handle_message(number, value)
                if driver.exit_code and not driver.running:
                    break
        except TaskFailedError as error:
            for number in error.numbers:
                name = driver.assigned[number].name
                driver.finish(number, JobResult(name, 1, 0.0, MAX_TRIES, f"Its worker ended {MAX_TRIES} times."))
        except WorkerCrashError as error:
            raise OutputError(
                f"{record}: {error}. Finished runs are kept. Rerun the same command to resume."
            ) from error
    if driver.exit_code == TERMINATED:
        raise SystemExit(TERMINATED)
    if driver.exit_code:
        raise KeyboardInterrupt
    return [driver.results[number] for number in sorted(driver.results)]


class _Driver:
    """Driver that assigns runs to workers, records how each run ended, and stops runs early."""

    def __init__(
        self,
        jobs: Iterable[Job],
        record: Path,
        at_end: Callable[[Job, JobResult], None] | None,
        stop_reason: Callable[[Job], str] | None,
        at_start: Callable[[Job], None] | None,
    ) -> None:
        self.jobs, self.record, self.at_end, self.stop_reason = enumerate(jobs), record, at_end, stop_reason
        self.at_start = at_start
        self.results, self.assigned = dict[int, JobResult](), dict[int, Job]()
        self.running, self.stop_reasons = set[int](), dict[int, str]()
        self.exit_code = 0  # exit code after an interruption

    def tasks(self) -> Iterator[WorkItem]:
        while not self.exit_code and (entry := next(self.jobs, None)):
            number, job = entry
            stop_file(job.folder).unlink(missing_ok=True)
            if is_finished(job.folder):
                self.results[number] = JobResult(job.name, 0, 0.0, 0, "")
                continue
            job.folder.parent.mkdir(parents=True, exist_ok=True)
            (job.folder / REFUSED_FILE).unlink(missing_ok=True)
            self.assigned[number] = job
            yield WorkItem(number, job)

    def handle_message(self, number: int | None, value: Any) -> None:
        """Handle a message from a worker: ``value`` is the result of the run ``number`` or, if ``number`` is None, the
        number of the run that the worker is training.
        """
        if number is not None:
            self.finish(number, value)
        else:
            if self.at_start and value not in self.running:
                self.at_start(self.assigned[value])
            self.running.add(value)
            if (
                self.stop_reason
                and value not in self.stop_reasons
                and (reason := self.stop_reason(self.assigned[value]))
            ):
                self.stop_reasons[value] = reason
        for place, job in self.assigned.items():
            if self.exit_code or place in self.stop_reasons:
                stop_file(job.folder).touch()

    def finish(self, number: int, result: JobResult) -> None:
        job = self.assigned.pop(number)
        stop_file(job.folder).unlink(missing_ok=True)
        self.running.discard(number)
        if number in self.stop_reasons and not result.finished:
            result = result._replace(output_tail="", stop_reason=self.stop_reasons[number])
        elif result.status in INTERRUPTION_CODES:  # the signal was sent to the run alone, or to the run first
            terminated = result.status in (TERMINATED, -signal.SIGTERM)
            self.exit_code = self.exit_code or (TERMINATED if terminated else INTERRUPTED)
        if not result.attempts and not result.stop_reason:
            return
        if result.status == WRONG_INPUT:
            job.folder.mkdir(exist_ok=True)
            write_record(job.folder / REFUSED_FILE, {"reason": result.output_tail})
        line = {
            "name": result.name,
            "status": result.status,
            "seconds": result.seconds,
            "attempts": result.attempts,
            "said": result.output_tail,
            "early": result.stop_reason,
            "words": job.arguments,
            "ended": time.strftime("%Y-%m-%dT%H:%M:%S"),
        }
        with self.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.at_end:
            self.at_end(job, result)
        self.results[number] = result._replace(folder=job.folder)

    @contextlib.contextmanager
    def signal_handlers(self) -> Iterator[None]:
        """Context manager that stops all runs on SIGTERM or Ctrl-C.

        After the first signal, the current runs save their state and end. A second signal exits immediately.
        """
        previous = {signal.SIGINT: signal.getsignal(signal.SIGINT), signal.SIGTERM: exit_on_sigterm()}
        handlers = {number: signal.getsignal(number) for number in previous}

        def note(number: int, frame: FrameType | None) -> None:
            handler = handlers[signal.Signals(number)]
            if callable(handler) and (self.exit_code or not self.running):
                handler(number, frame)
            self.exit_code = self.exit_code or (TERMINATED if number == signal.SIGTERM else INTERRUPTED)

        for number, handler in handlers.items():
            if callable(handler):  # otherwise Ctrl-C is for other processes, for example after a shell's &
                signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
