"""E5: embeddings of MiniLM on a CPU, compared with other runtimes, and with its matrix products alone.

The texts are the mixture of E1, and queries of 12 words. The other sides are sentence-transformers on torch, and ONNX
Runtime and OpenVINO (if installed) with the graphs that ``format=onnx`` exports, in batches of 32 texts of similar
length, with as many threads as torch. ``products`` are the products of all linear layers and of attention with the same
shapes. Targets: 1.2 times as fast as the fastest with this precision, and 85 % of the products' speed in fp32.
"""

import argparse
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import materials, texts
from benchmarks.embedding import mixed
from benchmarks.runner import Line, alternate, clock_of, rates, timed
from contrastive_encoders.encoders.kernels.chunk_threads import in_threads
from contrastive_encoders.encoders.kernels.chunks import chunk_cost, plan_chunks
from contrastive_encoders.encoders.kernels.onednn_layers import packed_linears
from contrastive_encoders.encoders.kernels.onnx_graph import open_graph, run_graph
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.sentence_encoder import EMBED_TOKENS_CPU
from contrastive_encoders.export.onnx_graph import GRAPH, INT8_GRAPH, export_onnx

OPTIONS = {"texts": 600, "precisions": ["fp32", "bf16", "int8"], "threads": 0, "rounds": 3, "clock": ("wall", "cpu")}
QUICK = {"texts": 32, "rounds": 1}
BATCH = 32
Embed = Callable[[list[str]], np.ndarray]


def by_graph(run: Callable[[np.ndarray, np.ndarray], np.ndarray], tokenizer: Any) -> Embed:
    """Return a function that embeds texts, sorted by length, in batches."""

    def embed(some: list[str]) -> np.ndarray:
        vectors: dict[int, np.ndarray] = {}
        order = sorted(range(len(some)), key=lambda row: -len(some[row]))
        for start in range(0, len(some), BATCH):
            rows = order[start : start + BATCH]
            encoded = tokenizer.encode_batch([some[row] for row in rows])
            ids, mask = (np.array([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask"))
            vectors.update(zip(rows, run(ids, mask), strict=True))
        return np.stack([vectors[row] for row in range(len(some))])

    return embed


def openvino_sides(folder: Path, tokenizer: Any) -> dict[str, Embed]:
    try:
        import openvino
    except ImportError:
        return {}
    core, sides = openvino.Core(), {}
    for precision, graph, hint in (("fp32", GRAPH, "f32"), ("bf16", GRAPH, "bf16"), ("int8", INT8_GRAPH, "f32")):
        options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": hint}
        compiled = core.compile_model(core.read_model(str(folder / graph)), "CPU", options)
        request, output = compiled.create_infer_request(), compiled.output(0)

        def run(ids: np.ndarray, mask: np.ndarray, request: Any = request, output: Any = output) -> np.ndarray:
            return np.array(request.infer({"input_ids": ids, "attention_mask": mask})[output])

        sides[f"{precision}, OpenVINO"] = by_graph(run, tokenizer)
    return sides


def products(encoder: Any, some: list[str], precision: str) -> Callable[[], None]:
    """Return a function that computes the matrix products of embedding these texts, and nothing else."""
    chunks = plan_chunks(encoder.tokenize(some).lengths, EMBED_TOKENS_CPU, chunk_cost(torch.device("cpu")), None)
    dtype, layers, width = torch.bfloat16 if precision == "bf16" else torch.float32, encoder.trunk.encoder.layer, 384
    heads, linears = 12, [one for one in layers[0].modules() if isinstance(one, torch.nn.Linear)]

    def compute_chunk(number: int, length: int) -> torch.Tensor:
        inputs = {size: torch.ones(number, length, size, dtype=dtype) for size in (width, 4 * width)}
        query = torch.ones(number * heads, length, width // heads, dtype=dtype)
        for _ in layers:
            for linear in linears:
                linear(inputs[linear.in_features])
            torch.bmm(torch.bmm(query, query.mT), query)
        return query

    @torch.no_grad()
    def compute() -> None:
        shapes = [(len(chunk.sequences), chunk.width) for chunk in chunks]
        with packed_linears(encoder.trunk, 100_000):  # each thread computes a chunk of its own, as `embed` does
            deque(in_threads(compute_chunk, shapes, torch.get_num_threads()), maxlen=0)

    return compute


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    torch.set_num_threads(options.threads or torch.get_num_threads())
    path = materials.packaged_minilm()
    encoders: dict[str, Any] = {
        precision: load_encoder(path, device="cpu", precision=precision) for precision in options.precisions
    }
    onnx = export_onnx(folder / "onnx", load_encoder(path, device="cpu"))
    tokenizer, library = Tokenizer.from_file(str(onnx / "tokenizer.json")), SentenceTransformer(str(path), device="cpu")
    others: dict[str, Embed] = {
        "fp32, sentence-transformers": lambda some: library.encode(some, show_progress_bar=False)
    }
    for precision, graph in (("fp32", GRAPH), ("int8", INT8_GRAPH)):
        session = open_graph(onnx / graph)
        others[f"{precision}, ONNX Runtime"] = by_graph(lambda *arrays, s=session: run_graph(s, *arrays), tokenizer)
    others |= openvino_sides(onnx, tokenizer)
    others = {case: side for case, side in others.items() if case[:4] in options.precisions}
    queries = [" ".join(sentence.split()[:12]) for sentence in texts.sentences(options.texts)]
    for name, some in {"mixed": mixed(options.texts), "queries": queries}.items():
        sides: dict[str, Callable[[], object]] = {}
        for precision, encoder in encoders.items():
            sides[precision] = lambda e=encoder, some=some: e.embed(some, convert_to_numpy=True)
            if precision != "int8":
                sides[f"{precision}, products"] = products(encoder, some, precision)
        sides |= {case: lambda e=embed, some=some: e(some) for case, embed in others.items()}
        clock = clock_of(options)
        seconds = alternate({case: timed(side, clock) for case, side in sides.items()}, options.rounds)
        for case in sides:
            if case not in encoders:
                yield rates("E5", f"{name}, {case}", "texts/s", len(some), seconds[case[:4]], seconds[case])
