"""P4: spans with MLM masks from the token store, against tokenising each document when it comes up.

    python -m benchmarks.span_sampling [--quick] [--path FILE_OR_FOLDER] [--tokenizer FOLDER]

Both sides draw the same spans and masks (A = P = 2, 32..512) of the same documents with the same code, on one core;
they differ in where the ids come from. Wanted: 20 times the documents per second.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # per core: read when the tokenizer first encodes

import numpy as np
from transformers import AutoTokenizer

from benchmarks import materials, texts
from benchmarks.sides import Line, alternate, arguments, median_ratio, report
from contrastive_encoders.core import SpanBatch
from contrastive_encoders.datamodules.documents import DocumentSpans
from contrastive_encoders.datamodules.sampling.span_batches import SpanBatches
from contrastive_encoders.datamodules.store.tokenizer import special_tokens

BATCH = 16


class OnTheFly:
    """Documents in the place of the token store: an access encodes the text."""

    def __init__(self, texts: list[str], tokenizer: Any) -> None:
        self.texts, self.tokenizer = texts, tokenizer

    def text(self, row: int) -> np.ndarray:
        encoded = self.tokenizer(self.texts[row], add_special_tokens=False, verbose=False)
        return np.array(encoded["input_ids"])


def main() -> None:
    options = parse()
    materials.hush()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    with tempfile.TemporaryDirectory() as cache:
        path = options.path or texts.write_documents(Path(cache) / "corpus.txt", options.documents)
        keys = {"path": path, "tokenizer": options.tokenizer, "batch_size": BATCH, "cache_dir": cache}
        data = materials.data_module("text", **keys)
        data.prepare_data()
        data.setup()
        stored, fresh = same_documents(data, tokenizer, options)
        assert_equal(stored(0, np.arange(4)), fresh(0, np.arange(4)))
        rounds = iter(range(options.repeats + 1))  # each round draws other spans
        sides = {
            "store": lambda: rate(stored, options.documents, next(rounds)),
            "fresh": lambda: rate(fresh, options.documents, 0),
        }
        rates = alternate(sides, options.repeats)
    own, theirs = (statistics.median(values) for values in rates.values())
    ratio = median_ratio(rates["store"], rates["fresh"])
    line = Line("P4", f"{options.documents} documents", "documents/s", own, theirs, ratio, ">= 20x")
    report("Spans and masks from the token store against tokenising on the fly", [line], options.output)


def same_documents(data: DocumentSpans, tokenizer: Any, options: argparse.Namespace) -> tuple[SpanBatches, SpanBatches]:
    """The sampler over the first documents of the store, and over their texts."""
    count = options.documents = min(options.documents, len(data.rows))
    rule, specials = data.rule, special_tokens(tokenizer)
    long_enough = (
        text for text in data.texts() if len(tokenizer(text, verbose=False)["input_ids"]) - 2 >= rule.tokens_needed
    )
    fresh = OnTheFly(list(islice(long_enough, count)), tokenizer)
    keys: dict[str, Any] = {"seed": 1, "max_length": data.max_length, "mlm_probability": data.settings.mlm_probability}
    return SpanBatches(data.store, specials, rule, **keys), SpanBatches(fresh, specials, rule, **keys)


def assert_equal(left: SpanBatch, right: SpanBatch) -> None:
    """Both sides do the same work."""
    pairs = [(left.anchors.ids, right.anchors.ids), (left.masked_ids, right.masked_ids)]
    assert all(one.equal(other) for one, other in pairs)


def rate(batches: Callable[[int, np.ndarray], SpanBatch], documents: int, pass_index: int) -> float:
    """Documents per second, in batches."""
    start = time.perf_counter()
    for first in range(0, documents, BATCH):
        batches(pass_index, np.arange(first, min(first + BATCH, documents)))
    return documents / (time.perf_counter() - start)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--path", type=Path, help="default: real documents of SHARED_DATA, or invented ones")
    parser.add_argument("--tokenizer", type=Path, default=materials.packaged_minilm())
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.quick:
        options.documents, options.repeats = 16, 1
    return options


if __name__ == "__main__":
    main()
