"""The exported ONNX graphs, fp32 and 8 bits, on STS-B test: what they lose, and how fast they are.

    python -m benchmarks.onnx_graphs [--quick] [--rounds 3]

all-MiniLM-L6-v2 on the CPU, by the example in the exported folder's README.md, 32 texts at a time sorted by length,
against our own `embed` of the same sorted texts. Needs the extra onnx and SHARED_DATA; without the latter sentences
are invented and the scores mean nothing.
"""

import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks import materials
from benchmarks.sides import Line, alternate, arguments, median_ratio, report
from benchmarks.sts_speed import load_tasks, score
from encoders import load_encoder
from export.onnx_graph import GRAPH, SMALL, export_onnx, use_of_onnx

BATCH = 32


def by_the_example(code: str, folder: Path, graph: str) -> Callable[[list[str]], np.ndarray]:
    """``embed`` of the example in the README."""
    found = re.search(r"```python\n(.*?)```", code, flags=re.DOTALL)
    assert found
    names: dict = {}
    exec(found.group(1).replace("PATH_OF_THIS_FOLDER", str(folder)).replace(GRAPH, graph), names)  # our own lines
    return names["embed"]


def in_batches(embed: Callable[[list[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    return np.concatenate([embed(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)])


def timed(run: Callable[[], np.ndarray], kept: dict[str, np.ndarray], name: str) -> float:
    start = time.perf_counter()
    kept[name] = run()
    return time.perf_counter() - start


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    materials.hush()
    (task,) = load_tasks(["stsb"], options.quick)
    texts = sorted({*task.left, *task.right}, key=len)
    row_of = {text: row for row, text in enumerate(texts)}
    encoder, kept = load_encoder(materials.packaged_minilm(), device="cpu"), dict[str, np.ndarray]()
    with tempfile.TemporaryDirectory() as name:
        folder, code = export_onnx(Path(name) / "onnx", encoder), use_of_onnx(encoder)  # type: ignore[arg-type]
        sizes = {graph: (folder / graph).stat().st_size / 2**20 for graph in (GRAPH, SMALL)}
        sides = {"ours": lambda: encoder.embed(texts, convert_to_numpy=True)}
        sides |= {graph: partial(in_batches, by_the_example(code, folder, graph), texts) for graph in (GRAPH, SMALL)}
        runs = {side: partial(timed, run, kept, side) for side, run in sides.items()}
        seconds = alternate(runs, 1 if options.quick else options.rounds)
    vectors = {side: torch.from_numpy(rows) for side, rows in kept.items()}
    scores = {
        side: score(rows[[row_of[t] for t in task.left]], rows[[row_of[t] for t in task.right]], task.gold)
        for side, rows in vectors.items()
    }
    lines = []
    for graph in (GRAPH, SMALL):
        own, other = (len(texts) / float(np.median(seconds[side])) for side in (graph, "ours"))
        ratio = median_ratio(seconds["ours"], seconds[graph])
        lines.append(Line("E3", f"{graph}, {sizes[graph]:.0f} MiB, against embed", "texts/s", own, other, ratio, ""))
        lines.append(Line("E3", f"{graph}, STS-B test Spearman", "points", scores[graph], scores["ours"], None, ""))
    report("ONNX graphs", lines, options.output)


if __name__ == "__main__":
    main()
