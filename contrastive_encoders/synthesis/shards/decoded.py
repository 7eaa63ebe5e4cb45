"""Decode shards of texts: turn tasks into prompts for a model, and the answers into shards."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.generator import Generator
from contrastive_encoders.synthesis.decoding.loop import decode
from contrastive_encoders.synthesis.server.clients import ask
from contrastive_encoders.synthesis.server.server import Server
from contrastive_encoders.synthesis.shards.progress import WorkerProgress
from contrastive_encoders.synthesis.shards.sharded_dataset import ShardFacts, WrittenShard
from contrastive_encoders.synthesis.shards.store import LabelCounts, RejectedText, sample_rejected, to_json_lines

REPORT_INTERVAL_S = 0.5


class FinishedShard(NamedTuple):
    """A shard whose answers have all arrived."""

    number: int
    tokens: int  # drawn
    rows: Sequence[Mapping[str, Any]]
    labels: dict[str, LabelCounts]
    left_out: Sequence[RejectedText] = ()  # texts that were not accepted, for inspection


class ShardBuilder(Protocol):
    """Interface of builders, which turn tasks into prompts, and the answers into shards."""

    groups_done: int

    def prompts(self) -> Iterator[Prompt | None]:
        """Yield prompts for the decoder, or None while the next prompts depend on pending answers."""
        ...

    def take(self, sampled: Continuation) -> FinishedShard | None:
        """Add an answer, and return the shard if the answer completes it, otherwise None."""
        ...


@dataclass(frozen=True)
class DecodedShards(ABC):
    """Base class of worker tasks that decode texts (see `runtime.worker_loop.Work`).

    In float32, shards share forward passes. In half precision, the last bits of a logit depend on the other rows of a
    pass, and these bits occasionally change a token. In half precision, each shard is therefore decoded alone,
    so that its texts do not depend on other shards.
    """

    how: Decoding

    @abstractmethod
    def begin(self, generator: Generator | Server, tasks: Iterator[WorkItem]) -> ShardBuilder:
        """Return a builder that turns the tasks into prompts. It requests a task when the decoder needs more
        prompts.
        """

    @abstractmethod
    def passes(self, sampled: Continuation) -> bool:
        """Return whether a text passes the filters that do not compare it with other texts. This is shown in the
        progress bar.
        """

    def __call__(
        self, generator: Generator | Server, tasks: Iterator[WorkItem]
    ) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
        if self.how.max_new_tokens >= generator.context:
            raise InputError(
                key="max_new_tokens",
                value=self.how.max_new_tokens,
                expected=f"less than {generator.context}, the context length of {generator.name} in tokens, because "
                "the context also contains the prompt",
            )
        with generator.session():
            if isinstance(generator, Server) or generator.model.dtype == torch.float32:
                yield from self._decoded(generator, tasks)
            else:
                for task in tasks:
                    yield from self._decoded(generator, iter([task]))

    def _decoded(
        self, generator: Generator | Server, tasks: Iterator[WorkItem]
    ) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
        decoder: Any = ask if isinstance(generator, Server) else decode
        statistics = Statistics()
        builder = self.begin(generator, tasks)
        counts = _ReportCounts(builder, statistics)
        for sampled in decoder(generator, builder.prompts(), self.how, statistics):
            if shard := builder.take(sampled):
                about = ShardFacts(tokens=shard.tokens, labels=shard.labels, left_out=sample_rejected(shard.left_out))
                yield shard.number, WrittenShard(to_json_lines(shard.rows), about)
            if counts.took(sampled, passes=self.passes(sampled)):
                yield None, counts.report()
        yield None, counts.report()


class _ReportCounts:
    """Counts of answers and decoding steps since the last progress report."""

    def __init__(self, builder: ShardBuilder, statistics: Statistics) -> None:
        self.builder, self.statistics = builder, statistics
        self.groups = self.rows = self.wasted = 0  # already reported
        self._begin()

    def _begin(self) -> None:
        self.drawn, self.accepted, self.tokens = Counter[str](), Counter[str](), 0
        self.since = time.monotonic()

    def took(self, sampled: Continuation, *, passes: bool) -> bool:
        """Count a decoded text, and return whether a progress report is due."""
        label = str(sampled.prompt.key[-1])
        self.drawn[label] += 1
        self.accepted[label] += passes
        self.tokens += sampled.tokens
        return time.monotonic() - self.since >= REPORT_INTERVAL_S

    def report(self) -> WorkerProgress:
        done, rows, wasted = self.builder.groups_done, self.statistics.row_steps, self.statistics.wasted_row_steps
        found = WorkerProgress(
            done - self.groups, self.drawn, self.accepted, self.tokens, rows - self.rows, wasted - self.wasted
        )
        self.groups, self.rows, self.wasted = done, rows, wasted
        self._begin()
        return found
