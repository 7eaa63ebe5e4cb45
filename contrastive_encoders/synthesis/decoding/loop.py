"""The decoding loop, which samples continuations of many prompts. Each depends only on (seed, prompt, sample).

A prompt and its counter prompts are run through the model once, for all samples that continue them. Each sample then
uses one row of the cache for its prompt and one for each counter prompt. Finished samples are removed immediately, and
new samples take their rows. The last rows are moved to rows that are still free, so that every row of a forward pass
belongs to an active sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.synthesis.decoding.caches import PrefillOutput
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding, Prompt, PromptText, Statistics
from contrastive_encoders.synthesis.decoding.generator import Generator, batch_by_length, not_finite_error
from contrastive_encoders.synthesis.decoding.sampling import (
    TokenCandidates,
    candidates,
    digest,
    pick,
    self_debias,
    uniforms,
)

# Axes: S samples, R rows, C counter prompts (maximum over the samples), V vocabulary, T columns
NO_ROW = -1  # no such row
DEFAULT_ROWS = {"cpu": 128}  # defaults; on a CPU, matmuls do not get faster per row above this


class PrefillRow(NamedTuple):
    """Reference to the keys, values, and logits of a prompt: the output of a forward pass, and a row of this output."""

    shared: PrefillOutput
    row: int


@dataclass
class Sample:
    """A continuation in progress."""

    prompt: Prompt
    number: int
    places: list[PrefillRow]  # of the prompt and its counter prompts; empty after they joined the batch
    before: int  # last token of the prompt
    uniform: np.ndarray  # (max_new_tokens,) float64
    limit: int  # maximum number of tokens to draw
    columns: int  # maximum number of cache columns that one of its rows may use
    tokens: list[int] = field(default_factory=list)
    finished: bool = False


def decode(
    generator: Generator,
    prompts: Iterator[Prompt | None],
    how: Decoding,
    statistics: Statistics | None = None,
) -> Iterator[Continuation]:
    """Sample continuations of all prompts, and yield each as soon as it is finished.

    Prompts are requested when rows of the batch are free, so memory does not depend on the number of prompts. The
    iterator may yield None for "nothing yet", for instance if retries depend on earlier results. It is then asked
    again after the next finished sample. If it yields None while no sample is in progress, decoding ends.

    Raises:
        InputError: The model's logits are not finite.
    """
    batch = Batch(generator, how, Statistics() if statistics is None else statistics)
    intake = PromptIntake(prompts, batch)
    endings = StopCriteria(generator, how)
    waiting: list[Sample] = []
    while True:
        while not waiting and intake.open:
            begun, rejected = intake.pull()
            came = [ended for sample in begun if (ended := endings.of(sample))]
            waiting = [sample for sample in begun if not sample.finished]
            yield from intake.counted([*rejected, *came])
        batch.admit(batch.take(waiting))
        if not batch.samples:
            return
        batch.step()
        came = [ended for sample in batch.samples if (ended := endings.of(sample))]
        batch.remove([sample.finished for sample in batch.samples])
        yield from intake.counted(came)


class PromptIntake:
    """Source of new samples, which requests prompts, runs them through the model, and draws each sample's first
    token.
    """

    def __init__(self, prompts: Iterator[Prompt | None], batch: "Batch") -> None:
        self.prompts, self.batch = prompts, batch
        self.generator, self.how, self.statistics = batch.generator, batch.how, batch.statistics
        self.open = True  # False: exhausted, or no prompts until another sample finishes
        self.exhausted = False

    def counted(self, came: list[Continuation]) -> Iterator[Continuation]:
        """Yield the continuations, and count them. Their consumer may then provide more prompts."""
        for one in came:
            self.statistics.samples += 1
            self.statistics.tokens += one.tokens
            yield one
        self.open = not self.exhausted and (self.open or bool(came))

    @torch.inference_mode()
    def pull(self) -> tuple[list[Sample], list[Continuation]]:
        """Request prompts, and return two lists: the new samples, each with its first token, and the empty
        continuations of the samples whose prompts cannot be continued.

        The samples need about as many rows as the batch has.
        """
        pulled = self._prompts()
        texts = list(dict.fromkeys(text for prompt in pulled for text in prompt.texts))
        ids_of = dict(zip(texts, self.generator.encode(texts) if texts else [], strict=True))
        rejected: list[Continuation] = []
        fitting: list[tuple[Prompt, int]] = []
        for prompt in pulled:
            lengths = [len(ids_of[text]) for text in prompt.texts]
            why = _no_room(max(lengths), min(lengths), self.generator)
            rejected.extend(Continuation(prompt, sample, "", False, 0, why) for sample in prompt.samples if why)
            if not why:
                fitting.append((prompt, min(self.how.max_new_tokens, self.generator.context - max(lengths))))
        return self._begin(fitting, ids_of) if fitting else [], rejected

    def _prompts(self) -> list[Prompt]:
        """Request prompts until their samples need as many rows as the batch has, or until no prompt is available."""
        pulled: list[Prompt] = []
        rows = 0
        while rows < self.batch.limit:
            try:
                prompt = next(self.prompts)
            except StopIteration:
                self.open, self.exhausted = False, True
                break
            if prompt is None:
                self.open = False
                break
            if not prompt.samples:
                continue
            pulled.append(prompt)
            rows += len(prompt.samples) * (1 + len(prompt.counters))
        return pulled

    def _begin(self, fitting: list[tuple[Prompt, int]], ids_of: dict[PromptText, list[int]]) -> list[Sample]:
        self.statistics.prompts += len(fitting)
        places = self._prefill({text: ids_of[text] for prompt, _ in fitting for text in prompt.texts})
        rows_of = {text: row for row, text in enumerate(places)}
        logits_RV = torch.stack([place.shared.logits_RV[place.row] for place in places.values()])
        width = 1 + max(len(prompt.counters) for prompt, _ in fitting)
        rows_PC = np.full((len(fitting), width), NO_ROW)
        for row, (prompt, _) in enumerate(fitting):
            rows_PC[row, : 1 + len(prompt.counters)] = [rows_of[text] for text in prompt.texts]
        found = self.batch.draw.candidates(logits_RV, rows_PC, [prompt for prompt, _ in fitting])
        samples, of = [], []
        for row, (prompt, limit) in enumerate(fitting):
            held = [places[text] for text in prompt.texts]
            columns = limit + max(len(ids_of[text]) for text in prompt.texts)
            uniform = uniforms(digest(self.how.seed, prompt.key), prompt.samples, limit)
            for place, number in enumerate(prompt.samples):
                samples.append(Sample(prompt, number, held, ids_of[prompt.text][-1], uniform[place], limit, columns))
                of.append(row)
        chosen = torch.tensor(of, device=found.ids_RK.device)
        self.batch.draw.next_token(TokenCandidates(*(part[chosen] for part in found)), samples)
        return samples

    def _prefill(self, ids_of: dict[PromptText, list[int]]) -> dict[PromptText, PrefillRow]:
        """Run each distinct text through the model once, in batches of similar length."""
        places: dict[PromptText, PrefillRow] = {}
        for texts in batch_by_length(ids_of):
            shared = self.generator.begin([ids_of[text] for text in texts])
            places.update({text: PrefillRow(shared, row) for row, text in enumerate(texts)})
            lengths = [len(ids_of[text]) for text in texts]
            self.statistics.prompt_tokens += sum(lengths)
            self.statistics.padded_prompt_tokens += max(lengths) * len(texts) - sum(lengths)
        return places


def _no_room(longest: int, shortest: int, generator: Generator) -> str:
    """Return the reason why a prompt cannot be continued, or an empty string if it can be continued."""
    if not shortest:
        return "the prompt or a counter prompt is empty"
    if longest < generator.context:
        return ""
    return f"the prompt has {longest} tokens, and the context of {generator.name} is {generator.context}"


class TokenSampler:
    """Sampler that draws next tokens from logits."""

    def __init__(self, generator: Generator, how: Decoding) -> None:
        self.how, self.name = how, generator.name
        banned = {*generator.surplus, *(generator.eos if how.ban_eos else ())}
        self.banned = torch.tensor(sorted(banned), dtype=torch.long, device=generator.device)

    def candidates(self, logits_RV: Tensor, rows_SC: np.ndarray, prompts: Sequence[Prompt]) -> TokenCandidates:
        """Return the tokens that may be drawn for each of S samples. Modifies the logits in place.

        ``rows_SC`` contains the rows of ``logits_RV`` for each prompt and its counter prompts.
        """
        device = logits_RV.device
        if len(self.banned):
            logits_RV[:, self.banned] = -torch.inf
        rows = torch.from_numpy(rows_SC).to(device)
        decay_S2 = torch.tensor([(one.decay, one.epsilon) for one in prompts], dtype=torch.float64).to(device)
        log_p_SV = self_debias(
            logits_RV[rows[:, 0]], logits_RV[rows[:, 1:].clamp(min=0)], rows[:, 1:] != NO_ROW, *decay_S2.unbind(1)
        )
        return candidates(log_p_SV, top_k=self.how.top_k, top_p=self.how.top_p, temperature=self.how.temperature)

    def next_token(self, found: TokenCandidates, samples: Sequence[Sample]) -> None:
        """Draw one token for each sample, and append it to the sample."""
        uniform_S = torch.tensor([one.uniform[len(one.tokens)] for one in samples], dtype=torch.float64)
        tokens: list[int] = pick(found, uniform_S.to(found.ids_RK.device)).tolist()
        if min(tokens) < 0:
            raise not_finite_error(self.name)
        for sample, token in zip(samples, tokens, strict=True):
            sample.tokens.append(token)


class Batch:
    """Batch of samples that are decoded together.

    ``take`` chooses samples that fit into the batch, ``admit`` adds them, ``step`` draws a token for each sample, and
    ``remove`` removes finished samples.
    """

    def __init__(self, generator: Generator, how: Decoding, statistics: Statistics) -> None:
        self.generator, self.how, self.statistics = generator, how, statistics
        self.draw = TokenSampler(generator, how)
        self.cache = generator.new_cache()
        self.samples: list[Sample] = []
        self.rows_SC = np.zeros((0, 1), dtype=np.int64)  # NO_ROW if a sample has fewer counter prompts
        self.limit = how.decode_batch_size or DEFAULT_ROWS.get(generator.device.type, 256)

    def take(self, waiting: list[Sample]) -> list[Sample]:
        """Remove from ``waiting`` the samples that fit into the batch, and return them.

        If the batch is empty, at least one sample is returned.
        """
        rows = int((self.rows_SC != NO_ROW).sum())
        columns = max((one.columns for one in self.samples), default=0)
        joining, staying = [], []
        for one in waiting:
            more, wider = rows + len(one.places), max(columns, one.columns)
            if not rows or (more <= self.limit and more * wider <= self.how.kv_cache_tokens):
                rows, columns = more, wider
                joining.append(one)
            else:
                staying.append(one)
        waiting[:] = staying
        return joining

    @torch.inference_mode()
    def admit(self, joining: Sequence[Sample]) -> None:
        """Add samples, which already have their first token, to the batch. They reuse the cache rows of finished
        samples; if more rows are unused, later rows are moved there.
        """
        used = np.sort(self.rows_SC[self.rows_SC != NO_ROW])
        wanted = [place for sample in joining for place in sample.places]
        rows = len(used) + len(wanted)
        gaps = np.setdiff1d(np.arange(rows), used)  # the requested number, and one for each used row beyond it
        self._place(wanted, gaps[: len(wanted)])
        self._append(joining, gaps[: len(wanted)])
        target = gaps[len(wanted) :]
        source = used[len(used) - len(target) :]
        renamed = np.arange(max(self.cache.rows, rows))
        renamed[source] = target
        held = self.rows_SC != NO_ROW
        self.rows_SC[held] = renamed[self.rows_SC[held]]
        self.cache.move(source, target, rows)

    @torch.inference_mode()
    def step(self) -> None:
        """Draw the next token of every sample."""
        last_R = np.zeros(self.cache.rows, dtype=np.int64)
        held = self.rows_SC != NO_ROW
        owner_SC = np.broadcast_to(np.array([one.tokens[-1] for one in self.samples])[:, None], held.shape)
        last_R[self.rows_SC[held]] = owner_SC[held]
        cache = self.cache
        logits = self.generator.step(torch.from_numpy(last_R).to(self.generator.device), cache)
        cache.advance()
        self.statistics.steps += 1
        self.statistics.row_steps += cache.rows
        self.statistics.wasted_row_steps += cache.rows - int(held.sum())
        found = self.draw.candidates(logits, self.rows_SC, [one.prompt for one in self.samples])
        self.draw.next_token(found, self.samples)

    def remove(self, finished: Sequence[bool]) -> None:
        """Remove the finished samples. ``admit`` gives their rows to other samples."""
        keep = ~np.array(finished, dtype=bool)
        self.samples = [one for one, kept in zip(self.samples, keep, strict=True) if kept]
        self.rows_SC = self.rows_SC[keep]

    def _append(self, joining: Sequence[Sample], rows: np.ndarray) -> None:
        width = max([self.rows_SC.shape[1], *(len(sample.places) for sample in joining)])
        rows_SC = np.full((len(self.samples) + len(joining), width), NO_ROW)
        rows_SC[: len(self.samples), : self.rows_SC.shape[1]] = self.rows_SC
        given = 0
        for place, sample in enumerate(joining, start=len(self.samples)):
            rows_SC[place, : len(sample.places)] = rows[given : given + len(sample.places)]
            given += len(sample.places)
            sample.places = []  # releases the pass
        self.rows_SC = rows_SC
        self.samples.extend(joining)

    def _place(self, wanted: Sequence[PrefillRow], rows: np.ndarray) -> None:
        by_pass: dict[int, tuple[PrefillOutput, list[int], list[int]]] = {}
        for place, row in zip(wanted, rows.tolist(), strict=True):
            _, of, to = by_pass.setdefault(id(place.shared), (place.shared, [], []))
            of.append(place.row)
            to.append(row)
        for shared, of, to in by_pass.values():
            self.cache.join(shared, np.array(of), np.array(to))


class StopCriteria:
    """Conditions under which a sample is finished. Text is decoded only after tokens that can complete the stop
    string.
    """

    def __init__(self, generator: Generator, how: Decoding) -> None:
        self.generator, self.how = generator, how
        self.suspects: set[int] = set()
        for part in filter(None, (how.stop, how.abandon)):
            self.suspects.update(generator.tokens_with(part).nonzero()[:, 0].tolist())
        self.eos = set() if how.ban_eos else set(generator.eos)

    def of(self, sample: Sample) -> Continuation | None:
        """Mark a sample as finished and return its text, or return None if it needs more tokens."""
        text = ""
        last = sample.tokens[-1]
        ended = last in self.eos
        closed = ended and not self.how.stop
        if last in self.suspects:
            text, stop, _ = self._text(sample).partition(self.how.stop)
            closed = bool(stop)
            ended = ended or closed or (bool(self.how.abandon) and self.how.abandon in text)
        if not ended and len(sample.tokens) < sample.limit:
            return None
        sample.finished = True
        if not closed or not self.how.stop:
            text = self._text(sample)
        return Continuation(sample.prompt, sample.number, text, closed, len(sample.tokens))

    def _text(self, sample: Sample) -> str:
        ids = sample.tokens[:-1] if sample.tokens[-1] in self.eos else sample.tokens
        return self.generator.decode(sample.before, ids)
