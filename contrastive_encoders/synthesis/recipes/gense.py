"""Generate triplets with GenSE, whose generator is also the discriminator (Chen et al., EMNLP 2022).

For every sentence and direction (entailment, contradiction), candidates are written, and the model judges whether each
of them follows from the sentence. The results are stored as one *scored row*. The selection of triplets uses only these
rows (`triplet_rules`), so it can be repeated with other rules. A candidate depends only on (seed, position of the
sentence, direction, candidate), so shards, processes, batches, and the order of answers have no effect.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import DIRECTIONS, Direction, Prompts
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Prompt
from contrastive_encoders.synthesis.decoding.discriminator import SENTENCES_PER_BATCH, Discriminator
from contrastive_encoders.synthesis.decoding.generator import Generator
from contrastive_encoders.synthesis.recipe_configs import GenseConfig
from contrastive_encoders.synthesis.sentences.quotations import (
    has_marks,
    has_quotation,
    is_cut,
    quote_for_prompt,
    restore_marks,
)
from contrastive_encoders.synthesis.server.clients import ServedDiscriminator
from contrastive_encoders.synthesis.server.server import Server
from contrastive_encoders.synthesis.shards.decoded import DecodedShards, FinishedShard
from contrastive_encoders.synthesis.shards.sharded_dataset import ShardInputs
from contrastive_encoders.synthesis.task_spec import STOP
from contrastive_encoders.synthesis.triplet_recipe import (
    SentenceCandidates,
    SentenceRecipe,
    count_candidates,
    discriminator_of,
    judge_candidates,
)


@dataclass(kw_only=True)
class Gense(GenseConfig, SentenceRecipe):
    """Recipe ``gense``: write hypotheses for each sentence and judge them with the same model."""

    required: ClassVar[dict[str, str]] = {
        "generator": "the directory or hub id of a GenSE generator",
        "input": "sentences, or documents with another input_kind",
    }

    def identify(self) -> dict[str, Any]:
        assert self.judge is not None
        return {
            "prompts": self.judge.prompts.to_json(),
            "generator": self.judge.weights,
            "precision": self.precision,
            "decoding": self.how.sampling(),
            "plan": {key: getattr(self, key) for key in ("candidates", "max_source_tokens", "max_pair_tokens")},
            "input": self.given,
            "shard_size": self.shard_size,
        }

    def write_scored(self) -> None:
        assert self.judge is not None
        how = self.how
        if (self.chat_template or self.served) and (mark := closing_mark(self.judge.prompts)):
            how = replace(how, stop=mark, abandon="\n")
        shards = GenseShards(
            how, self.judge.prompts, self.candidates, self.max_source_tokens, self.max_pair_tokens, self.judged
        )
        self.write_candidates(self.premises(), shards, self.writer(), prompts=len(DIRECTIONS))


def closing_mark(prompts: Prompts) -> str:
    """Return the stop string, which ends a generated text.

    This is a quotation mark if the prompts end in an opening quotation mark, like those of DINO. Otherwise, it is an
    empty string, since only the end-of-sequence token ends a text.

    Raises:
        InputError: One of the prompts ends in an opening quotation mark and another does not.
    """
    opened = [getattr(prompts, direction).suffix.endswith(STOP) for direction in DIRECTIONS]
    if any(opened) and not all(opened):
        raise InputError(
            key="prompts",
            expected=f"an opening quotation mark {STOP} at the end of both entailment.suffix and contradiction.suffix, "
            "or at the end of neither",
        )
    return STOP if all(opened) else ""


@dataclass(frozen=True)
class GenseShards(DecodedShards):
    """Task of a worker: write the candidates for each sentence of a shard, and judge them."""

    prompts: Prompts
    candidates: int
    max_source_tokens: int
    max_pair_tokens: int
    judged: bool = True

    def begin(self, generator: Generator | Server, tasks: Iterator[WorkItem]) -> "GenseShardBuilder":
        score = discriminator_of(generator, self.prompts, self.max_pair_tokens, judged=self.judged)
        if isinstance(score, Discriminator):  # a server checks this itself
            score.check_room(self.max_source_tokens)
        return GenseShardBuilder(self, score, tasks)

    def passes(self, sampled: Continuation) -> bool:
        return bool(sampled.text.strip())


@dataclass
class GenseShardState:
    """State of an unfinished shard: the sentences whose candidates have been generated, and the total number
    of sentences.
    """

    number: int
    units: int  # number of sentences
    tokens: int = 0
    complete: "dict[int, OpenSentence]" = field(default_factory=dict)  # sentences whose texts are complete, by position


@dataclass
class OpenSentence:
    """A sentence whose candidates are being written."""

    place: int
    premise: str
    shard: GenseShardState
    open: int  # number of pending candidates
    texts: dict[Direction, list[Any]]  # (text, closed) of each candidate


class GenseShardBuilder:
    """Builder that turns sentences into prompts, and the answers into scored rows.

    Only unfinished shards are in memory.
    """

    def __init__(
        self, shards: GenseShards, score: Discriminator | ServedDiscriminator, tasks: Iterable[WorkItem]
    ) -> None:
        self.shards, self.score, self.tasks = shards, score, tasks
        self.rows: dict[int, OpenSentence] = {}
        self.groups_done = 0

    def prompts(self) -> Iterator[Prompt]:
        new = self._begin()
        while rows := list(islice(new, SENTENCES_PER_BATCH)):
            premises = [
                quote_for_prompt(row.premise) if self._has_conflicting(has_marks, row) else row.premise for row in rows
            ]
            asked = [
                self.score.questions(direction, premises, self.shards.max_source_tokens) for direction in DIRECTIONS
            ]
            for row, *texts in zip(rows, *asked, strict=True):
                self.rows[row.place] = row
                for direction, one in zip(DIRECTIONS, texts, strict=True):
                    yield Prompt((row.place, direction), one, samples=range(self.shards.candidates))

    def take(self, sampled: Continuation) -> FinishedShard | None:
        """Add an answer, and return the shard if the answer completes it, otherwise None.

        All pairs of a shard are scored together.
        """
        place, direction = sampled.prompt.key
        row = self.rows[int(place)]
        text, closed = sampled.text, sampled.closed
        if self._has_conflicting(has_quotation, row):
            closed = closed and not is_cut(text)
        if self._has_conflicting(has_marks, row):
            text = restore_marks(row.premise, text)
        row.texts[direction][sampled.sample] = (text.strip(), closed)  # type: ignore[index]
        shard = row.shard
        shard.tokens += sampled.tokens
        row.open -= 1
        if row.open == 0:
            shard.complete[row.place] = self.rows.pop(row.place)
            self.groups_done += len(DIRECTIONS)
        if len(shard.complete) < shard.units:
            return None
        rows = self._score(shard)
        return FinishedShard(shard.number, shard.tokens, rows, count_candidates(rows))

    def _has_conflicting(self, marks: Callable[[str], bool], row: OpenSentence) -> bool:
        """Return whether quotation marks are ambiguous: they end generated texts, and ``marks`` also finds some in the
        premise.
        """
        return self.shards.how.stop == STOP and marks(row.premise)

    def _score(self, shard: GenseShardState) -> list[dict[str, Any]]:
        """Score the rows of a shard in batches, independent of other shards.

        The batch composition of a forward pass changes the last bits of the results, so it must not depend on other
        pending work.
        """
        rows = [shard.complete[place] for place in sorted(shard.complete)]
        scored = list[dict[str, Any]]()
        for begin in range(0, len(rows), SENTENCES_PER_BATCH):
            some = [SentenceCandidates(row.premise, row.texts) for row in rows[begin : begin + SENTENCES_PER_BATCH]]
            scored += judge_candidates(some, self.score)
        return scored

    def _begin(self) -> Iterator[OpenSentence]:
        """Yield each sentence of the tasks in order, as an `OpenSentence` without candidates."""
        for task in self.tasks:
            payload: ShardInputs = task.payload
            shard = GenseShardState(task.number, units=len(payload.inputs))
            for place, sentence in enumerate(payload.inputs, start=payload.first):
                texts: dict[Direction, list[Any]] = {
                    direction: [None] * self.shards.candidates for direction in DIRECTIONS
                }
                yield OpenSentence(place, sentence, shard, len(DIRECTIONS) * self.shards.candidates, texts)
