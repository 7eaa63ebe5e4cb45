"""A small evaluation folder in the published layout, real data if available, and an encoder that is a function."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.embedders import OnTheCPU

SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


class BagOfWords(OnTheCPU):
    """Encoder by the mean of word embeddings, each drawn from the word's hash: equal in any batch and on any rank."""

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str], **_: object) -> Tensor:
        self.calls.append(list(texts))
        return torch.stack([torch.stack([self._word(word) for word in text.split()]).mean(0) for text in texts])

    def _word(self, word: str) -> Tensor:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
        return torch.from_numpy(np.random.default_rng(seed).standard_normal(self.width).astype(np.float32))


WORDS = "tea salt gull drum moss lamp rope fern coal bell kite plum sand wool reed jade".split()


def sentence_pairs(count: int, seed: int) -> Iterator[tuple[str, str, float]]:
    """Make pairs rated by the size of their overlap with some noise, on a grid of 0.2 so that there are ties."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        left = list(rng.choice(WORDS, size=6, replace=False))
        kept = int(rng.integers(0, 7))
        right = left[:kept] + list(rng.choice(WORDS, size=6 - kept))
        gold = float(np.clip(np.round((kept * 5 / 6 + rng.normal(0, 0.8)) * 5) / 5, 1, 5))
        yield " ".join(left), " ".join(right), gold


def write_tsv(path: Path, count: int, seed: int, subsets: Sequence[str] = ()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = [*(["subset"] if subsets else []), "sentence1", "sentence2", "score"]
    rows = [
        [*([subsets[min(i * i // count, len(subsets) - 1)]] if subsets else []), left, right, f"{gold:g}"]
        for i, (left, right, gold) in enumerate(sentence_pairs(count, seed))
    ]
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


@pytest.fixture
def bag_of_words() -> BagOfWords:
    return BagOfWords()


@pytest.fixture
def tsv() -> Callable[..., None]:
    return write_tsv


@pytest.fixture(scope="session")
def data_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("eval")
    for number in range(12, 17):
        write_tsv(root / f"STS{number}" / "test.tsv", 40 + number, number, ["forum", "news", "a.b"])
    write_tsv(root / "STS12" / "test.senteval.tsv", 52, 12, ["forum", "news", "a.b"])
    for split, count in (("dev", 30), ("test", 41)):
        write_tsv(root / "STSBenchmark" / f"{split}.tsv", count, count)
    for split, count in (("train", 25), ("dev", 10), ("test", 33)):
        write_tsv(root / "SICK" / f"{split}.tsv", count, count)
    return root


@pytest.fixture(scope="session")
def real_data() -> Path:
    root = SHARED / "eval"
    if not (root / "STS12").is_dir():
        pytest.skip(f"the published STS sets are not in {root}; set SHARED_DATA")
    return root
