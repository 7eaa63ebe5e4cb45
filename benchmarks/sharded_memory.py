"""P20: the bytes of weights, gradients and optimiser state on each rank when weights are sharded (trainer=fsdp).

    python -m benchmarks.sharded_memory [--quick] [--processes 2 4]

In-batch contrast with SmolLM2-135M in float32 and AdamW, a step of two pairs on each rank, on gloo processes of this
machine. Bytes are those of the tensors that a rank keeps between steps, the most of all ranks; beside them the time of
a step against DDP on as many processes. Wanted: 0.52 times one process on 2, 0.27 times on 4.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from benchmarks.materials import objective, smollm2
from benchmarks.sides import Line, arguments, report
from contrastive_encoders.core import TripletBatch
from contrastive_encoders.encoders.sharding import local_tensor

STEPS = 3
TEXTS = ["A ferry crosses the river at noon.", "The clock in the kitchen has stopped again."]


class Step(torch.nn.Module):
    """DDP averages what goes through ``forward``."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TripletBatch) -> torch.Tensor:
        return self.model.training_step(batch, 0)["loss"]  # type: ignore[operator]


def measure(rank: int, processes: int, sharded: bool, backbone: str, folder: Path) -> None:
    """Train some steps as one of several ranks, and write the bytes that it keeps and the median seconds of a step."""
    torch.set_num_threads(1)
    if processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=processes)
    model = objective("pairs", backbone, pooling="last", token_budget=4096, recompute="off")
    step: torch.nn.Module = Step(model)
    if sharded:
        model.shard(init_device_mesh("cpu", (processes,)))
    elif processes > 1:
        step = DistributedDataParallel(step)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    texts = model.encoder.tokenize(TEXTS)
    batch, seconds = TripletBatch(texts, texts, None, torch.arange(2), np.arange(2)), []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        step(batch).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    state = [value for kept in optimizer.state.values() for value in kept.values() if torch.is_tensor(value)]
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    kept = sum(local_tensor(tensor).nbytes for tensor in [*model.parameters(), *gradients, *state])
    torch.save((kept, sorted(seconds)[len(seconds) // 2]), folder / f"{rank}.pt")
    if processes > 1:
        dist.barrier()
        dist.destroy_process_group()


def on(processes: int, sharded: bool, backbone: str) -> tuple[int, float]:
    """The most bytes of a rank, and the seconds of a step of the slowest."""
    with tempfile.TemporaryDirectory() as name:
        mp.start_processes(measure, (processes, sharded, backbone, Path(name)), nprocs=processes, start_method="spawn")
        found = [torch.load(Path(name) / f"{rank}.pt", weights_only=True) for rank in range(processes)]
    return max(kept for kept, _ in found), max(seconds for _, seconds in found)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder, said = smollm2(Path(name))
        whole, _ = on(1, False, str(folder))
        for processes in options.processes[: 1 if options.quick else None]:
            kept, seconds = on(processes, True, str(folder))
            wanted = {2: "<= 0.52x", 4: "<= 0.27x"}.get(processes, "")
            case = f"{said}, {processes} processes"
            lines.append(Line("P20", f"{case}: kept on a rank", "MB", kept / 1e6, whole / 1e6, kept / whole, wanted))
            _, by_ddp = on(processes, False, str(folder))
            lines.append(Line("P20", f"{case}: a step against DDP's", "s", seconds, by_ddp, seconds / by_ddp, ""))
    report("Sharded weights: memory of a rank, gloo on one machine", lines, options.output)


if __name__ == "__main__":
    main()
