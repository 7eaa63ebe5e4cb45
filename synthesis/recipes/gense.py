"""Triplets from a generator that is its own discriminator (Chen et al., EMNLP 2022): what is asked, and what comes out.

For every sentence and direction some candidates are written, and the model says of each whether it follows. All of that
is kept as one *scored row*; which rows become triplets is decided from them alone (`triplet_rules`), as often as one
likes. A candidate depends on (seed, place of the sentence, direction, candidate) alone, so shards, processes, batches
and the order of answers change nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypedDict

import torch

from contracts import InputError
from prompts import DIRECTIONS, Direction, PromptIds
from synthesis.decoding.continuations import Prompt, Sampled, Text
from synthesis.decoding.encoder_decoder import EncoderDecoder
from synthesis.decoding.generator import by_length
from synthesis.shards.store import LabelCounts

AT_ONCE = 256  # sentences tokenised together, and pairs scored together
DIGITS = 6  # of a probability as it is kept and compared; batches change more distant ones

Pair = tuple[str, str]  # premise, hypothesis


class Candidate(TypedDict):
    """One text that was written."""

    text: str
    p_true: float | None  # P("true") of {"true", "false"}, that it follows from the premise; None: it was not judged
    closed: bool  # it ended by itself, and was not cut after max_new_tokens


class ScoredRow(TypedDict):
    """A sentence and all that was written for it."""

    premise: str
    entailment: list[Candidate]
    contradiction: list[Candidate]


class Plan(NamedTuple):
    """How much is written, and how much of it is read. Published: 1 candidate, 96 and 128 tokens."""

    candidates: int = 1  # per direction
    max_source_tokens: int = 96  # of a sentence for which one is written
    max_pair_tokens: int = 128  # of either sentence of a pair that is judged

    def check(self) -> None:
        """InputError for settings that mean nothing."""
        for name, value in self._asdict().items():
            if value < 1:
                raise InputError(f"{name}={value}: wanted at least 1.")


class Discriminator:
    """P("true") that the second sentence of a pair follows from the first."""

    def __init__(self, generator: EncoderDecoder, ids: PromptIds, max_pair_tokens: int) -> None:
        self.generator, self.ids, self.most = generator, ids, max_pair_tokens
        self.answers = list(ids.answers())

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """One per pair; equal pairs are read once, pairs of similar length together."""
        wanted = list(dict.fromkeys(pairs))
        rows = self.ids.discrimination([one for one, _ in wanted], [other for _, other in wanted], self.most)
        ids_of: dict[Text, list[int]] = {tuple(ids): ids for ids in rows}
        found: dict[Text, float] = {}
        for texts in by_length(ids_of):
            logits_R2 = self.generator.first_logits([ids_of[text] for text in texts])[:, self.answers]
            for text, p in zip(texts, logits_R2.double().softmax(1)[:, 0].tolist(), strict=True):
                found[text] = p
        if any(p != p for p in found.values()):
            raise InputError(
                f"generator={self.generator.name}: its logits are not finite. In fp16 they overflow: take "
                "precision=bf16 or fp32; otherwise its weights are damaged."
            )
        of = {pair: round(found[tuple(ids)], DIGITS) for pair, ids in zip(wanted, rows, strict=True)}
        return [of[pair] for pair in pairs]


@dataclass
class Row:
    """A sentence under way."""

    place: int
    premise: str
    shard: "GenseShard"
    open: int  # candidates that have not come yet
    texts: dict[Direction, list[Any]] = field(default_factory=dict)  # (text, closed) by candidate

    def pairs(self) -> list[Pair]:
        return [(self.premise, text) for direction in DIRECTIONS for text, _ in self.texts[direction]]


@dataclass
class GenseShard:
    """A shard under way."""

    number: int
    first: int
    units: int = 0
    tokens: int = 0
    whole: bool = False  # all of its sentences have begun
    open: int = 0  # sentences that are not scored yet
    rows: dict[int, ScoredRow] = field(default_factory=dict)

    def entries(self) -> Iterator[ScoredRow]:
        for place in sorted(self.rows):
            yield self.rows[place]

    def counts(self) -> dict[str, LabelCounts]:
        counts: dict[str, LabelCounts] = {}
        for direction in DIRECTIONS:
            candidates = [one for row in self.rows.values() for one in row[direction]]
            counts[direction] = LabelCounts(samples=len(candidates), accepted=len(candidates), rejected={})
        return counts


class GenseJob:
    """Prompts for shards that are missing, and scored rows from the answers. Holds only what is under way."""

    def __init__(
        self,
        sentences: Iterable[str],
        ids: PromptIds,
        score: Callable[[Sequence[Pair]], list[float]],
        plan: Plan,
        shard_size: int,
        missing: Iterable[int],
    ) -> None:
        self.ids, self.score, self.plan = ids, score, plan
        self.rows: dict[int, Row] = {}
        self.unscored: list[Row] = []
        self.groups_done = 0
        self.new = self._begin(sentences, shard_size, set(missing))

    def prompts(self) -> Iterator[Prompt]:
        while rows := list(islice(self.new, AT_ONCE)):
            written = [
                self.ids.generation(direction, [row.premise for row in rows], self.plan.max_source_tokens)
                for direction in DIRECTIONS
            ]
            for row, *ids in zip(rows, *written, strict=True):
                self.rows[row.place] = row
                for direction, one in zip(DIRECTIONS, ids, strict=True):
                    yield Prompt((row.place, direction), tuple(one), samples=range(self.plan.candidates))

    def take(self, sampled: Sampled) -> Iterator[GenseShard]:
        """The shards that are finished now: pairs are scored when there are enough of them."""
        place, direction = sampled.prompt.key
        row = self.rows[int(place)]
        row.texts[direction][sampled.sample] = (sampled.text.strip(), sampled.closed)  # type: ignore[index]
        row.shard.tokens += sampled.tokens
        row.open -= 1
        if row.open == 0:
            self.unscored.append(self.rows.pop(row.place))
            self.groups_done += len(DIRECTIONS)
        if len(self.unscored) * len(DIRECTIONS) * self.plan.candidates >= AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[GenseShard]:
        """Score what is left."""
        p_true = iter(self.score([pair for row in self.unscored for pair in row.pairs()]))
        for row in self.unscored:
            scored: dict[str, Any] = {"premise": row.premise}
            for direction in DIRECTIONS:
                scored[direction] = [
                    Candidate(text=text, p_true=next(p_true), closed=closed) for text, closed in row.texts[direction]
                ]
            row.shard.rows[row.place] = scored  # type: ignore[assignment]
            row.shard.open -= 1
        done = {row.shard.number: row.shard for row in self.unscored if row.shard.whole and not row.shard.open}
        self.unscored.clear()
        yield from done.values()

    def _begin(self, sentences: Iterable[str], shard_size: int, missing: set[int]) -> Iterator[Row]:
        """Rows in order. A shard is told that no more will come before its last row is handed out."""
        last = max(missing, default=-1)
        held: Row | None = None
        for place, sentence in enumerate(sentences):
            number = place // shard_size
            if number > last:
                break
            if number not in missing:
                continue
            if held is not None:
                held.shard.whole = held.shard.number != number
                yield held
            shard = held.shard if held is not None and held.shard.number == number else GenseShard(number, first=place)
            texts: dict[Direction, list[Any]] = {direction: [None] * self.plan.candidates for direction in DIRECTIONS}
            held = Row(place, sentence, shard, len(DIRECTIONS) * self.plan.candidates, texts)
            shard.units += 1
            shard.open += 1
        if held is not None:
            held.shard.whole = True
            yield held
