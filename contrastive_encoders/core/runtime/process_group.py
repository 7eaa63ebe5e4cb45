"""Ranks, initialization of the process group, and decisions that rank 0 makes for all ranks.

torchrun, srun, or `local_ranks.start_ranks` starts the processes and sets their ranks in environment variables.
"""

import atexit
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from contrastive_encoders.core import InputError

if TYPE_CHECKING:  # torch takes seconds to import, so it is not imported before --help is answered
    import torch.distributed as dist

# after that the address is wrong, as with torchrun --master-port 0, or a rank never started
RENDEZVOUS_TIMEOUT_S = 600.0
WARN_AFTER_S = 10.0
COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # as in Lightning
DECISION_TIMEOUT = timedelta(days=30)  # rank 0 may read a large corpus, or generate triplets for a domain
DEFAULT_PORT, FIRST_JOB_PORT = 12910, 15000  # as in Lightning; the second is for SLURM jobs

log = logging.getLogger(__name__)
_decision_group: "dist.ProcessGroup | None" = None

Value = TypeVar("Value")


class RankInfo(NamedTuple):
    """The rank of this process, and the number of ranks."""

    rank: int = 0
    world: int = 1


class LauncherInfo(NamedTuple):
    """The number of processes that torchrun or srun started, in total and per node."""

    processes: int
    per_node: int


def find_ranks() -> RankInfo:
    """Return the rank of this process and the world size, from the process group or from the environment variables of
    torchrun or srun.
    """
    if _has_process_group():
        return group_ranks()
    environment = os.environ
    if _launcher() == "srun":
        return RankInfo(int(environment["SLURM_PROCID"]), int(environment["SLURM_NTASKS"]))
    if "WORLD_SIZE" not in environment:
        return RankInfo()
    return RankInfo(int(environment.get("RANK", "0")), int(environment["WORLD_SIZE"]))


def group_ranks() -> RankInfo:
    """Return the rank of this process and the world size of the process group; (0, 1) if there is no group, whatever
    the environment variables are.
    """
    if not _has_process_group():
        return RankInfo()
    import torch.distributed as dist

    return RankInfo(dist.get_rank(), dist.get_world_size())


def _has_process_group() -> bool:
    distributed: Any = sys.modules.get("torch.distributed")  # it is imported if there is a group
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def local_rank() -> int:
    """Return the rank of this process on its node."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))


def launcher_info() -> LauncherInfo | None:
    """Return the number of processes that torchrun or srun started, or None if there is only one process or no
    launcher.
    """
    launcher, world = _launcher(), find_ranks().world
    if launcher is None or world == 1:
        return None
    if launcher == "torchrun":
        return LauncherInfo(world, int(os.environ["LOCAL_WORLD_SIZE"]))
    return LauncherInfo(world, world // int(os.environ.get("SLURM_NNODES", "1")))


def refuse_launcher() -> None:
    """Check that this command, which starts its processes itself, was not started by torchrun or srun.

    Raises:
        InputError: torchrun or srun started this command.
    """
    if launcher_info():
        raise InputError(
            key="devices",
            expected="no launcher such as torchrun or srun, since this command starts its processes itself",
            hint="Run the command without the launcher, and set the key devices.",
        )


def init_process_group(backend: str) -> None:
    """Initialize ``torch.distributed`` for all ranks, unless it is already initialized. The group is destroyed when the
    interpreter exits.

    The process exits with code 1 if a rank does not join within the time limit.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        return
    ranks, errors = find_ranks(), list[Exception]()

    def connect() -> None:
        try:
            _connect(backend, ranks)
        except (RuntimeError, ValueError) as error:  # DistError is a RuntimeError
            errors.append(error)

    # In a thread, because torch does not handle signals while it waits
    thread = threading.Thread(target=connect, name="rendezvous", daemon=True)
    thread.start()
    thread.join(WARN_AFTER_S)
    address, port = main_address()
    place = f"rank {ranks.rank} of {ranks.world} at {address}:{port}"
    if thread.is_alive():
        if "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun starts all processes of a node together
            launcher = _launcher() or "torchrun"
            log.warning(
                "%s is waiting for the other ranks. To start all ranks, run the command with %s.", place, launcher
            )
        thread.join(RENDEZVOUS_TIMEOUT_S - WARN_AFTER_S)
    if thread.is_alive() or errors:
        reason = str(errors[0]).strip().splitlines()[0] if errors else f"no answer in {RENDEZVOUS_TIMEOUT_S:g} seconds"
        log.error("%s could not connect to the other ranks: %s.", place, reason.rstrip("."))
        sys.exit(1)
    atexit.register(_leave_group)


def _connect(backend: str, ranks: RankInfo) -> None:
    import torch.distributed as dist

    address, port = main_address()
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun itself serves the store
    store = dist.TCPStore(
        address,
        port,
        ranks.world,
        is_master=ranks.rank == 0 and not has_agent,
        timeout=timedelta(seconds=2 * RENDEZVOUS_TIMEOUT_S),  # init_process_group times out first
    )
    # The store of torchrun outlives the processes that it restarts, and still contains their addresses
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    attempts = dist.PrefixStore(f"contrastive-encoders/{attempt}", store)
    dist.init_process_group(
        backend, store=attempts, rank=ranks.rank, world_size=ranks.world, timeout=COLLECTIVE_TIMEOUT
    )
    global _decision_group
    _decision_group = dist.new_group(backend=dist.Backend.GLOO, timeout=DECISION_TIMEOUT)


def _leave_group() -> None:
    """Destroy the process group at exit: a gloo group that still exists when the interpreter exits can abort the
    process.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def broadcast_from_rank_zero(decide: Callable[[], Value]) -> Value:
    """Call ``decide`` on rank 0, and return its result on all ranks. The wait for rank 0 has a time limit of 30 days
    instead of the collective timeout.

    Raises:
        InputError: ``decide`` raised it on rank 0; the other ranks exit with code 2 and no message.
    """
    ranks = group_ranks()
    if ranks.world == 1:
        return decide()
    import torch.distributed as dist

    decision: list[tuple[Value] | None] = [None]  # None: no decision, because rank 0 has failed
    if ranks.rank == 0:
        try:
            decision = [(decide(),)]
        finally:
            dist.broadcast_object_list(decision, group=_decision_group)
    else:
        try:
            dist.broadcast_object_list(decision, group=_decision_group)
        except RuntimeError:
            log.error("rank %d of %d: rank 0 has exited. Rerun the same command to resume.", *ranks)
            sys.exit(1)
    return decision[0][0] if decision[0] else sys.exit(2)


def gather(value: Value) -> list[Value]:
    """Gather a value from each rank, and return the list of values, indexed by rank."""
    ranks = group_ranks()
    if ranks.world == 1:
        return [value]
    import torch.distributed as dist

    values = [value for _ in range(ranks.world)]
    dist.all_gather_object(values, value, group=_decision_group)
    return values


def main_address() -> tuple[str, int]:
    """Return the host and port at which rank 0 listens."""
    environment = os.environ
    if _launcher() != "srun":
        return environment.get("MASTER_ADDR", "127.0.0.1"), int(environment.get("MASTER_PORT", DEFAULT_PORT))
    nodes = environment.get("SLURM_NODELIST", "127.0.0.1")  # "a[3-5,7],b" or "a3 a4"
    first = re.split("[ ,]", re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes))[0]
    job = environment.get("SLURM_JOB_ID")
    port = FIRST_JOB_PORT + int(job[-4:]) if job else DEFAULT_PORT
    return environment.get("MASTER_ADDR", first), int(environment.get("MASTER_PORT", port))


def _launcher() -> str | None:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    is_interactive = os.environ.get("SLURM_JOB_NAME") in (
        "bash",
        "interactive",
    )  # not started by srun
    srun = {"SLURM_NTASKS", "SLURM_PROCID"} <= os.environ.keys() and not is_interactive
    return "srun" if srun else None
