"""The text that the benchmarks work on: real where SHARED_DATA has it, else invented."""

import gzip
import json
import os
import random
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()


def shared_data() -> Path | None:
    """The folder with real texts, if there is one."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def documents(count: int) -> Iterator[str]:
    """Long documents, of which ``data=text`` with its default spans drops none."""
    shared = shared_data()
    if shared is None:
        return (invented(number, 2_100) for number in range(count))
    paths = sorted((shared / "train" / "longdocs").glob("train-open-0*.jsonl.gz"))
    return (json.loads(line)["text"] for line in islice(chain.from_iterable(map(_lines, paths)), count))


def sentences(count: int) -> list[str]:
    """Single sentences, as they come."""
    shared = shared_data()
    if shared is None:
        return [invented(number, random.Random(number).randint(5, 40)) for number in range(count)]
    return [line.strip() for line in islice(_lines(shared / "train" / "sentences.txt.gz"), count)]


def questions(count: int) -> list[tuple[str, str]]:
    """Questions with their answers."""
    shared = shared_data()
    if shared is None:
        return [(invented(number, 9), invented(number + count, 90)) for number in range(count)]
    rows = map(json.loads, islice(_lines(shared / "train" / "qa_pairs.jsonl.gz"), 0, 40 * count, 40))
    return [(row["question"], row["answer"]) for row in rows]


def entailments(count: int) -> list[tuple[str, str]]:
    """Premises with a hypothesis that follows."""
    shared = shared_data()
    if shared is None:
        draws = enumerate(random.Random(number) for number in range(count))
        return [(invented(2 * n, rng.randint(6, 30)), invented(2 * n + 1, rng.randint(4, 16))) for n, rng in draws]
    rows = map(json.loads, islice(_lines(shared / "train" / "triplets.jsonl.gz"), count))
    return [(row["premise"], row["entailment"]) for row in rows]


def invented(seed: int, words: int) -> str:
    """Words of one to four syllables, the same for the same seed."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(words))


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from lines
