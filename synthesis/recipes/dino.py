"""Texts from instructions (Schick and Schuetze 2021): what is asked of the model, and which answers are taken.

A unit is one input and the labels to write for; a group is one of its labels, with as many samples as are wanted. A
shard is done when all groups of its units are. Which samples a group asks for depends on its own answers alone, so
shards, processes and the order of answers change nothing.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from contracts import InputError
from synthesis.decoding.continuations import Prompt, Sampled
from synthesis.recipes.spec import Label, TaskSpec
from synthesis.rules.filters import DUPLICATE, NO_ROOM, Filters
from synthesis.shards.store import Entry, LabelCounts


class Unit(NamedTuple):
    """What one input asks for."""

    place: int  # of the input; it decides the random numbers
    x1: str | None  # None: it is what is written
    labels: tuple[Label, ...]


class Plan(NamedTuple):
    """How many samples, and which are taken.

    ``overgenerate`` draws ``per_label`` samples at once and takes all that pass; ``retry`` draws until ``per_label``
    different ones have passed, or ``max_tries`` were drawn.
    """

    strategy: Literal["overgenerate", "retry"] = "overgenerate"
    per_label: int = 5
    max_tries: int = 5
    decay: float = 100.0
    epsilon: float = 0.01
    filters: Filters = Filters()

    def check(self) -> None:
        """InputError for settings that mean nothing."""
        self.filters.check()
        if self.per_label < 1:
            raise InputError(f"per_label={self.per_label}: wanted at least 1 sample per input and label.")
        if self.strategy == "retry" and self.max_tries < self.per_label:
            raise InputError(
                f"max_tries={self.max_tries} is less than per_label={self.per_label}: so many can never be accepted. "
                "Raise max_tries."
            )
        if not 0 <= self.decay < math.inf:
            raise InputError(f"decay={self.decay}: wanted 0 (no self-debiasing) or more. Published is 100.")
        if not 0 <= self.epsilon <= 1:
            raise InputError(f"epsilon={self.epsilon}: wanted 0 to 1. Published is 0.01.")


def x1_units(spec: TaskSpec, number: int) -> Iterator[Unit]:
    """``number`` first sentences, each by one instruction, in turn: any number of them is split evenly."""
    for place in range(number):
        yield Unit(place // len(spec.labels), None, (spec.labels[place % len(spec.labels)],))


def x2_units(spec: TaskSpec, texts: Iterable[str]) -> Iterator[Unit]:
    for place, text in enumerate(texts):
        yield Unit(place, text, spec.labels)


@dataclass
class Shard:
    """A shard under way."""

    number: int
    first: int
    units: int = 0
    whole: bool = False  # all of its groups have begun
    groups: list["Group"] = field(default_factory=list)
    open_groups: int = 0
    tokens: int = 0

    def entries(self) -> Iterator[Entry]:
        for group in self.groups:
            yield from group.entries()

    def counts(self) -> dict[str, LabelCounts]:
        labels: dict[str, LabelCounts] = {}
        for group in self.groups:
            sums = labels.setdefault(group.label.name, LabelCounts(samples=0, accepted=0, rejected={}))
            sums["samples"] += group.tried
            sums["accepted"] += len(group.accepted)
            sums["rejected"] = dict(Counter(sums["rejected"]) + group.rejected)
        return labels


@dataclass
class Group:
    """The samples of one input and label."""

    unit: Unit
    label: Label
    shard: Shard
    plan: Plan
    tried: int = 0  # samples asked for so far
    outstanding: int = 0
    came: list[Sampled] = field(default_factory=list)  # of this round
    accepted: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    def next_samples(self) -> range:
        """What is still to be drawn; empty where the group is done."""
        limit = self.plan.max_tries if self.plan.strategy == "retry" else self.plan.per_label
        return range(self.tried, min(self.tried + self.plan.per_label - len(self.accepted), limit))

    def begin(self, spec: TaskSpec, samples: range) -> Prompt:
        self.tried, self.outstanding = samples.stop, len(samples)
        label, x1, plan = self.label, self.unit.x1, self.plan
        return Prompt(
            key=self.key(),
            text=spec.prompt(label, x1),
            counters=spec.counter_prompts(label, x1),
            decay=plan.decay if label.decay is None else label.decay,
            epsilon=plan.epsilon if label.epsilon is None else label.epsilon,
            samples=samples,
        )

    def key(self) -> tuple[int | str, ...]:
        return ("x1" if self.unit.x1 is None else "x2", self.unit.place, self.label.name)

    def judge(self) -> bool:
        """Take or reject what came in this round, in the order of the samples; whether more is to be drawn."""
        filters = self.plan.filters
        only_new = filters.drop_duplicates or self.plan.strategy == "retry"
        hopeless = False
        for sampled in sorted(self.came, key=lambda one: one.sample):
            hopeless = hopeless or bool(sampled.rejected)
            why = NO_ROOM if sampled.rejected else filters.rejected(sampled.text, sampled.closed, self.unit.x1)
            if not why and only_new and sampled.text in self.accepted:
                why = DUPLICATE
            if why:
                self.rejected[why] += 1
            else:
                self.accepted.append(sampled.text)
        self.came.clear()
        return self.plan.strategy == "retry" and not hopeless and len(self.next_samples()) > 0

    def entries(self) -> Iterator[Entry]:
        for text in self.accepted:
            if self.unit.x1 is None:
                yield Entry(text_a=text, text_b=None, label=self.label.name)
            else:
                yield Entry(text_a=self.unit.x1, text_b=text, label=self.label.name)


class Job:
    """Prompts for shards that are missing, and shards from the answers. Holds no more than what is under way."""

    def __init__(
        self, spec: TaskSpec, plan: Plan, units: Iterable[Unit], shard_size: int, missing: Iterable[int]
    ) -> None:
        self.spec, self.plan = spec, plan
        self.groups: dict[tuple[int | str, ...], Group] = {}
        self.again: deque[tuple[Group, range]] = deque()
        self.new = self._begin(units, shard_size, set(missing))
        self.groups_done = 0

    def prompts(self) -> Iterator[Prompt | None]:
        """For the decoder. None where the next ones depend on answers that are still to come."""
        while True:
            while self.again:
                group, samples = self.again.popleft()
                yield group.begin(self.spec, samples)
            new = next(self.new, None)
            if new is not None:
                self.groups[new.key()] = new
                yield new.begin(self.spec, new.next_samples())
            elif self.groups and self.plan.strategy == "retry":
                yield None
            else:
                return

    def take(self, sampled: Sampled) -> Iterator[Shard]:
        """The shards that this answer finishes."""
        group = self.groups[sampled.prompt.key]
        group.shard.tokens += sampled.tokens
        group.came.append(sampled)
        group.outstanding -= 1
        if group.outstanding:
            return
        if group.judge():
            self.again.append((group, group.next_samples()))
            return
        del self.groups[sampled.prompt.key]
        self.groups_done += 1
        group.shard.open_groups -= 1
        if group.shard.whole and not group.shard.open_groups:
            yield group.shard

    def rest(self) -> Iterator[Shard]:
        """Nothing is held back."""
        return iter(())

    def _begin(self, units: Iterable[Unit], shard_size: int, missing: set[int]) -> Iterator[Group]:
        """Groups in order. The last of a shard is handed out with the mark that no more will come."""
        last = max(missing, default=-1)
        shard: Shard | None = None
        held: Group | None = None  # one behind, to know which is the last of its shard
        for place, unit in enumerate(units):
            number = place // shard_size
            if number > last:
                break
            if shard is not None and number != shard.number:
                shard.whole = True
                shard = None
            if number not in missing:
                continue
            shard = shard or Shard(number, first=place)
            shard.units += 1
            for label in unit.labels:
                if held is not None:
                    yield held
                held = Group(unit, label, shard, self.plan)
                shard.groups.append(held)
                shard.open_groups += 1
        if shard is not None:
            shard.whole = True
        if held is not None:
            yield held
