"""P6: a contrastive batch of 1,024 pairs in chunks, in the memory of a plain batch of 64.

MiniLM on pairs of sentences: encode, NT-Xent, backward, AdamW. The token budget is what the batch of 64 holds when it
is padded to its longest sentence. Memory is the peak of a process of its own per side. Time is per pair, compared with
plain batches of 64 (padded, as any trainer does it) and with the batch of 256 that fits in memory, sorted into chunks
as well but kept for the backward pass. Target: at most 1.2 times the memory, 1.4 times the time.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import materials, texts
from benchmarks.runner import Line, alternate, clock_of, in_new_process, median_ratio, memory_line, resident, timed
from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.kernels.chunks import Chunk, padded
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.losses.contrastive import nt_xent

OPTIONS = {"sizes": [64, 256, 1024], "rounds": 5, "clock": ("wall", "cpu")}
QUICK = {"sizes": [8, 16, 64], "rounds": 1}
UNLIMITED = 10**9


def load() -> SentenceEncoder:
    folder = str(materials.packaged_minilm())
    return SentenceEncoder(load_masked_lm(folder, lm_head=False), load_tokenizer(folder)).train()


def tokenize_pairs(encoder: SentenceEncoder, number: int) -> Ragged:
    """Return 2 * number sentences; those of a pair are ``number`` apart."""
    return encoder.tokenize(texts.sentences(2 * number))


def encode_padded(encoder: SentenceEncoder, sequences: Ragged) -> Tensor:
    """Encode all sequences in one batch, padded to the longest."""
    whole = [Chunk(np.arange(len(sequences.lengths)), int(sequences.lengths.max()))]
    ((ids, mask),) = padded(sequences.ids, sequences.lengths, whole, encoder.tokenizer.pad_token_id)
    return encoder.encode_chunk(ids, mask, None)[0]


def make_step(number: int, budget: int | None) -> Callable[[], None]:
    """Return a training step on ``number`` pairs under a token budget; None: in one batch, padded to the longest."""
    encoder = load()
    encoder.token_budget = budget or UNLIMITED
    sequences = tokenize_pairs(encoder, number)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-6)

    def step() -> None:
        rows = encoder.encode_sequences(sequences).vectors if budget else encode_padded(encoder, sequences)
        optimizer.zero_grad()
        nt_xent(rows[:number], rows[number:], temperature=0.05).loss.backward()
        optimizer.step()

    return step


def peak(number: int, budget: int | None) -> int:
    """Return this process's peak memory after two steps."""
    step = make_step(number, budget)
    step()
    step()
    return resident("VmHWM")


def repeat(step: Callable[[], None], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            step()

    return run


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    plain, fits, large = options.sizes
    sequences = tokenize_pairs(load(), plain)
    budget = len(sequences.lengths) * int(sequences.lengths.max())
    ours, theirs = in_new_process(peak, large, budget), in_new_process(peak, plain, None)
    yield memory_line("P6", f"{large} with token_budget={budget} / {plain} padded", ours, theirs, "<= 1.2x")
    sides, milliseconds = {}, {}
    for number, limit in ((large, budget), (plain, None), (fits, UNLIMITED)):
        times = max(1, large // (2 * number))
        sides[number] = timed(repeat(make_step(number, limit), times), clock_of(options))
        milliseconds[number] = 1000 / (number * times)
    alternate(sides, 1)
    seconds = alternate(sides, options.rounds)
    per_pair = {number: [milliseconds[number] * one for one in values] for number, values in seconds.items()}
    for other, case in ((plain, f"{plain} padded"), (fits, f"{fits} sorted, all kept")):
        own, their = per_pair[large], per_pair[other]
        medians = statistics.median(own), statistics.median(their)
        yield Line("P6", f"{large} in chunks / {case}", "ms/pair", *medians, median_ratio(own, their), "<= 1.4x")
