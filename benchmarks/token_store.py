"""P21: a token store built by workers, against one process with the tokenizer's own threads, and with one thread.

    python -m benchmarks.token_store [--quick] [--megabytes 60] [--rounds 2] [--workers 2]

Real sentences of SHARED_DATA (invented ones without it), repeated with a number before each, MiniLM's WordPiece. Each
side is a process of its own, with a cache of its own; the stores must be equal. Wanted: 1.7 times one process.
"""

import tempfile
import time
from pathlib import Path

from benchmarks.materials import data_module, packaged_minilm
from benchmarks.sides import alternate, arguments, in_a_process, rates, report
from benchmarks.texts import sentences
from contrastive_encoders.io.manifest import sha256_of

# Side -> environment of its process
SIDES: dict[str, dict[str, str]] = {"workers": {}, "threads": {}, "one thread": {"RAYON_NUM_THREADS": "1"}}


def write_corpus(path: Path, megabytes: float) -> None:
    """Write so many megabytes of distinct sentences, a line each."""
    found, size, number = sentences(10_000), 0, 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            size += file.write(f"{number} {found[number % len(found)]}\n")
            number += 1


def build(corpus: Path, cache: Path, workers: int) -> None:
    """Build the store of a corpus below ``cache``."""
    data = data_module(
        "sentences", path=corpus, tokenizer=packaged_minilm(), cache_dir=cache, tokenizer_workers=workers
    )
    data.prepare_data()


def main() -> None:
    parser = arguments(__doc__, rounds=2)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--build", nargs=3, help="what a process of one side does: corpus, cache, workers")
    options = parser.parse_args()
    if options.build:
        build(Path(options.build[0]), Path(options.build[1]), int(options.build[2]))
        return
    megabytes = 1 if options.quick else options.megabytes
    with tempfile.TemporaryDirectory() as name:
        folder, sums = Path(name), set[tuple[str, ...]]()
        write_corpus(folder / "corpus.txt", megabytes)

        def seconds(side: str) -> float:
            cache = Path(tempfile.mkdtemp(dir=folder))
            words = ["--build", folder / "corpus.txt", cache, options.workers if side == "workers" else 1]
            start = time.perf_counter()
            in_a_process("benchmarks.token_store", *words, **SIDES[side])
            took = time.perf_counter() - start
            sums.add(tuple(sha256_of(path) for path in sorted(cache.rglob("*.bin"))))
            return took

        found = alternate(
            {side: lambda side=side: seconds(side) for side in SIDES}, 1 if options.quick else options.rounds
        )
    assert len(sums) == 1, "the stores differ"
    case = f"{megabytes:g} MB of sentences, {options.workers} workers against"
    lines = [
        rates("P21", f"{case} {other}", "MB/s", megabytes, [found["workers"], found[other]], ">= 1.7x")
        for other in ("threads", "one thread")
    ]
    report("A token store, wall time from start to exit", lines, options.output)


if __name__ == "__main__":
    main()
