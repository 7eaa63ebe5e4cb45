"""What lies nearest to ten sentences while an encoder learns: numbers that a person can read."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contracts import Embedder
from evaluation.task import EMPTY, Task
from evaluation.vectors import Pool, Prompted, embed_pool, unit_rows

SENTENCES, POOL, NEAREST = 10, 1000, 3
MOST_STEPS = 100  # that are kept; beyond, every second one goes
CHARACTERS = 300  # of a text that are kept


class Near(NamedTuple):
    text: str
    cosine: float


class Neighbours:
    """``history``: step -> for each of ``sentences`` what lies nearest to it, the nearest first.

    Sentences and the pool that they are looked for in are drawn from the texts of the tasks, the same for every run.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        lists = [texts for task in tasks for texts in task.texts()]
        plain = [texts for texts in lists if not isinstance(texts, Prompted) or texts.prompt is None]
        distinct = sorted({text for texts in plain for text in texts if text.strip() not in ("", EMPTY)})
        drawn = np.random.default_rng(0).permutation(len(distinct))[:POOL]
        self.pool = [distinct[place] for place in drawn]  # the sentences first
        self.sentences = [text[:CHARACTERS] for text in self.pool[:SENTENCES]]
        self.history: dict[int, list[list[Near]]] = {}
        self._vectors: dict[str, Tensor] = {}

    def take(self, pool: Pool) -> None:
        """Vectors of this moment that a suite has computed anyway."""
        self._vectors.update({text: pool.vectors_UD[pool.row_of[text]] for text in self.pool if text in pool.row_of})

    def record(self, step: int, embedder: Embedder) -> None:
        """Look for them now; what nobody has embedded is embedded here. All ranks must call it."""
        if len(self.pool) < 2:
            return
        if lacking := [text for text in self.pool if text not in self._vectors]:
            self.take(embed_pool(embedder, [lacking]))
        vectors_ND = unit_rows(torch.stack([self._vectors[text] for text in self.pool]))
        cosines_SN = vectors_ND[: len(self.sentences)] @ vectors_ND.T
        cosines_SN.fill_diagonal_(-torch.inf)  # itself
        found_SN = torch.argsort(cosines_SN, descending=True, stable=True)[:, : min(NEAREST, len(self.pool) - 1)]
        self.history[step] = [
            [Near(self.pool[place][:CHARACTERS], round(float(cosines_SN[row, place]), 4)) for place in places]
            for row, places in enumerate(found_SN.tolist())
        ]
        self._vectors.clear()
        if len(self.history) > MOST_STEPS:
            for known in sorted(self.history)[1:-1:2]:
                del self.history[known]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that a run that goes on from it has what came before, and nothing else."""
        return {
            "sentences": self.sentences,
            "history": {step: [[tuple(one) for one in near] for near in found] for step, found in self.history.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("sentences") == self.sentences:  # else the texts have changed since
            self.history = {
                step: [[Near(*one) for one in near] for near in found] for step, found in state["history"].items()
            }
