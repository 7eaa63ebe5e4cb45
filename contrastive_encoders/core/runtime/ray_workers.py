"""Workers that are actors of a Ray cluster (https://docs.ray.io), on machines that need no shared disk."""

import contextlib
import functools
import hashlib
import logging
import pickle
import platform
import queue
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders import __version__
from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.core.runtime.worker_loop import Message, Raised, Start, serve

ANSWER_TIMEOUT_S = 20.0
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # with empty settings: RFC 9113, 3.4
START_OR_JOIN = "ray"
PACKAGE = Path(__file__).resolve().parents[2]
WORKER_PACKAGES = ("comparison", "core", "encoders", "export", "synthesis")  # packages


def join_cluster(cluster: str, resources: Mapping[str, float]) -> None:
    """Connect to a Ray cluster. If ``cluster`` is ``ray`` and there is no cluster, start one on this machine.

    Args:
        cluster: as in `open_pool`.
        resources: ``num_cpus`` and ``num_gpus`` that a worker reserves, if they are not Ray's defaults.

    Raises:
        InputError: Ray is not installed, the cluster does not respond, or it has no node with these resources.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise missing_package("ray", "cluster", key="cluster", value=cluster) from None
    if not ray.is_initialized():
        _connect(ray, cluster)
    needed = {"CPU" if name == "num_cpus" else "GPU": value for name, value in resources.items()}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= value for name, value in needed.items()) for node in nodes):
        most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in needed}
        amounts = ", ".join(f"{value:g} {name} (a node has at most {most[name]:g})" for name, value in needed.items())
        raise InputError(
            key="cluster",
            value=cluster,
            expected=f"at least one node with the resources that a worker reserves: {amounts}",
            hint="Reduce num_cpus and num_gpus.",
        )


def _connect(ray: Any, cluster: str) -> None:
    """Call ``ray.init`` with the address of the cluster. This must be done in the main thread, because the processes
    that Ray starts exit together with the calling thread.
    """
    address = cluster.removeprefix("ray://")
    host, _, port = address.rpartition(":")
    environment = {"env_vars": {"PYTHONPATH": str(PACKAGE.parent), "TQDM_DISABLE": "1"}}
    try:
        if host or address != cluster:
            if not (host and port.isdecimal()):
                raise ValueError("expected HOST:PORT")
            _check_answer(host, int(port))
        ray.init(None if cluster == START_OR_JOIN else cluster, runtime_env=environment, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        lines = str(error).strip().splitlines()
        why = " ".join(line.strip() for line in (lines if lines[0].startswith("Version mismatch") else lines[:1]))
        raise InputError(
            key="cluster",
            value=cluster,
            expected="auto (on a node of the cluster), ray://HOST:PORT (on another host), or ray (to start a cluster "
            f"here), and the same versions of Python and Ray on all nodes ({why})",
        ) from None


def _check_answer(host: str, port: int) -> None:
    """Check that a gRPC server responds at this address within 20 seconds. Ray itself would wait for minutes.

    Raises:
        OSError: there is no server, or it does not respond.
    """
    with socket.create_connection((host, port), ANSWER_TIMEOUT_S) as connection:
        connection.sendall(HTTP2_PREFACE)
        connection.recv(1)


@functools.cache
def software_versions() -> dict[str, str]:
    """Return the versions of Python and this project, and a checksum of the project's sources; they must be equal on
    the driver and on the workers.
    """
    sources = hashlib.sha256()
    for package in WORKER_PACKAGES:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            sources.update(path.read_bytes())
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "contrastive-encoders": __version__,
        "sources of contrastive-encoders": sources.hexdigest()[:8],
    }


class _ServedWorker:
    """Ray actor that runs the worker loop (`serve`). One of its threads does the work; messages are queued until they
    are fetched.
    """

    def __init__(self) -> None:
        self.inbox, self.outbox = queue.SimpleQueue[Any](), queue.SimpleQueue[Message]()

    def begin(self, start: bytes, software: Mapping[str, str]) -> list[Message]:
        """Start the worker's thread if its software versions match the driver's; otherwise return an error message for
        the driver.

        ``start`` is pickled separately, so that it is not loaded by another version.
        """
        if (here := software_versions()) != software:
            differing = ", ".join(
                f"{name} {here.get(name)} instead of {value}"
                for name, value in software.items()
                if value != here.get(name)
            )
            return [
                Raised(
                    InputError(
                        location=f"node {platform.node()}",
                        key="cluster",
                        value=differing,
                        expected="the software of the driver",
                        hint="Install the same versions on all nodes, and rerun the command.",
                    )
                )
            ]
        arguments = (pickle.loads(start), self.outbox.put, self.inbox.get)  # the driver's
        threading.Thread(target=serve, args=arguments, daemon=True).start()
        return []

    def put(self, answer: Any) -> None:
        self.inbox.put(answer)

    def take(self) -> list[Message]:
        """Wait until a message has arrived, and return all messages that have arrived. Fetching several at a time saves
        calls, which take a millisecond each.
        """
        found = [self.outbox.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self.outbox.get_nowait())
        return found


class RayWorker:
    """Driver's handle of a worker, which runs as a Ray actor with the given resources. Ray delays the start of the
    actor while the resources are in use.
    """

    def __init__(self, start: Start, resources: Mapping[str, float]) -> None:
        import ray

        self.ray = ray
        remote: Any = ray.remote(_ServedWorker)
        self.actor: Any = remote.options(max_concurrency=3, **resources).remote()
        self.messages = deque[Message]()  # received messages
        self.next_messages = self.actor.begin.remote(pickle.dumps(start), software_versions())

    def send(self, answer: Any) -> None:
        self.actor.put.remote(answer)

    def receive(self) -> Message | None:
        """Wait for the worker's next message and return it, or None if the worker has exited."""
        while not self.messages:
            try:
                self.messages.extend(self.ray.get(self.next_messages))
            except self.ray.exceptions.RayActorError:
                return None
            # Ray's own error; errors of this project are sent as messages
            except self.ray.exceptions.RayTaskError as error:
                return Raised(
                    InputError(
                        key="cluster",
                        expected=f"workers that start without an error ({error.cause})",
                        hint="All nodes need the same version of contrastive-encoders.",
                    )
                )
            self.next_messages = self.actor.take.remote()
        return self.messages.popleft()

    def stop(self) -> None:
        """Terminate the actor."""
        self.ray.kill(self.actor)

    def end(self) -> str:
        """Terminate the actor. Return the reason if it had exited before, else an empty string."""
        reason = ""
        try:
            self.ray.get(self.next_messages, timeout=0)
        except self.ray.exceptions.RayActorError as error:
            reason = str(error).strip().splitlines()[0]
        except self.ray.exceptions.RayError:  # it is busy
            pass
        self.stop()
        return reason


def wait_for_messages(workers: Sequence[RayWorker]) -> list[RayWorker]:
    """Wait until a worker has sent a message or exited; return all such workers."""
    import ray

    if ready_workers := [worker for worker in workers if worker.messages]:
        return ready_workers
    by_message = {worker.next_messages: worker for worker in workers}
    ready, _ = ray.wait(list(by_message), num_returns=1, fetch_local=False)
    return [by_message[message] for message in ready]
