"""Sample continuations of many prompts at once, each a function of (seed, prompt, sample) alone."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from contracts import InputError
from synthesis.decoding.batch import NONE, Batch, Sample
from synthesis.decoding.continuations import Decoding, Prompt, Sampled, Statistics, Text
from synthesis.decoding.endings import Endings
from synthesis.decoding.generator import Generator
from synthesis.decoding.prefill import prefill
from synthesis.decoding.sampling import Candidates, digest, uniforms

__all__ = ["Decoding", "Prompt", "Sampled", "Statistics", "decode"]


def decode(
    generator: Generator,
    prompts: Iterator[Prompt | None],
    how: Decoding,
    statistics: Statistics | None = None,
) -> Iterator[Sampled]:
    """Every sample of every prompt, in the order in which they finish.

    Prompts are pulled when there is room for them, so any number of them runs in constant memory. The iterator may
    yield None for "nothing now": it is asked again after the next sample came out (for retries that depend on what
    came); None while nothing is under way ends the decoding.

    Raises:
        InputError: a setting is out of its range, or the model's logits are not finite.
    """
    check_decoding(how)
    statistics = Statistics() if statistics is None else statistics
    batch = Batch(generator, how, statistics)
    intake = Intake(generator, prompts, how, batch, statistics)
    endings = Endings(generator, how)
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


class Intake:
    """Pulls prompts, runs them through the model and draws the first token of each of their samples."""

    def __init__(
        self,
        generator: Generator,
        prompts: Iterator[Prompt | None],
        how: Decoding,
        batch: Batch,
        statistics: Statistics,
    ) -> None:
        self.generator, self.prompts, self.how, self.batch, self.statistics = generator, prompts, how, batch, statistics
        self.open = True  # False: exhausted, or nothing until another sample came out
        self.exhausted = False

    def counted(self, came: list[Sampled]) -> Iterator[Sampled]:
        """Hand out what came; whoever takes it may have more prompts then."""
        for one in came:
            self.statistics.samples += 1
            self.statistics.tokens += one.tokens
            yield one
        self.open = not self.exhausted and (self.open or bool(came))

    @torch.inference_mode()
    def pull(self) -> tuple[list[Sample], list[Sampled]]:
        """Samples for about as many rows as the batch has, their first token drawn; and those that have no room."""
        pulled = self._prompts()
        texts = list(dict.fromkeys(text for prompt in pulled for text in (prompt.text, *prompt.counters)))
        ids_of = dict(zip(texts, self.generator.encode(texts) if texts else [], strict=True))
        rejected: list[Sampled] = []
        fitting: list[tuple[Prompt, int]] = []
        for prompt in pulled:
            longest = max(len(ids_of[text]) for text in (prompt.text, *prompt.counters))
            why = _no_room(longest, min(len(ids_of[text]) for text in (prompt.text, *prompt.counters)), self.generator)
            rejected.extend(Sampled(prompt, sample, "", False, 0, why) for sample in prompt.samples if why)
            if not why:
                fitting.append((prompt, min(self.how.max_new_tokens, self.generator.context - longest)))
        return self._begin(fitting, ids_of) if fitting else [], rejected

    def _prompts(self) -> list[Prompt]:
        """Enough for every row of the batch."""
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

    def _begin(self, fitting: list[tuple[Prompt, int]], ids_of: dict[Text, list[int]]) -> list[Sample]:
        wanted = {text: ids_of[text] for prompt, _ in fitting for text in (prompt.text, *prompt.counters)}
        places, real, padded = prefill(self.generator, wanted)
        self.statistics.prompts += len(fitting)
        self.statistics.prompt_tokens += real
        self.statistics.padded_prompt_tokens += padded
        rows_of = {text: row for row, text in enumerate(places)}
        logits_RV = torch.stack([place.shared.logits_RV[place.row] for place in places.values()])
        width = 1 + max(len(prompt.counters) for prompt, _ in fitting)
        rows_PC = np.full((len(fitting), width), NONE)
        for row, (prompt, _) in enumerate(fitting):
            rows_PC[row, : 1 + len(prompt.counters)] = [rows_of[text] for text in (prompt.text, *prompt.counters)]
        found = self.batch.draw.candidates(logits_RV, rows_PC, [prompt for prompt, _ in fitting])
        samples, of = [], []
        for row, (prompt, limit) in enumerate(fitting):
            held = [places[text] for text in (prompt.text, *prompt.counters)]
            columns = limit + max(len(ids_of[text]) for text in (prompt.text, *prompt.counters))
            uniform = uniforms(digest(self.how.seed, prompt.key), prompt.samples, limit)
            for place, number in enumerate(prompt.samples):
                samples.append(Sample(prompt, number, held, ids_of[prompt.text][-1], uniform[place], limit, columns))
                of.append(row)
        chosen = torch.tensor(of, device=found.ids_RK.device)
        for sample, token in zip(
            samples, self.batch.draw.tokens(Candidates(*(part[chosen] for part in found)), samples), strict=True
        ):
            sample.tokens.append(token)
        return samples


def _no_room(longest: int, shortest: int, generator: Generator) -> str:
    """Why a prompt cannot be continued; empty where it can."""
    if not shortest:
        return "the prompt or a counter prompt is empty"
    if longest < generator.context:
        return ""
    return f"the prompt has {longest} tokens, and the context of {generator.name} is {generator.context}"


def check_decoding(how: Decoding) -> None:
    """InputError where a setting is out of its range."""
    wanted = {
        "max_new_tokens": (how.max_new_tokens >= 1, "at least 1"),
        "top_p": (how.top_p is None or 0 <= how.top_p <= 1, "0..1, or null for none"),
        "top_k": (how.top_k is None or how.top_k >= 0, "a number of tokens, or 0 for all"),
        "temperature": (0 < how.temperature < math.inf, "more than 0"),
        "stop": (bool(how.stop) or not how.ban_eos, "the string that ends a sentence"),
        "rows": (how.rows is None or how.rows >= 1, "at least 1"),
        "token_budget": (how.token_budget >= 1, "at least 1"),
    }
    for name, (right, what) in wanted.items():
        if not right:
            raise InputError(f"{name}={getattr(how, name)}: wanted {what}.")
