"""The text that the benchmarks work on: real where SHARED_DATA has it, else invented."""

import gzip
import json
import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()


def shared_data() -> Path | None:
    """The folder with real texts, if there is one."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def documents(count: int, words: int = 2_100) -> Iterator[str]:
    """Long documents, of which ``data=text`` with its default spans drops none."""
    shared = shared_data()
    if shared is None:
        return (invented(number, words) for number in range(count))
    return islice(_texts(sorted((shared / "train" / "longdocs").glob("train-open-0*.jsonl.gz"))), count)


def sentences(count: int) -> list[str]:
    """Single sentences, as they come."""
    shared = shared_data()
    if shared is None:
        return [invented(number, random.Random(number).randint(5, 40)) for number in range(count)]
    with gzip.open(shared / "train" / "sentences.txt.gz", "rt", encoding="utf-8") as lines:
        return [line.strip() for line in islice(lines, count)]


def questions(count: int) -> list[tuple[str, str]]:
    """Questions with their answers."""
    shared = shared_data()
    if shared is None:
        return [(invented(number, 9), invented(number + count, 90)) for number in range(count)]
    with gzip.open(shared / "train" / "qa_pairs.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = (json.loads(line) for line in islice(lines, 0, 40 * count, 40))
        return [(row["question"], row["answer"]) for row in rows]


def write_documents(path: Path, count: int) -> Path:
    """A .txt file with a document per line."""
    path.write_text("".join(" ".join(text.split()) + "\n" for text in documents(count)), encoding="utf-8")
    return path


def invented(seed: int, words: int) -> str:
    """Words of one to four syllables, the same for the same seed."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(words))


def _texts(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line)["text"] for line in lines)
