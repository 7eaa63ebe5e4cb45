"""Workers that are processes on this machine."""

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
from collections.abc import Sequence
from typing import Any

from contrastive_encoders.core.runtime.child_processes import cores, exit_with_parent
from contrastive_encoders.core.runtime.log_output import log_to_terminal
from contrastive_encoders.core.runtime.signals import exit_on_sigterm
from contrastive_encoders.core.runtime.worker_loop import Message, Raised, Start, serve

EXIT_TIMEOUT_S = 5.0  # for a process that was told to exit


class LocalWorker:
    """Worker that runs as a spawned process on this machine. A forked process would have torch's threads without their
    locks.
    """

    def __init__(self, start: Start, place: int, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, worker_end = context.Pipe()
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // workers)))
        environment = {"OMP_NUM_THREADS": threads, "LOCAL_RANK": str(place), "TQDM_DISABLE": "1"}
        self.process = context.Process(target=_main, args=(worker_end, os.getpid(), environment), daemon=True)
        self.process.start()
        worker_end.close()
        self.connection.send(start)

    def send(self, answer: Any) -> None:
        """Answer a message of the worker, for example with a task. A worker that has exited cannot read it; this is
        noticed at the next message.
        """
        try:
            self.connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            logging.getLogger(__name__).debug("worker %s has exited", self.process.pid)

    def receive(self) -> Message | None:
        """Wait for the worker's next message and return it, or None if the worker has exited."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(EXIT_TIMEOUT_S)
            return None

    def stop(self) -> None:
        """Tell the process to exit, without waiting until it has exited."""
        self.process.terminate()

    def end(self) -> str:
        """Terminate the process and wait until it has exited. Return the exit status or signal if it had exited before,
        else an empty string.
        """
        status = self.process.exitcode
        self.stop()
        self.process.join(EXIT_TIMEOUT_S)
        self.process.kill()  # it may be executing library code that does not handle signals
        self.process.join()
        self.connection.close()
        return "" if status is None else f"signal {-status}" if status < 0 else f"exit status {status}"


def wait_for_messages(workers: Sequence[LocalWorker]) -> list[LocalWorker]:
    """Wait until a worker has sent a message or exited; return all such workers."""
    by_connection = {worker.connection: worker for worker in workers}
    return [by_connection[ready] for ready in multiprocessing.connection.wait(list(by_connection))]  # type: ignore[index]


def _main(connection: Any, parent: int, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # before torch is imported, with the first message; LOCAL_RANK chooses the GPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the driver decides
    exit_on_sigterm()
    exit_with_parent(parent)
    log_to_terminal(quiet=environment["LOCAL_RANK"] != "0")

    def send(message: Message) -> None:
        try:
            data = pickle.dumps(message)
        except Exception as error:  # noqa: BLE001  pickle raises whatever an object does
            data = pickle.dumps(Raised(RuntimeError(f"cannot be sent to the driver: {message!r:.300} ({error})")))
        connection.send_bytes(data)

    serve(connection.recv(), send, connection.recv)
