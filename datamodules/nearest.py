"""The nearest texts of a corpus by cosine: all compared, or those that an index of faiss finds.

Shape letters: C texts of the corpus, D width, B rows that are asked for, K texts of the corpus at a time, W answers.
"""

import re
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from contracts import InputError

TEXTS_AT_ONCE = 65_536  # 256 MiB of cosines with 1,024 rows
TO_TRAIN = 200_000  # vectors from which an index learns its cells, drawn by the seed
AGAIN_AT_ONCE = 64  # rows whose answers are compared anew: 64 * W vectors are in memory


class NearestSearch(Protocol):
    """``search(rows_BD, wanted)`` -> (B, W) cosines, the largest first, and places of their texts; -1: none."""

    def __call__(self, rows_BD: Tensor, wanted: int) -> tuple[Tensor, Tensor]: ...


class ExactSearch:
    """Every text is compared, in float32 on ``device``. The vectors (C, D) may be a map of a file."""

    def __init__(self, corpus_CD: np.ndarray, device: str) -> None:
        self.corpus_CD, self.device = corpus_CD, device

    def __call__(self, rows_BD: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
        scores = rows_BD.new_empty(len(rows_BD), 0)
        places = torch.empty(len(rows_BD), 0, dtype=torch.int64, device=self.device)
        for first in range(0, len(self.corpus_CD), TEXTS_AT_ONCE):
            cosines_BK = rows_BD @ unit(self.corpus_CD[first : first + TEXTS_AT_ONCE], self.device).T
            best = cosines_BK.topk(min(wanted, cosines_BK.shape[1]))
            scores, places = torch.cat([scores, best.values], 1), torch.cat([places, best.indices + first], 1)
            scores, order = scores.topk(min(wanted, scores.shape[1]))
            places = places.gather(1, order)
        return scores, places


class IndexSearch:
    """Those that an index of faiss finds, on the CPU; their cosines are computed anew, so that they are exact.

    ``factory`` describes the index as faiss does (``IVF4096``, with whole vectors, or ``HNSW32``), ``effort`` is how
    much of it is looked at: cells (``nprobe``), or candidates where it is a graph (``efSearch``).

    Raises:
        InputError: faiss does not know what was said, or has too few texts for it.
    """

    def __init__(self, corpus_CD: np.ndarray, factory: str, effort: int | None, seed: int) -> None:
        import faiss

        self.corpus_CD = corpus_CD
        try:
            cells = re.fullmatch(r"IVF\d+", factory)
            whole = f"{factory},Flat" if cells else factory  # a word of a command line has no comma
            self.index: Any = faiss.index_factory(corpus_CD.shape[1], whole, faiss.METRIC_INNER_PRODUCT)
            if not self.index.is_trained:
                drawn = np.random.default_rng(seed).permutation(len(corpus_CD))[:TO_TRAIN]
                self.index.train(self._rows(np.sort(drawn)))
            if effort is not None:
                name = "efSearch" if "IVF" not in factory else "nprobe"
                faiss.ParameterSpace().set_index_parameter(self.index, name, effort)
        except RuntimeError as error:
            said = str(error).strip().splitlines()[-1].rpartition("failed: ")[2] or "no reason"
            raise InputError(
                f"index={factory} index_effort={effort}: faiss refuses it for {len(corpus_CD)} texts ({said}). Wanted "
                "IVF1024 or HNSW32, say, the cells about as many as the square root of the texts; index=null "
                "compares every text."
            ) from None
        for first in range(0, len(corpus_CD), TEXTS_AT_ONCE):
            self.index.add(self._rows(np.arange(first, min(first + TEXTS_AT_ONCE, len(corpus_CD)))))

    def __call__(self, rows_BD: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
        _, found = self.index.search(rows_BD.cpu().numpy(), wanted)
        parts = [
            self._again(rows_BD.cpu()[at : at + AGAIN_AT_ONCE], found[at : at + AGAIN_AT_ONCE])
            for at in range(0, len(found), AGAIN_AT_ONCE)
        ]
        scores, places = (torch.cat(one) for one in zip(*parts, strict=True))
        return scores, places

    def _again(self, rows_BD: Tensor, found_BW: np.ndarray) -> tuple[Tensor, Tensor]:
        places = torch.from_numpy(found_BW)
        texts_BWD = unit(self.corpus_CD[found_BW.clip(0)], "cpu")
        cosines = torch.einsum("bd,bwd->bw", rows_BD, texts_BWD).masked_fill(places < 0, -torch.inf)
        scores, order = cosines.sort(descending=True, stable=True)
        return scores, places.gather(1, order)

    def _rows(self, places: np.ndarray) -> np.ndarray:
        rows: np.ndarray = unit(self.corpus_CD[places], "cpu").numpy()
        return rows


def unit(vectors: np.ndarray, device: str) -> Tensor:
    """The same at length 1, in float32."""
    return normalize(torch.from_numpy(np.array(vectors, np.float32)).to(device), dim=-1)
