"""The process group of a command: its rank and world size, and decisions that rank 0 makes for all ranks.

torchrun and srun say it in environment variables. Lightning's own children need none of this: they start when rank 0
has decided already.
"""

import atexit
import functools
import itertools
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core import InputError

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    import torch.distributed as dist

TO_MEET = 600.0  # seconds: beyond them the address is wrong, as with torchrun --master-port 0, or nobody was started
SAY_AFTER = 10.0  # seconds of waiting until it is said for whom
TO_HEAR = 3.0  # seconds that the others have to hear of a signal to rank 0
LOOK = 0.1  # seconds between looks: what waits within torch hears no signal
PORT, FIRST_PORT_OF_JOBS = 12910, 15000  # where Lightning meets under srun
_decisions = itertools.count()  # all ranks ask for the same ones, in the same order

log = logging.getLogger(__name__)


class Ranks(NamedTuple):
    """This process among those that do the same work."""

    rank: int = 0
    world: int = 1


class Launched(NamedTuple):
    """How many processes somebody else has started."""

    processes: int
    per_node: int


def find_ranks() -> Ranks:
    """What torchrun or srun have started."""
    here = os.environ
    if _launcher() == "srun":
        return Ranks(int(here["SLURM_PROCID"]), int(here["SLURM_NTASKS"]))
    return Ranks(int(here.get("RANK", "0")), int(here["WORLD_SIZE"])) if "WORLD_SIZE" in here else Ranks()


def rank_here() -> int:
    """The rank of this process, whoever started it."""
    return find_ranks().rank if launched() else _rank_alone()


def local_rank() -> int:
    """This process among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))


def launched() -> Launched | None:
    """Return the number of processes that torchrun or srun started; None where neither did, or for one process."""
    launcher, world = _launcher(), find_ranks().world
    if launcher is None or world == 1:
        return None
    if launcher == "torchrun":
        return Launched(world, int(os.environ["LOCAL_WORLD_SIZE"]))
    return Launched(world, world // int(os.environ.get("SLURM_NNODES", "1")))


def refuse_launcher() -> None:
    """Refuse torchrun and srun for a command that starts its own processes.

    Raises:
        InputError: one of them started this command.
    """
    if launched():
        raise InputError(
            "torchrun and srun start one process for each GPU; this command starts its own. Start it without them, and "
            "set devices."
        )


def from_rank_zero(decide: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
    """Call ``decide(True)`` on rank 0, and return its values, of JSON's types, on all ranks, which wait for them.
    Without a launcher, ``decide`` is called with whether this process is rank 0.

    Raises:
        InputError: ``decide`` raised it on rank 0, while the other ranks exit with status 2 and no message; or a rank
            does not come within the time limit.
    """
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():  # a stage of this run has trained already
            return _from_rank_zero_of_the_group(decide)
    if launched() is None:
        return decide(_rank_alone() == 0)
    ranks, store, decided = find_ranks(), _store(), f"decided {next(_decisions)}"
    if ranks.rank > 0:
        return _decided_elsewhere(store, decided, ranks)
    answer, patience = None, TO_MEET
    try:
        answer = list(decide(True))
    except (KeyboardInterrupt, SystemExit):
        patience = TO_HEAR
        raise
    finally:  # before this process, which may hold the store, goes on or ends
        store.set(decided, json.dumps(answer))
        others = range(1, ranks.world)
        late = _wait(lambda: [rank for rank in others if not store.check([f"{decided}, read by {rank}"])], patience)
    if late:
        raise InputError(late)
    return answer


def _decided_elsewhere(store: "dist.Store", decided: str, ranks: Ranks) -> Sequence[Any]:
    """Wait for the values of rank 0, without a limit: it may read a whole corpus, or write triplets for a domain."""
    import torch.distributed as dist

    try:
        while not store.check([decided]):
            time.sleep(LOOK)
        answer = json.loads(store.get(decided))
        store.set(f"{decided}, read by {ranks.rank}", "yes")
    except dist.DistError:
        log.error("process %d of %d: process 0, which decides for all, has ended. The same command goes on.", *ranks)
        sys.exit(1)
    return answer if answer is not None else sys.exit(2)


def spans(numbers: Sequence[int]) -> str:
    """Ranks, which ascend, in short: ``1 to 4, 9``."""
    runs: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        runs.setdefault(number - place, []).append(number)
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs.values())


def join_group(backend: str) -> None:
    """Make the process group of all that torchrun or srun started."""
    import torch.distributed as dist

    from_rank_zero(lambda _: [])  # whoever waits for the others below hears no signal
    rank, world = find_ranks()
    if _launcher() == "srun":
        address, port = _main_address()
        dist.init_process_group(backend, init_method=f"tcp://{address}:{port}", rank=rank, world_size=world)
    else:
        # torchrun's store outlives the processes, and addresses of those that ended are in it; rank 0's own is new
        dist.init_process_group(backend, store=_store() if _is_by_agent() else None, rank=rank, world_size=world)


def join_group_again(backend: str) -> None:
    """Initialize the process group before Lightning does if torchrun has restarted all processes (``--max-restarts``),
    because Lightning would connect to the processes that have exited.
    """
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and not dist.is_initialized():
        join_group(backend)


def leave_group_at_exit() -> None:
    """Lightning does so for NCCL alone; a group of gloo that is still there when the interpreter ends can abort it."""

    def leave() -> None:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

    atexit.register(leave)


def _launcher() -> str | None:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    in_a_shell = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")  # srun was not said again in it
    srun = {"SLURM_NTASKS", "SLURM_PROCID"} <= os.environ.keys() and not in_a_shell
    return "srun" if srun else None


def _rank_alone() -> int:
    """The rank of a process that Lightning or the user started."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def _from_rank_zero_of_the_group(decide: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
    import torch.distributed as dist

    answer: list[Any] = [None]
    if dist.get_rank() > 0:
        dist.broadcast_object_list(answer)
        return answer[0] if answer[0] is not None else sys.exit(2)
    try:
        answer = [list(decide(True))]
        return answer[0]
    finally:
        dist.broadcast_object_list(answer)


def _main_address() -> tuple[str, int]:
    """Where Lightning's process group will be."""
    here = os.environ
    if _launcher() == "torchrun":
        return here.get("MASTER_ADDR", "127.0.0.1"), int(here.get("MASTER_PORT", PORT))
    nodes = here.get("SLURM_NODELIST", "127.0.0.1")  # "a[3-5,7],b" or "a3 a4"
    first = re.split("[ ,]", re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes))[0]
    port = FIRST_PORT_OF_JOBS + int(here["SLURM_JOB_ID"][-4:]) if "SLURM_JOB_ID" in here else PORT
    return here.get("MASTER_ADDR", first), int(here.get("MASTER_PORT", port))


@functools.cache  # one for all decisions: a server that closed between two would cut off whoever is early
def _store() -> "dist.Store":
    """Return a key-value store of all ranks, for what is exchanged before there is a process group.

    A group made here and dissolved again would leave its addresses in torchrun's store, and Lightning's would take them
    for its own.
    """
    import torch.distributed as dist

    (rank, world), (address, port) = find_ranks(), _meeting_place()
    by_agent = _is_by_agent()
    if not by_agent and rank > 0 and (late := _wait(lambda: [] if _answers(address, port) else [0], TO_MEET)):
        raise InputError(late)
    store = dist.TCPStore(
        address,
        port,
        world,
        is_master=not by_agent and rank == 0,
        timeout=timedelta(seconds=TO_MEET),
        wait_for_workers=False,
    )
    return dist.PrefixStore(f"contrastive-encoders/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _is_by_agent() -> bool:
    """Whether torchrun's agent has a store for its processes, and has seen to it that all are there."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _meeting_place() -> tuple[str, int]:
    address, port = _main_address()
    return address, port if _is_by_agent() else port + 1


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait(absent: Callable[[], Sequence[int]], patience: float) -> str:
    """Until no rank is absent, or for so many seconds; then, what is to be said about it."""
    began, said = time.monotonic(), False
    while ranks := absent():
        waited = time.monotonic() - began
        if waited > patience:
            return f"{_waits_for(ranks)} {patience:.0f} seconds were in vain."
        if waited > SAY_AFTER and not said:
            log.warning(_waits_for(ranks))
            said = True
        time.sleep(LOOK)
    return ""


def _waits_for(absent: Sequence[int]) -> str:
    (rank, world), (address, port), launcher = find_ranks(), _meeting_place(), _launcher()
    name, number = ("SLURM_PROCID", "SLURM_NTASKS") if launcher == "srun" else ("RANK", "WORLD_SIZE")
    return (
        f"process {rank} of {world} waits for process{'es' * (len(absent) > 1)} {spans(absent)}, to meet at "
        f"{address}:{port}. {launcher} in front of the command starts all {world}; by hand, {name}={absent[0]} in "
        f"front of the same command starts process {absent[0]}. Without {number} one process does all."
    )
