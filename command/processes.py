"""The processes of one command: which of several this one is, what rank 0 decides for all, and how others are started.

torchrun and srun say it in environment variables. Lightning's own children need none of this: they start when rank 0
has decided already.
"""

import atexit
import ctypes
import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from command.config_files import finding_our_modules

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    import torch.distributed as dist

INTERRUPTED, TERMINATED = 130, 143  # exit statuses
TO_CONNECT = timedelta(minutes=5)  # beyond it the address is wrong, as with torchrun --master-port 0
LONGEST_WAIT = timedelta(days=7)  # rank 0 may have to read a whole corpus, or to write triplets for a domain
PORT, FIRST_PORT_OF_JOBS = 12910, 15000  # where Lightning meets under srun
# What a process that torchrun or srun started must not hand on to a command of its own
OF_A_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
OF_LAUNCHERS = ("TORCHELASTIC_", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")  # how the others begin
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_decisions = itertools.count()  # all ranks ask for the same ones, in the same order


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


def local_rank() -> int:
    """This process among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))


def launched() -> Launched | None:
    """None where this process was started alone, or by Lightning."""
    launcher, world = _launcher(), find_ranks().world
    if launcher is None or world == 1:
        return None
    if launcher == "torchrun":
        return Launched(world, int(os.environ["LOCAL_WORLD_SIZE"]))
    return Launched(world, world // int(os.environ.get("SLURM_NNODES", "1")))


def from_rank_zero(decide: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
    """What ``decide(True)`` returns on rank 0, on all ranks; they wait for it. Without a launcher, ``decide`` is called
    with whether this is rank 0.

    The values must be JSON's.

    Raises:
        InputError: ``decide`` raised it, on rank 0; the other ranks leave with status 2 and let rank 0 say why.
    """
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():  # a stage of this run has trained already
            return _from_rank_zero_of_the_group(decide)
    if launched() is None:
        return decide(_rank_alone() == 0)
    ranks, store, count = find_ranks(), _store(), next(_decisions)
    if ranks.rank > 0:
        answer = json.loads(store.get(f"decided {count}"))
        store.set(f"{count} read by {ranks.rank}", "yes")
        return answer if answer is not None else sys.exit(2)
    answer = None
    try:
        answer = list(decide(True))
        return answer
    finally:  # before this process, which may hold the store, goes on or ends
        store.set(f"decided {count}", json.dumps(answer))
        store.wait([f"{count} read by {rank}" for rank in range(1, ranks.world)])


def join_group(backend: str) -> None:
    """Make the process group of all that torchrun or srun started."""
    import torch.distributed as dist

    if _launcher() == "srun":
        (rank, world), (address, port) = find_ranks(), _main_address()
        dist.init_process_group(backend, init_method=f"tcp://{address}:{port}", rank=rank, world_size=world)
    else:
        dist.init_process_group(backend)


def leave_group_at_exit() -> None:
    """Lightning does so for NCCL alone; a group of gloo that is still there when the interpreter ends can abort it."""

    def leave() -> None:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

    atexit.register(leave)


def several(module: str, number: int, once: Sequence[str] = ()) -> list[str]:
    """This command, ``python -m MODULE WORDS``, as so many processes; without the keys that are for this one alone."""
    words = [word for word in sys.argv[1:] if word.lstrip("+").partition("=")[0] not in once]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    return [sys.executable, *launcher, "-m", module, *words]


def run_child(command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> int:
    """The exit status of a command, run in ``folder``, which finds our modules whatever lies there.

    SIGTERM is passed on to it, and it leaves what is whole before this process goes; it ends with this process.
    """
    asked: list[int] = []
    env = finding_our_modules(os.environ if environment is None else environment)
    with subprocess.Popen(command, cwd=folder, env=env, preexec_fn=end_with_parent) as started:

        def pass_on(number: int, _: object) -> None:
            asked.append(128 + number)
            started.terminate()

        before = signal.signal(signal.SIGTERM, pass_on)
        try:
            status = started.wait()
        except KeyboardInterrupt:  # of a terminal; that one has it too, and is leaving
            started.wait()
            status = INTERRUPTED
        finally:
            signal.signal(signal.SIGTERM, before)
    return asked[0] if asked else 128 - status if status < 0 else status  # -9: killed


def lone_environment() -> dict[str, str]:
    """The environment without what torchrun or srun said: a command that gets it is none of their processes."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in OF_A_LAUNCHER and not name.startswith(OF_LAUNCHERS)
    }


def end_with_parent() -> None:
    """For a child, before it begins: where its parent is killed without a word, it gets SIGTERM (Linux)."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def exit_on_sigterm() -> Any:
    """From now on SIGTERM raises SystemExit(143), so that what is under way is left whole; the handler before."""
    return signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))


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
    """A place to meet before there is a process group.

    A group made here and dissolved again would leave its addresses in torchrun's store, and Lightning's would take them
    for its own.
    """
    import torch.distributed as dist

    (rank, world), (address, port) = find_ranks(), _main_address()
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        address,
        port if by_agent else port + 1,
        world,
        is_master=not by_agent and rank == 0,
        timeout=TO_CONNECT,
        wait_for_workers=False,
    )
    store.set_timeout(LONGEST_WAIT)
    return dist.PrefixStore(f"contrastive-encoders/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
