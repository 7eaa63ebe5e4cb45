"""P6: a contrastive batch of 1,024 pairs in chunks, in the memory of a plain batch of 64.

    python -m benchmarks.chunk_memory [--quick] [--clock wall|cpu]

MiniLM on pairs of sentences: encode, NT-Xent, backward, AdamW. The token budget is what the batch of 64 holds when it
is padded to its longest sentence. Memory is the peak resident size of a process of its own per side; time is per pair,
against plain batches of 64 (padded, as any trainer does it) and against the whole batch of 256 that fits in memory,
sorted into chunks alike but kept for the backward pass. Wanted: at most 1.2 times the memory, 1.4 times the time.
"""

import argparse
import statistics
from collections.abc import Callable

import torch

from benchmarks import materials, texts
from benchmarks.padding import to_the_longest
from benchmarks.sides import CLOCKS, Line, alternate, arguments, in_a_process, median_ratio, report, resident
from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.losses.contrastive import nt_xent

PLAIN, FITS, LARGE = 64, 256, 1024  # pairs
WITHOUT_LIMIT = 10**9


def load() -> SentenceEncoder:
    folder = str(materials.packaged_minilm())
    return SentenceEncoder(load_masked_lm(folder, lm_head=False), load_tokenizer(folder)).train()


def pairs(encoder: SentenceEncoder, number: int) -> Ragged:
    """2 x number sentences, those of a pair ``number`` apart."""
    return encoder.tokenize(texts.sentences(2 * number))


def padded_tokens(sequences: Ragged) -> int:
    return len(sequences.lengths) * int(sequences.lengths.max())


def make_step(number: int, budget: int | None) -> Callable[[], None]:
    """A training step on ``number`` pairs under a token budget; without one, all at once, padded to the longest."""
    encoder = load()
    encoder.token_budget = budget or WITHOUT_LIMIT
    sequences = pairs(encoder, number)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-6)

    def step() -> None:
        rows = encoder.encode_sequences(sequences).vectors if budget else to_the_longest(encoder, sequences, None)[0]
        optimizer.zero_grad()
        nt_xent(rows[:number], rows[number:], temperature=0.05).loss.backward()
        optimizer.step()

    return step


def peak_bytes(number: int, budget: int | None) -> int:
    """Return the peak memory of a new process that trains two steps."""
    return int(in_a_process("benchmarks.chunk_memory", "--grow", number, budget or 0)[-1])


def grow(number: int, budget: int) -> None:
    step = make_step(number, budget or None)
    step()
    step()
    print(resident("VmHWM"))


def race(sizes: tuple[int, int, int], budget: int, rounds: int, clock: Callable[[], float]) -> list[Line]:
    plain, fits, large = sizes
    steps = {
        "chunks": (make_step(large, budget), large),
        "plain": (make_step(plain, None), plain),
        "fits": (make_step(fits, WITHOUT_LIMIT), fits),
    }

    def per_pair(name: str) -> float:
        step, number = steps[name]
        repeats = max(1, large // (2 * number))
        start = clock()
        for _ in range(repeats):
            step()
        return (clock() - start) / (number * repeats) * 1e3

    for name in steps:
        per_pair(name)
    times = alternate({name: lambda name=name: per_pair(name) for name in steps}, rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        Line(
            "P6", case, "ms/pair", medians["chunks"], medians[name], median_ratio(times["chunks"], times[name]), target
        )
        for name, case, target in (
            ("plain", f"time of {large} in chunks / {plain} padded", "<= 1.4x"),
            ("fits", f"time of {large} in chunks / {fits} sorted, all kept", "<= 1.4x"),
        )
    ]


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, rounds=5, clock=True)
    parser.add_argument("--grow", type=int, nargs=2, metavar=("PAIRS", "BUDGET"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    materials.hush()
    if options.grow:
        grow(*options.grow)
        return
    sizes, rounds = ((8, 16, 64), 1) if options.quick else ((PLAIN, FITS, LARGE), options.rounds)
    budget = padded_tokens(pairs(load(), sizes[0]))
    ours, theirs = peak_bytes(sizes[2], budget), peak_bytes(sizes[0], None)
    case = f"peak of {sizes[2]} in chunks of {budget} tokens / {sizes[0]} padded"
    memory = Line("P6", case, "MiB", ours / 2**20, theirs / 2**20, ours / theirs, "<= 1.2x")
    times = race(sizes, budget, rounds, CLOCKS[options.clock])
    report(f"Contrastive batches on MiniLM, {options.clock} time", [memory, *times], options.output)


if __name__ == "__main__":
    main()
