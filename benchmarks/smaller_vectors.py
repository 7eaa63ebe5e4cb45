"""E4: what 8 bits and 1 bit a number cost in quality, against the same vectors in float32.

    python -m benchmarks.smaller_vectors [--quick] [--encoder FOLDER]

all-MiniLM-L6-v2, or the encoder that is named. STS: both vectors of a pair as they are stored (ranges of all texts),
Spearman averaged over STS12-16, STS-B and SICK-R. Retrieval: the installed docstrings, each of which must be found by
its summary line; float queries among stored documents, nDCG@10, also rescored by the float vectors of 40 candidates.
No figure depends on the machine. Without SHARED_DATA sentences are invented and the scores of STS mean nothing.
"""

import statistics
import tempfile
from typing import Any

import numpy as np
import torch

from benchmarks import materials
from benchmarks.sides import Line, arguments, report
from benchmarks.sts_speed import TASKS, load_tasks, score
from contracts import Embedder
from datamodules.sources.pydocs import PydocsSource
from encoders import load_encoder
from evaluation.vectors import embed_pool
from export.quantization import EIGHT_BITS, ONE_BIT, quantized, ranges_of, restored, search

DTYPES = ("float32", "int8", "binary")
FIRST = 10


def stored(vectors_ND: np.ndarray, dtype: str, ranges_2D: np.ndarray) -> np.ndarray:
    """As `python -m export.embed dtype=...` would write them."""
    return quantized(vectors_ND, dtype, ranges_2D) if dtype in (*EIGHT_BITS, *ONE_BIT) else vectors_ND.astype(dtype)


def similarity(encoder: Embedder, quick: bool) -> list[Line]:
    tasks = load_tasks(TASKS, quick)
    pool = embed_pool(encoder, (side for task in tasks for side in (task.left, task.right)))
    sides = [[pool.of(side).numpy() for side in (task.left, task.right)] for task in tasks]
    ranges = ranges_of(side for both in sides for side in both)
    found = {}
    for dtype in DTYPES:
        scores = []
        for task, both in zip(tasks, sides, strict=True):
            left, right = (restored(stored(side, dtype, ranges), side.shape[1], ranges) for side in both)
            scores.append(score(torch.from_numpy(left), torch.from_numpy(right), task.gold))
        found[dtype] = statistics.mean(scores)
    return [line(f"STS, {dtype}", value, found["float32"]) for dtype, value in found.items()]


def retrieval(encoder: Embedder, quick: bool) -> list[Line]:
    with tempfile.TemporaryDirectory() as cache:
        (task,) = PydocsSource(cache, held_out_every=10, held_out_part=0, min_words=1024).held_out()
    number = 200 if quick else len(task.queries)
    queries, documents = (encoder.embed(texts[:number]).numpy() for texts in (task.queries, task.documents))
    ranges, lines, of_floats = ranges_of([documents]), list[Line](), None
    for dtype in DTYPES:
        few = stored(documents, dtype, ranges)
        for how, options in {"": {}, ", rescored": {"rescored_by": documents}}.items():
            if how and dtype == "float32":
                continue
            value = ndcg(search(queries, few, k=FIRST, ranges=ranges, **options).rows_QK)
            of_floats = value if of_floats is None else of_floats
            lines.append(line(f"docstrings, {dtype}{how}, {few[0].nbytes} bytes", value, of_floats))
    return lines


def ndcg(rows_QK: np.ndarray) -> float:
    """Document i is what query i must find, and no other."""
    queries, places = np.nonzero(rows_QK == np.arange(len(rows_QK))[:, None])
    return 100 * float((1 / np.log2(places + 2)).sum()) / len(rows_QK) if len(queries) else 0.0


def line(case: str, ours: float, floats: float) -> Line:
    return Line("E4", case, "points; theirs: float32", ours, floats, None, "")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--encoder", default=None, help="a folder or hub id; else all-MiniLM-L6-v2")
    options: Any = parser.parse_args()
    encoder = load_encoder(options.encoder or str(materials.packaged_minilm()))
    report("Smaller vectors", [*similarity(encoder, options.quick), *retrieval(encoder, options.quick)], options.output)


if __name__ == "__main__":
    main()
