"""P22: the memory that training a model of 7 billion weights takes on 1, 2 and 8 GPUs of 80 GB, by a formula.

    python -m benchmarks.model_memory [--quick] [--table] [--tokens 16384] [--length 128]

Weights are counted on the meta device, from a config of Mistral-7B's shape. A step of in-batch contrast with 512 pairs
runs under ``precision=bf16``, in chunks of ``--tokens`` tokens, with AdamW. What the formula says of SmolLM2-135M, its
weights rounded to 16 bits as those of larger models are published, is compared with bytes that were measured: of
weights, gradients and optimiser state that a process keeps; of weights that are gathered while 2 shard them; and of
what autograd saves for the backward pass, by the hooks of saved tensors. Wanted: 5 %.
``--table`` prints the table of the 7B model alone.
"""

import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModel, AutoModelForCausalLM, MistralConfig, PreTrainedModel

from benchmarks.materials import objective, smollm2
from benchmarks.sharded_memory import TEXTS, on
from benchmarks.sides import Line, arguments, report
from contrastive_encoders.core import TripletBatch
from contrastive_encoders.encoders.kernels.nf4_weights import Nf4Linear
from contrastive_encoders.encoders.layers import layers_of
from contrastive_encoders.encoders.lora import narrow

GPU = 80e9
BATCH, TEXTS_OF_A_ROW, RANK = 512, 2, 16
NF4 = (4 + 8 / 64 + 32 / (64 * 256)) / 8  # bytes of a weight: 4 bits, its share of a scale, and of the scale of scales
FP32, BF16 = 4, 2
OF_ADAMW = FP32 + 2 * FP32  # of a trained weight: the gradient and two moments
SEVEN_B = MistralConfig(
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=14_336,
    vocab_size=32_000,
    sliding_window=None,
)


class Shape(NamedTuple):
    """Numbers of weights, and sizes of states."""

    layers: int
    matrices: int  # weights of the linear layers of one layer
    norms: int  # other weights of one layer
    outside: int  # weights of embeddings and of the norm behind the layers
    adapters: int  # weights of adapters of rank `RANK` in one layer
    largest: int  # weights of the largest matrix of a layer
    width: int
    keys: int  # numbers of a key, over all heads that have one
    heads: int
    inner: int  # between the linear layers of a block


def shape_of(config: Any) -> Shape:
    """Count the weights of a decoder of Llama's architecture on the meta device."""
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    layer = layers_of(model)[0]
    linear = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    matrices = [part.in_features * part.out_features for part in linear]
    of_layer, layers = sum(weight.numel() for weight in layer.parameters()), int(config.num_hidden_layers)
    return Shape(
        layers=layers,
        matrices=sum(matrices),
        norms=of_layer - sum(matrices),
        outside=sum(weight.numel() for weight in model.parameters()) - layers * of_layer,
        adapters=RANK * sum(part.in_features + part.out_features for part in linear),
        largest=max(matrices),
        width=int(config.hidden_size),
        keys=int(config.num_key_value_heads) * (int(config.head_dim) if config.head_dim else 0),
        heads=int(config.num_attention_heads),
        inner=int(config.intermediate_size),
    )


@dataclass(frozen=True)
class Way:
    """How a model is trained: ``frozen`` is how weights below adapters are held, None where all weights are trained."""

    frozen: str | None = None
    precision: str = "bf16"
    recompute: str = "on"  # of whole chunks; layers; off: the whole batch is one chunk
    sharded: bool = False
    processes: int = 1

    @property
    def name(self) -> str:
        what = "all weights" if self.frozen is None else f"LoRA over {self.frozen}"
        return f"{what}, {'fsdp' if self.sharded else 'ddp' if self.processes > 1 else 'default'}"


def kept(shape: Shape, way: Way) -> float:
    """Bytes of weights, gradients and optimiser state that a process keeps between two steps."""
    matrices, rest = shape.layers * shape.matrices, shape.layers * shape.norms + shape.outside
    if way.frozen is None:
        found = (matrices + rest) * (FP32 + OF_ADAMW)
    else:
        of_matrix = {"fp32": FP32, "bf16": BF16, "nf4": NF4}[way.frozen]
        of_embedding = FP32 if way.frozen == "fp32" else BF16
        found = matrices * of_matrix + shape.layers * shape.norms * FP32 + shape.outside * of_embedding
        found += shape.layers * shape.adapters * (FP32 + OF_ADAMW)
    return found / way.processes if way.sharded else found


def gathered(shape: Shape, way: Way, chunks: int, ahead: int = 1) -> float:
    """Bytes of weights that a process holds during a step besides those that it keeps.

    Sharded: those outside of the layers, and of one layer while the next ones, so many ``ahead``, arrive; but of all
    layers where chunks are computed again, because none is forgotten then before its backward pass. In 4 bits: the
    largest matrix, widened.
    """
    of_matrix = {None: FP32, "fp32": FP32, "bf16": BF16, "nf4": BF16}[way.frozen]
    if not way.sharded:
        return shape.largest * BF16 if way.frozen == "nf4" else 0
    adapters = 0 if way.frozen is None else shape.adapters
    layer = shape.matrices * of_matrix + (shape.norms + adapters) * FP32
    at_once = shape.layers if way.recompute == "on" or chunks > 1 else 1 + ahead
    return shape.outside * of_matrix + at_once * layer


def reduced(shape: Shape, way: Way, chunks: int) -> float:
    """Bytes of gradients that a process holds until they are summed over those that shard them: of all layers until the
    last chunk is done, with one chunk of a layer at a time.
    """
    trained = shape.matrices + shape.norms if way.frozen is None else shape.adapters
    outside = shape.outside if way.frozen is None else 0
    return ((shape.layers if chunks > 1 else 1) * trained + outside) * FP32 if way.sharded else 0


def casts(shape: Shape, way: Way) -> float:
    """Bytes of matrices in 16 bits that autocast makes of those in 32, and keeps for the backward pass."""
    matrices = shape.matrices if way.frozen in (None, "fp32") else 0
    adapters = 0 if way.frozen is None else shape.adapters
    layers = 1 if way.recompute == "layers" else shape.layers
    return 0 if way.precision == "fp32" else layers * (matrices + adapters) * BF16


def saved(shape: Shape, way: Way) -> float:
    """Bytes of one token of one layer that autograd saves for the backward pass."""
    product = FP32 if way.precision == "fp32" else BF16
    norms = 2 * (shape.width + 1) * FP32  # what they read, and by what they divide
    if way.frozen is None:
        norms += 2 * shape.width * FP32  # what their weights multiply
    readers = (5 if way.precision == "bf16" else 2) * shape.width * product  # each matrix' own cast, or what they share
    attention = (2 * shape.width + 2 * shape.keys) * product + shape.heads * FP32  # query, key, value, mixed; divisors
    block = 4 * shape.inner * product  # gate, up, what the gate lets through, and their product
    low = 0 if way.frozen is None else 7 * RANK * product  # between the two matrices of an adapter
    return norms + readers + attention + block + low


def activations(shape: Shape, way: Way, tokens: int) -> float:
    """Bytes of activations of so many tokens at once, the norm behind the layers included."""
    last = (2 if way.frozen is None else 1) * shape.width * FP32
    if way.recompute == "layers":
        return tokens * (shape.layers * shape.width * FP32 + saved(shape, way) + last)
    return tokens * (shape.layers * saved(shape, way) + last)


def vectors(shape: Shape, processes: int) -> float:
    """Return the bytes, per process, of the embeddings of a batch, their gradients, and the similarities."""
    texts = BATCH * TEXTS_OF_A_ROW
    return 2 * texts * shape.width * FP32 + 3 * texts / processes * texts * FP32


# What was measured


class Saved:
    """Bytes of tensors that autograd saves, each storage once, but for those of weights."""

    def __init__(self, model: nn.Module) -> None:
        self.known = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.found = dict[int, Tensor]()  # held, so that no address is used twice

    def pack(self, tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in self.known:
            self.found[address] = tensor
        return tensor

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.found.values())


def measure_saved(model: PreTrainedModel, way: Way, tokens: int) -> int:
    """Bytes that autograd saves of a text of so many tokens, without the kernels that stand in on a CPU."""
    ids = torch.arange(tokens).remainder(1000).add(5)[None]
    counted = Saved(model)
    autocast = torch.autocast("cpu", torch.bfloat16) if way.precision == "bf16" else nullcontext()
    with autocast, torch.autograd.graph.saved_tensors_hooks(counted.pack, lambda tensor: tensor):
        states = model(input_ids=ids, use_cache=False).last_hidden_state
    assert states.requires_grad
    return counted.bytes


def step(model: Any) -> None:
    texts = model.encoder.tokenize(TEXTS)
    model.training_step(TripletBatch(texts, texts, None, torch.arange(2), np.arange(2)), 0)["loss"].backward()


def measure_kept(model: Any) -> int:
    """Bytes of weights, gradients and optimiser state after a step."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    texts = model.encoder.tokenize(
        ["A ferry crosses the river at noon.", "The clock in the kitchen has stopped again."]
    )
    model.training_step(TripletBatch(texts, texts, None, torch.arange(2), np.arange(2)), 0)["loss"].backward()
    optimizer.step()
    state = [value for kept in optimizer.state.values() for value in kept.values() if torch.is_tensor(value)]
    gradients = [weight.grad for weight in trained if weight.grad is not None]
    scales = [scale for layer in model.modules() if isinstance(layer, Nf4Linear) for scale in scales_of(layer)]
    return sum(tensor.nbytes for tensor in [*model.parameters(), *gradients, *state, *scales])


def scales_of(layer: Nf4Linear) -> list[Tensor]:
    return [layer.state.absmax, layer.state.state2.absmax]


def measure_gathered(rank: int, way: Way, backbone: str, folder: Path) -> None:
    """Write the most bytes of gathered weights within any layer, of a step as one of several ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=way.processes)
    model = adapted(backbone, way)
    model.shard(init_device_mesh("cpu", (way.processes,)))
    most = 0

    def look(*_: Any) -> None:
        nonlocal most
        states: list[Any] = [part._get_fsdp_state() for part in model.modules() if isinstance(part, FSDPModule)]
        weights = [weight for state in states for weight in state._fsdp_param_group.fsdp_params]
        found = [one.untyped_storage().nbytes() for weight in weights for one in weight.all_gather_outputs]
        most = max(most, sum(found))

    for layer in layers_of(model.encoder.trunk):
        [*_, norm] = [part for name, part in layer.named_children() if "norm" in name]
        norm.register_forward_hook(look)  # linear layers are stood in for on a CPU
    step(model)
    torch.save(most, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def most_gathered(way: Way, backbone: Path) -> int:
    with tempfile.TemporaryDirectory() as name:
        given = (way, str(backbone), Path(name))
        mp.start_processes(measure_gathered, given, nprocs=way.processes, start_method="spawn")
        return max(torch.load(Path(name) / f"{rank}.pt", weights_only=True) for rank in range(way.processes))


def adapted(backbone: str | Path, way: Way) -> Any:
    lora = {"rank": None if way.frozen is None else RANK, "alpha": None, "targets": "auto", "seed": 1}
    keys = {"pooling": "last", "token_budget": 4096, "recompute": way.recompute, "lora": lora}
    return objective("pairs", backbone, **keys, frozen_weights=way.frozen or "fp32")


def checks(folder: Path, quick: bool) -> Iterator[Line]:
    """What was measured of SmolLM2, against the formula."""
    backbone, said = smollm2(folder)
    model = AutoModelForCausalLM.from_pretrained(backbone, dtype=torch.float32)
    model.bfloat16().float().save_pretrained(backbone)
    lengths = (64, 128) if quick else (256, 512)
    for frozen in (None, "fp32", "bf16", "nf4"):
        way = Way(frozen, recompute="off")
        model = adapted(backbone, way)
        narrow(model)
        shape = shape_of(model.encoder.trunk.config)
        yield compared(f"{said}: kept, {way.name}", measure_kept(model), kept(shape, way))
        for precision in ("fp32", "bf16"):
            if frozen in ("bf16", "nf4") and precision == "fp32":
                continue  # a layer in 16 bits is widened for each product, and stays so
            way = Way(frozen, precision, recompute="off")
            less, more = (measure_saved(model.encoder.trunk, way, length) for length in lengths)
            of_token = (more - less) / (lengths[1] - lengths[0])
            case = f"{said}: saved for a token, {way.name}, {precision}"
            yield compared(case, of_token, activations(shape, way, 1))
            if expected := casts(shape, way):
                case = f"{said}: cast for products, {way.name}, {precision}"
                yield compared(case, less - of_token * lengths[0], expected)
    if quick:
        return
    for frozen, recompute in ((None, "layers"), (None, "on"), ("bf16", "layers"), ("bf16", "on")):
        way = Way(frozen, recompute=recompute, sharded=True, processes=2)
        case = f"{said}: gathered by each of 2, {way.name}, recompute={recompute}"
        yield compared(case, most_gathered(way, backbone), gathered(shape, way, 1, ahead=0))
    way = Way(sharded=True, processes=2)
    yield compared(f"{said}: kept by each of 2, {way.name}", on(2, True, str(backbone))[0], kept(shape, way))


def compared(case: str, measured: float, formula: float) -> Line:
    return Line("P22", case, "kB", measured / 1e3, formula / 1e3, measured / formula, "0.95x to 1.05x")


def table(shape: Shape, tokens: int, length: int) -> list[str]:
    """The memory of a GPU for each way, as a Markdown table."""
    lines = ["| trained, `trainer` | GPUs | kept | during a step | activations | in all | with `recompute=on` |"]
    lines.append("|---" * 7 + "|")
    trainers = [("default", 1), ("ddp", 2), ("fsdp", 2), ("ddp", 8), ("fsdp", 8)]
    for frozen in (None, "bf16", "nf4"):
        for trainer, processes in trainers:
            if trainer == "fsdp" and frozen == "nf4":
                continue
            ways = [
                Way(frozen, recompute=recompute, sharded=trainer == "fsdp", processes=processes)
                for recompute in ("layers", "on")
            ]
            by_layers, by_chunks = (parts_of(shape, way, tokens, length) for way in ways)
            cells = [f"{part / 1e9:.1f}" for part in by_layers]
            totals = [said(sum(parts)) for parts in (by_layers, by_chunks)]
            lines.append(f"| {ways[0].name} | {processes} | {' | '.join([*cells, *totals])} |")
    return lines


def parts_of(shape: Shape, way: Way, tokens: int, length: int) -> tuple[float, float, float]:
    """Bytes that are kept, those of weights and gradients during a step, and those of activations and vectors."""
    share = BATCH * TEXTS_OF_A_ROW * length // way.processes
    chunks = -(-share // tokens)
    during = gathered(shape, way, chunks) + reduced(shape, way, chunks) + casts(shape, way)
    return kept(shape, way), during, activations(shape, way, min(tokens, share)) + vectors(shape, way.processes)


def said(total: float) -> str:
    """In GB; bold where it fits, with a twentieth left to CUDA and to gaps."""
    return f"**{total / 1e9:.0f}**" if total < 0.95 * GPU else f"{total / 1e9:.0f}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--table", action="store_true", help="nothing is measured")
    parser.add_argument("--tokens", type=int, default=16_384, help="of a chunk")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    options = parser.parse_args()
    shape = shape_of(SEVEN_B)
    work = f"{BATCH} pairs of texts of {options.length} tokens, in chunks of {options.tokens}"
    print(f"Bytes of a GPU in GB, 7B model, {work}")
    print("\n".join(table(shape, options.tokens, options.length)))
    if options.table:
        return
    with tempfile.TemporaryDirectory() as name:
        report("The formula against measured bytes", list(checks(Path(name), options.quick)), options.output)


if __name__ == "__main__":
    main()
