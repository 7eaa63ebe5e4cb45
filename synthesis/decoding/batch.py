"""The samples under way: each holds a row of the cache for its prompt and one for each counter prompt.

Samples leave as soon as they are finished, and their rows are given to others at once; what then is still free is
filled with the last rows, so that every row of a forward pass belongs to a sample that needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from contracts import InputError
from synthesis.decoding.caches import Pass
from synthesis.decoding.continuations import Decoding, Prompt, Statistics
from synthesis.decoding.generator import Generator
from synthesis.decoding.prefill import Place
from synthesis.decoding.sampling import Candidates, candidates, pick
from synthesis.decoding.self_debiasing import self_debias

# Axes: S samples, R rows, C counter prompts (of the sample that has most), V vocabulary, T columns
NONE = -1  # no such row
ROWS = {"cpu": 128}  # by default; there a matrix product is no faster per row beyond


@dataclass
class Sample:
    """One continuation that is being drawn."""

    prompt: Prompt
    number: int
    places: list[Place]  # of the prompt and its counter prompts; empty once they are in the batch
    before: int  # last token of the prompt
    uniform: np.ndarray  # (max_new_tokens,) float64
    limit: int  # tokens that may be drawn
    columns: int  # of the cache, the most that one of its rows may come to hold
    tokens: list[int] = field(default_factory=list)
    finished: bool = False


class Drawing:
    """From logits to tokens, the same for the first token and all others."""

    def __init__(self, generator: Generator, how: Decoding) -> None:
        self.how, self.name = how, generator.name
        banned = {*generator.surplus, *(generator.eos if how.ban_eos else ())}
        self.banned = torch.tensor(sorted(banned), dtype=torch.long, device=generator.device)

    def candidates(self, logits_RV: Tensor, rows_SC: np.ndarray, prompts: Sequence[Prompt]) -> Candidates:
        """What may follow; ``rows_SC`` are the rows of each prompt and its counter prompts. Changes the logits."""
        device = logits_RV.device
        if len(self.banned):
            logits_RV[:, self.banned] = -torch.inf
        rows = torch.from_numpy(rows_SC).to(device)
        decay_S2 = torch.tensor([(one.decay, one.epsilon) for one in prompts], dtype=torch.float64).to(device)
        log_p_SV = self_debias(
            logits_RV[rows[:, 0]], logits_RV[rows[:, 1:].clamp(min=0)], rows[:, 1:] != NONE, *decay_S2.unbind(1)
        )
        return candidates(log_p_SV, top_k=self.how.top_k, top_p=self.how.top_p, temperature=self.how.temperature)

    def tokens(self, found: Candidates, samples: Sequence[Sample]) -> list[int]:
        """The next token of each sample."""
        uniform_S = torch.tensor([one.uniform[len(one.tokens)] for one in samples], dtype=torch.float64)
        tokens: list[int] = pick(found, uniform_S.to(found.ids_RK.device)).tolist()
        if min(tokens) < 0:
            raise InputError(
                f"generator={self.name}: its logits are not finite. In fp16 they overflow: take precision=bf16 or "
                "fp32; otherwise its weights are damaged."
            )
        return tokens


class Batch:
    """``take`` chooses who may join, ``admit`` gives rows, ``step`` draws a token for each sample."""

    def __init__(self, generator: Generator, how: Decoding, statistics: Statistics) -> None:
        self.generator, self.how, self.statistics = generator, how, statistics
        self.draw = Drawing(generator, how)
        self.cache = generator.new_cache()
        self.samples: list[Sample] = []
        self.rows_SC = np.zeros((0, 1), dtype=np.int64)  # NONE where a sample has fewer counter prompts
        self.limit = how.rows or ROWS.get(generator.device.type, 256)

    def take(self, waiting: list[Sample]) -> list[Sample]:
        """Those of ``waiting`` that there is room for now, taken out of it; at least one where the batch is empty."""
        rows = int((self.rows_SC != NONE).sum())
        columns = max((one.columns for one in self.samples), default=0)
        joining, staying = [], []
        for one in waiting:
            more, wider = rows + len(one.places), max(columns, one.columns)
            if not rows or (more <= self.limit and more * wider <= self.how.token_budget):
                rows, columns = more, wider
                joining.append(one)
            else:
                staying.append(one)
        waiting[:] = staying
        return joining

    @torch.inference_mode()
    def admit(self, joining: Sequence[Sample]) -> None:
        """Give rows to samples whose first token is drawn, and close the gaps that finished samples left."""
        used = np.sort(self.rows_SC[self.rows_SC != NONE])
        wanted = [place for sample in joining for place in sample.places]
        rows = len(used) + len(wanted)
        gaps = np.setdiff1d(np.arange(rows), used)  # as many as are wanted, and one for each used row beyond
        self._place(wanted, gaps[: len(wanted)])
        self._append(joining, gaps[: len(wanted)])
        target = gaps[len(wanted) :]
        source = used[len(used) - len(target) :]
        renamed = np.arange(max(self.cache.rows, rows))
        renamed[source] = target
        held = self.rows_SC != NONE
        self.rows_SC[held] = renamed[self.rows_SC[held]]
        self.cache.move(source, target, rows)

    @torch.inference_mode()
    def step(self) -> None:
        """One token more for every sample."""
        last_R = np.zeros(self.cache.rows, dtype=np.int64)
        held = self.rows_SC != NONE
        owner_SC = np.broadcast_to(np.array([one.tokens[-1] for one in self.samples])[:, None], held.shape)
        last_R[self.rows_SC[held]] = owner_SC[held]
        cache = self.cache
        logits = self.generator.step(torch.from_numpy(last_R).to(self.generator.device), cache)
        cache.advance()
        self.statistics.steps += 1
        self.statistics.row_steps += cache.rows
        self.statistics.wasted_row_steps += cache.rows - int(held.sum())
        found = self.draw.candidates(logits, self.rows_SC, [one.prompt for one in self.samples])
        for sample, token in zip(self.samples, self.draw.tokens(found, self.samples), strict=True):
            sample.tokens.append(token)

    def remove(self, finished: Sequence[bool]) -> None:
        """Take these samples out; ``admit`` gives their rows to others."""
        keep = ~np.array(finished, dtype=bool)
        self.samples = [one for one, kept in zip(self.samples, keep, strict=True) if kept]
        self.rows_SC = self.rows_SC[keep]

    def _append(self, joining: Sequence[Sample], rows: np.ndarray) -> None:
        width = max([self.rows_SC.shape[1], *(len(sample.places) for sample in joining)])
        rows_SC = np.full((len(self.samples) + len(joining), width), NONE)
        rows_SC[: len(self.samples), : self.rows_SC.shape[1]] = self.rows_SC
        given = 0
        for place, sample in enumerate(joining, start=len(self.samples)):
            rows_SC[place, : len(sample.places)] = rows[given : given + len(sample.places)]
            given += len(sample.places)
            sample.places = []  # the pass may be forgotten
        self.rows_SC = rows_SC
        self.samples.extend(joining)

    def _place(self, wanted: Sequence[Place], rows: np.ndarray) -> None:
        by_pass: dict[int, tuple[Pass, list[int], list[int]]] = {}
        for place, row in zip(wanted, rows.tolist(), strict=True):
            _, of, to = by_pass.setdefault(id(place.shared), (place.shared, [], []))
            of.append(place.row)
            to.append(row)
        for shared, of, to in by_pass.values():
            self.cache.join(shared, np.array(of), np.array(to))
