"""Generate sentence pairs from instructions with DINO (Schick and Schuetze 2021).

A unit is one input with the labels for which texts are written. A group is the set of samples for an input and a label.
A shard is complete when all groups of its units are complete. The samples that a group requests depend only on the
answers to the same group, so shards, processes, and the order of answers have no effect.
"""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.io.text_files import Encoding
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Prompt
from contrastive_encoders.synthesis.decoding.generator import Generator
from contrastive_encoders.synthesis.recipe import ModelRecipe, log
from contrastive_encoders.synthesis.recipe_configs import DinoConfig, Plan
from contrastive_encoders.synthesis.report.cards import write_label_card
from contrastive_encoders.synthesis.report.report import write_report
from contrastive_encoders.synthesis.rules.filters import CUT, DUPLICATE, NO_ROOM
from contrastive_encoders.synthesis.sentences.inputs import open_inputs, sample
from contrastive_encoders.synthesis.sentences.quotations import (
    has_marks,
    has_quotation,
    is_cut,
    quote_for_prompt,
    restore_marks,
)
from contrastive_encoders.synthesis.server.protocol import REFUSALS
from contrastive_encoders.synthesis.server.server import Server
from contrastive_encoders.synthesis.shards.decoded import DecodedShards, FinishedShard
from contrastive_encoders.synthesis.shards.sharded_dataset import DataSet, ShardInputs, write_data_set
from contrastive_encoders.synthesis.shards.store import X1, LabelCounts, RejectedText, ShardEntry, read_entries
from contrastive_encoders.synthesis.task_spec import STOP, Label, Tasks, TaskSpec, choose_tasks

TOP_K = {"x1": 0, "x2": 5}  # published values


@dataclass(kw_only=True)
class Dino(DinoConfig, ModelRecipe):
    """Recipes ``dino_x1``, ``dino_x2``, and ``dino_x1x2``, or a custom spec: generate texts from instructions."""

    has_labels: ClassVar[bool] = True
    tasks: Tasks = field(init=False)
    weights: dict[str, Any] = field(init=False)  # identity of the generator's weights
    given: "FirstSentences | None" = field(init=False, default=None)  # first sentences from a file

    @property
    def has_pairs(self) -> bool:
        return self.tasks.x2 is not None

    def plan(self) -> None:
        self.samples.check_tries()
        self.tasks = choose_tasks(self.recipe, self.spec)
        require(self, "generator", "the hub id or directory of a causal language model")
        if self.tasks.x1 is not None and (self.input is not None or self.input_sample is not None):
            raise InputError(
                key="input" if self.input is not None else "input_sample",
                value=self.input if self.input is not None else self.input_sample,
                expected="null, because this recipe writes the first sentences; the recipe dino_x2 reads them",
            )
        if self.tasks.x1 is None:
            require(
                self, "input", "a file of the first sentences; the recipe dino_x1x2 also writes the first sentences"
            )
        if self.tasks.x1 is not None and self.num_x1 < len(self.tasks.x1.labels):
            expected = f"{len(self.tasks.x1.labels)} or more, one for each label"
            raise InputError(key="num_x1", value=self.num_x1, expected=expected)
        self.check_engine()
        if self.served and any(spec.debiases(self.samples.decay) for spec in self.tasks if spec):
            raise InputError(
                key="decay",
                value=f"{self.samples.decay:g}",
                expected="0 for every label, because no server returns the probabilities that self-debiasing needs",
            )
        if self.tasks.x2 is None and self.samples.per_label is not None:
            raise InputError(
                key="per_label",
                value=self.samples.per_label,
                expected="null, because this recipe writes no second sentences",
                hint="The number of first sentences is num_x1.",
            )
        self.weights = self.identify_model()
        if self.tasks.x1 is None:
            self.given = self._read_input()

    def _read_input(self) -> "FirstSentences":
        assert self.input is not None
        encoding = Encoding(self.encoding, "encoding")
        inputs = open_inputs(self.input, self.input_type, self.input_column, output=self.folder, encoding=encoding)
        summary = inputs.summary()
        if summary.blank and not self.quiet:
            log.info("%s: skipped %d blank lines", self.input, summary.blank)
        identity = {"sha256": summary.sha256, "type": inputs.kind, "texts": summary.texts, "blank": summary.blank}
        if self.input_sample is None:
            return self._count_marks(FirstSentences(inputs, summary.texts, identity))
        drawn = sample(inputs, summary.texts, self.input_sample, self.how.seed)
        number = len(drawn.places)
        if number < self.input_sample and not self.quiet:
            log.info("input_sample=%d: the input has only %d texts, which are all used", self.input_sample, number)
        return self._count_marks(FirstSentences(drawn, number, identity | {"sample": number}))

    def _count_marks(self, given: "FirstSentences") -> "FirstSentences":
        """Add the number of texts with quotation marks to the identifying settings, because these marks are replaced in
        prompts.
        """
        number = sum(map(has_quotation, given.texts))
        if not number:
            return given
        straight = sum(map(has_marks, given.texts))
        if straight and not self.quiet:
            log.info(
                "%s: in prompts, the quotation marks of %d texts are replaced by typographic ones", self.input, straight
            )
        return given._replace(identity={**given.identity, "with_quotation_marks": number})

    def claim(self) -> bool:
        first = self.first_stage() if self.tasks.x1 else None
        if self.tasks.x2 is None:
            assert first is not None
            return first.store.claim(first.identity, overwrite=self.overwrite)
        if first is not None and not self.overwrite:  # can name what differs; the pairs only contain a hash of it
            first.store.is_finished(first.identity)
        second = self.second_stage(first)
        finished = second.store.claim(second.identity, overwrite=self.overwrite)
        if first is not None:
            finished = first.store.is_finished(first.identity) and finished
        return finished

    def write(self) -> None:
        with self.open_pool(self.writer()) as pool:
            first = None
            if self.tasks.x1 is not None:
                first = self.first_stage()
                if self.has_pairs:  # from now on, the folder declares its content even if interrupted
                    pairs = self.second_stage(first)
                    pairs.store.write_manifest(pairs.manifest(complete=False))
                write_data_set(first, pool, quiet=self.quiet)
            if self.has_pairs:
                write_data_set(self.second_stage(first), pool, quiet=self.quiet)

    def first_stage(self) -> "DinoStage":
        spec, number = self.tasks.x1, self.num_x1
        assert spec is not None
        folder = self.folder / X1 if self.tasks.x2 is not None else self.folder
        units, plan = x1_units(spec, number), self.samples.for_first_sentences()
        return self._stage(folder, "x1", spec, units, number, {"num_x1": number}, plan)

    def second_stage(self, first: "DinoStage | None") -> "DinoStage":
        spec = self.tasks.x2
        assert spec is not None
        texts, number, identity = self.given or read_first_sentences(first)  # type: ignore[arg-type]
        return self._stage(self.folder, "x2", spec, x2_units(spec, texts), number, identity, self.samples)

    def _stage(
        self,
        folder: Path,
        kind: str,
        spec: TaskSpec,
        units: "Iterator[InputTask]",
        number: int,
        given: Mapping[str, Any],
        plan: Plan,
    ) -> "DinoStage":
        top_k = TOP_K[kind] if self.how.top_k is None else self.how.top_k
        abandon = "" if plan.filters.allow_newlines else "\n"
        how = replace(self.how, top_k=top_k, ban_eos=self.ban_eos, stop=STOP, abandon=abandon)
        no_matter = ("decode_batch_size", "kv_cache_tokens", "abandon")
        identity = {
            "kind": kind,
            "spec": spec.to_json(),
            "generator": self.weights,
            "precision": self.recorded_precision,
            "chat_template": self.chat_template,
            "decoding": {name: value for name, value in asdict(how).items() if name not in no_matter},
            "plan": plan.to_json(),
            "input": dict(given),
            "shard_size": self.shard_size,
        }
        about = self.about_generator(self.weights)
        work, prompts = DinoShards(how, spec, plan), len(spec.labels) if spec.takes_input else 1
        return DinoStage(folder, spec.task_name, number, self.shard_size, identity, about, units, work, prompts)


class FirstSentences(NamedTuple):
    """First sentences (x1) of the pairs, their number, and the settings that identify them in the manifest."""

    texts: Iterable[str]
    number: int
    identity: dict[str, Any]


@dataclass(frozen=True)
class WrittenTexts:
    """Iterable over the first sentences (x1) of the pairs, read from the dataset that the previous stage wrote."""

    folder: Path

    def __iter__(self) -> Iterator[str]:
        yield from (entry["text_a"] for entry in read_entries(self.folder))


def read_first_sentences(stage: "DinoStage") -> FirstSentences:
    """Read the first sentences (x1) from the dataset that a stage wrote.

    Their fingerprint is the hash of the settings that identify the stage.
    """
    identity = json.dumps(stage.identity, sort_keys=True).encode()
    texts = WrittenTexts(stage.folder)
    return FirstSentences(texts, sum(1 for _ in texts), {"x1": hashlib.sha256(identity).hexdigest()})


@dataclass
class DinoStage(DataSet):
    """Dataset of first or second sentences, with a report and a dataset card."""

    def describe(self, manifest: dict[str, Any]) -> None:
        write_report(self.folder, manifest)
        write_label_card(self.folder, manifest)

    def log_result(self, counts: Mapping[str, Any]) -> None:
        if not counts["accepted"]:
            reasons = ", ".join(f"{reason} {number}" for reason, number in counts["rejected"].items())
            log.warning("%s: no text was accepted (%s). See report.html.", self.folder, reasons or "none was requested")
            return
        log.info(
            "%s: accepted %s of %s texts (%.1f%%). report.html shows their quality.",
            *(self.folder, f"{counts['accepted']:,}", f"{counts['samples']:,}", 100 * counts["yield"]),
        )


@dataclass(frozen=True)
class DinoShards(DecodedShards):
    """Task of a worker: write first or second sentences."""

    spec: TaskSpec
    plan: Plan

    def begin(self, generator: Generator | Server, tasks: Iterator[WorkItem]) -> "DinoShardBuilder":
        return DinoShardBuilder(self.spec, self.plan, tasks)

    def passes(self, sampled: Continuation) -> bool:
        return not sampled.rejected and not self.plan.filters.rejected(sampled.text, sampled.closed, None)


class InputTask(NamedTuple):
    """An input text, with the labels for which texts are written."""

    place: int  # position of the input; determines the random numbers
    x1: str | None  # None: x1 is written
    labels: tuple[Label, ...]


def x1_units(spec: TaskSpec, number: int) -> Iterator[InputTask]:
    """Yield ``number`` tasks, each of which generates a first sentence. The labels take turns."""
    for place in range(number):
        yield InputTask(place // len(spec.labels), None, (spec.labels[place % len(spec.labels)],))


def x2_units(spec: TaskSpec, texts: Iterable[str]) -> Iterator[InputTask]:
    for place, text in enumerate(texts):
        yield InputTask(place, text, spec.labels)


@dataclass
class DinoShardState:
    """State of an unfinished shard: its groups of samples, and the number of unfinished groups."""

    number: int
    open: int  # number of unfinished groups
    tokens: int = 0
    groups: list["SampleGroup"] = field(default_factory=list)

    def finished(self) -> FinishedShard:
        labels: dict[str, LabelCounts] = {}
        for group in self.groups:
            sums = labels.setdefault(group.label.name, LabelCounts(samples=0, accepted=0, rejected={}))
            sums["samples"] += group.tried
            sums["accepted"] += len(group.accepted)
            sums["rejected"] = dict(Counter(sums["rejected"]) + group.rejected)
        entries = [entry for group in self.groups for entry in group.entries()]
        left_out = [
            RejectedText(x1=group.unit.x1, text=text, label=group.label.name, why=why)
            for group in self.groups
            for text, why in group.refused
        ]
        return FinishedShard(self.number, self.tokens, entries, labels, left_out)


@dataclass
class SampleGroup:
    """Samples that are drawn for one input and one label, in one or more rounds."""

    unit: InputTask
    label: Label
    shard: DinoShardState
    plan: Plan
    tried: int = 0  # samples requested so far
    outstanding: int = 0
    came: list[Continuation] = field(default_factory=list)  # of this round
    accepted: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)  # text, reason

    def next_samples(self) -> range:
        """Return the indices of the samples to draw next, or an empty range if the group is finished."""
        limit = self.plan.max_tries if self.plan.strategy == "retry" else self.plan.wanted
        return range(self.tried, min(self.tried + self.plan.wanted - len(self.accepted), limit))

    def begin(self, spec: TaskSpec, samples: range) -> Prompt:
        self.tried, self.outstanding = samples.stop, len(samples)
        label, x1, plan = self.label, self.unit.x1, self.plan
        return Prompt(
            key=self.key(),
            text=spec.prompt(label, x1 and quote_for_prompt(x1)),
            counters=spec.counter_prompts(label, x1 and quote_for_prompt(x1)),
            decay=plan.decay if label.decay is None else label.decay,
            epsilon=plan.epsilon if label.epsilon is None else label.epsilon,
            samples=samples,
        )

    def key(self) -> tuple[int | str, ...]:
        return ("x1" if self.unit.x1 is None else "x2", self.unit.place, self.label.name)

    def judge(self) -> bool:
        """Accept or reject the texts of this round, in the order of their sample indices. Return whether to draw more
        samples.
        """
        filters = self.plan.filters
        only_new = filters.drop_duplicates or self.plan.strategy == "retry"
        hopeless = False
        for sampled in sorted(self.came, key=lambda one: one.sample):
            hopeless = hopeless or bool(sampled.rejected)
            why = sampled.rejected if sampled.rejected in REFUSALS else NO_ROOM if sampled.rejected else ""
            text, x1 = sampled.text, self.unit.x1
            if x1 is not None and has_quotation(x1):
                why = why or (CUT if sampled.closed and is_cut(text) else "")
                text = restore_marks(x1, text) if has_marks(x1) else text
            why = why or filters.rejected(text, sampled.closed, x1)
            if not why and only_new and text in self.accepted:
                why = DUPLICATE
            if why:
                self.rejected[why] += 1
                self.refused += [(text, why)] * bool(text.strip())
            else:
                self.accepted.append(text)
        self.came.clear()
        return self.plan.strategy == "retry" and not hopeless and len(self.next_samples()) > 0

    def entries(self) -> Iterator[ShardEntry]:
        for text in self.accepted:
            if self.unit.x1 is None:
                yield ShardEntry(text_a=text, text_b=None, label=self.label.name)
            else:
                yield ShardEntry(text_a=self.unit.x1, text_b=text, label=self.label.name)


class DinoShardBuilder:
    """Builder that turns inputs into prompts, and the answers into shards. Only unfinished shards are in memory."""

    def __init__(self, spec: TaskSpec, plan: Plan, tasks: Iterable[WorkItem]) -> None:
        self.spec, self.plan = spec, plan
        self.groups: dict[tuple[int | str, ...], SampleGroup] = {}
        self.again: deque[tuple[SampleGroup, range]] = deque()
        self.new = self._begin(tasks)
        self.groups_done = 0

    def prompts(self) -> Iterator[Prompt | None]:
        """Yield prompts for the decoder, or None while the next prompts depend on pending answers."""
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

    def take(self, sampled: Continuation) -> FinishedShard | None:
        """Add an answer, and return the shard if the answer completes it, otherwise None."""
        group = self.groups[sampled.prompt.key]
        group.shard.tokens += sampled.tokens
        group.came.append(sampled)
        group.outstanding -= 1
        if group.outstanding:
            return None
        if group.judge():
            self.again.append((group, group.next_samples()))
            return None
        del self.groups[sampled.prompt.key]
        self.groups_done += 1
        group.shard.open -= 1
        return None if group.shard.open else group.shard.finished()

    def _begin(self, tasks: Iterable[WorkItem]) -> Iterator[SampleGroup]:
        """Yield a new group for each input and label, in order."""
        for task in tasks:
            payload: ShardInputs = task.payload
            shard = DinoShardState(task.number, open=sum(len(unit.labels) for unit in payload.inputs))
            for unit in payload.inputs:
                for label in unit.labels:
                    group = SampleGroup(unit, label, shard, self.plan)
                    shard.groups.append(group)
                    yield group
