"""The pairs of the supervised relatedness tasks under ``data_root``."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from contracts import InputError, PairTask
from evaluation.relatedness import Relatedness
from evaluation.task import Entry, Options
from evaluation.tsv import SENTEVAL, read_number, read_rows, read_text, table

# Score's beginning, its folder, the lowest rating, official rows of train, dev and test
_SETS = {"stsb": ("STSBenchmark", 0.0, (5749, 1500, 1379)), "sickr": ("SICK", 1.0, (4500, 500, 4927))}
# Protocol, and the correlation of the dev pairs by which it stops
_PROTOCOLS = {"regressor": "pearson", "regressor-spearman": "spearman"}
_SPLITS = {"train": "-train", "dev": "-dev", "test": ""}


def _entry(base: str, protocol: str) -> Entry:
    folder, _, counts = _SETS[base]
    rows = {f"{folder}/{split}": count for split, count in zip(_SPLITS, counts, strict=True)}
    return Entry(rows, _reader(base, protocol), senteval=True)


def _reader(base: str, protocol: str) -> Callable[[Path, str, Options], Relatedness]:
    def read(root: Path, name: str, options: Options) -> Relatedness:
        senteval = name.endswith(SENTEVAL)
        train, dev, test = (_read_pairs(root, base, split, senteval) for split in _SPLITS)
        return Relatedness(name, train, dev, test, protocol, _PROTOCOLS[protocol], options.seed)

    return read


def _read_pairs(root: Path, base: str, split: str, senteval: bool) -> PairTask:
    folder, low, _ = _SETS[base]
    path = table(root, f"{folder}/{split}", senteval)
    pairs = PairTask(f"{base}{_SPLITS[split]}{SENTEVAL if senteval else ''}", [], [], np.empty(0), [])
    gold = []
    for where, (left, right, score) in read_rows(path, ["sentence1", "sentence2", "score"]):
        pairs.left.append(read_text(where, "sentence1", left))
        pairs.right.append(read_text(where, "sentence2", right))
        gold.append(read_number(where, "score", score, low, 5))
        pairs.subsets.append(base)
    if not gold:
        raise InputError(f"{path}: a header but no rows; wanted sentence pairs with a score. Fetch or copy it again.")
    return pairs._replace(gold=np.array(gold))


ENTRIES: dict[str, Entry] = {f"{base}-regressor": _entry(base, "regressor") for base in _SETS}
# The same as SentEval's fork in SimCSE and GenSE has it
FORK_ENTRIES: dict[str, Entry] = {f"{base}-regressor-spearman": _entry(base, "regressor-spearman") for base in _SETS}
