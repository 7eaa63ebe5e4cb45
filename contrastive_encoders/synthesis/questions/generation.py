"""Worker tasks that write and judge questions for passages.

A question depends only on (seed, text of the passage, style, number). Shards, processes, and the order of answers do
not change it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import torch

from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Prompt
from contrastive_encoders.synthesis.decoding.discriminator import PROBABILITY_DIGITS, Discriminator, Pair
from contrastive_encoders.synthesis.decoding.generator import MAX_TOKENS_PER_PASS, Generator, not_finite_error
from contrastive_encoders.synthesis.questions.passages import CorpusPassage
from contrastive_encoders.synthesis.questions.prompts import QuestionPrompts, cut_texts
from contrastive_encoders.synthesis.server.clients import ServedDiscriminator
from contrastive_encoders.synthesis.server.server import Server
from contrastive_encoders.synthesis.shards.decoded import DecodedShards, FinishedShard
from contrastive_encoders.synthesis.shards.progress import WorkerProgress
from contrastive_encoders.synthesis.shards.sharded_dataset import ShardInputs, WrittenShard, judge_shards
from contrastive_encoders.synthesis.shards.store import LabelCounts, accept_all

SURROUNDING_CHARS = "'\u2018\u2019*` "  # characters that a model writes around a line
PASSAGES_PER_BATCH = 32  # passages that are judged between progress reports


class QuestionCandidate(TypedDict):
    """A generated question, with the judge's probability that the passage answers it."""

    passage: int  # index in the collection
    style: str
    number: int
    text: str
    whole: bool  # ended on its own
    cut: bool  # the passage was truncated for the prompt
    p_yes: float | None  # P(yes) that the passage answers it; None: not judged


MARK = re.compile('["\u201c\u201d\u201e]')


def question_in(text: str) -> str:
    """Extract the question from a generated text: one line, up to the first question mark outside quotation marks.

    Surrounding quotation marks are removed.
    """
    line = _without_outer_marks(" ".join(text.split()).strip(SURROUNDING_CHARS)).strip(SURROUNDING_CHARS)
    ends = [found.end() for found in re.finditer("[?]", line)]
    for end in ends:
        if len(MARK.findall(line[:end])) % 2 == 0:
            return line[:end]
    return _without_outer_marks(line[: ends[0]]) if ends else line


def _without_outer_marks(line: str) -> str:
    marks = [found.start() for found in MARK.finditer(line)]
    if not marks:
        return line
    begins, ends = marks[0] == 0, marks[-1] == len(line) - 1
    if len(marks) % 2:  # one mark has no partner
        return line[1:] if begins else line[:-1] if ends else line
    is_around = begins and ends and (len(marks) == 2 or line[marks[1] - 1].isspace())
    return line[1:-1] if is_around else line


@dataclass(frozen=True)
class QuestionShards(DecodedShards):
    """Task of a worker: write all questions for each passage of a shard."""

    prompts: QuestionPrompts
    number: int  # questions per style
    max_passage_tokens: int

    def begin(self, generator: Generator | Server, tasks: Iterator[WorkItem]) -> "QuestionShardBuilder":
        tokenizer = None if isinstance(generator, Server) else generator.tokenizer
        return QuestionShardBuilder(self, tokenizer, tasks)

    def passes(self, sampled: Continuation) -> bool:
        return bool(question_in(sampled.text))


@dataclass
class QuestionShardState:
    """State of an unfinished shard: the questions written so far."""

    number: int
    wanted: int  # number of questions
    tokens: int = 0
    found: dict[tuple[int, str, int], QuestionCandidate] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)  # of the styles

    def finished(self) -> FinishedShard:
        keys = sorted(self.found, key=lambda key: (key[0], self.order[key[1]], key[2]))
        rows = [self.found[key] for key in keys]
        return FinishedShard(self.number, self.tokens, rows, counts_of(rows))


def counts_of(candidates: Iterable[QuestionCandidate]) -> dict[str, LabelCounts]:
    return accept_all(Counter(one["style"] for one in candidates))


class QuestionShardBuilder:
    """Builder that turns passages into prompts, and the answers into shards. Only unfinished shards are in memory."""

    def __init__(self, shards: QuestionShards, tokenizer: Any, tasks: Iterable[WorkItem]) -> None:
        self.shards, self.tokenizer, self.tasks = shards, tokenizer, tasks
        self.shard_of: dict[int, QuestionShardState] = {}
        self.place_of: dict[str, int] = {}  # index of an unfinished passage, by its digest
        self.cut: dict[int, bool] = {}
        self.groups_done = 0

    def prompts(self) -> Iterator[Prompt]:
        """Yield the prompts, ordered by passage, because prompts with the same passage may have a common prefix."""
        shards = self.shards
        for task in self.tasks:
            payload: ShardInputs = task.payload
            passages: list[CorpusPassage] = payload.inputs
            texts = cut_texts(self.tokenizer, [one.text for one in passages], shards.max_passage_tokens)
            styles = shards.prompts.styles
            shard = QuestionShardState(
                task.number,
                len(passages) * len(styles) * shards.number,
                order={name: at for at, name in enumerate(styles)},
            )
            for place, (passage, (text, cut)) in enumerate(zip(passages, texts, strict=True), start=payload.first):
                self.shard_of[place], self.cut[place], self.place_of[passage.digest] = shard, cut, place
                for style in styles:
                    asked = shards.prompts.asked(style, passage, text)
                    yield Prompt((passage.digest, style), asked, samples=range(shards.number))

    def take(self, sampled: Continuation) -> FinishedShard | None:
        """Add an answer to its shard, and return the shard if the answer completes it, otherwise None."""
        place, style = self.place_of[str(sampled.prompt.key[0])], str(sampled.prompt.key[1])
        shard, text = self.shard_of[place], question_in(sampled.text)
        ended = sampled.closed or text.endswith("?") or sampled.tokens < self.shards.how.max_new_tokens
        shard.found[place, style, sampled.sample] = QuestionCandidate(
            passage=place,
            style=style,
            number=sampled.sample,
            text=text,
            whole=ended,
            cut=self.cut[place],
            p_yes=None,
        )
        shard.tokens += sampled.tokens
        self.groups_done += sampled.sample == self.shards.number - 1
        if len(shard.found) < shard.wanted:
            return None
        for one in {key[0] for key in shard.found}:
            del self.shard_of[one], self.cut[one]
        return shard.finished()


class PassageQuestions(NamedTuple):
    """A passage with its candidate questions."""

    passage: CorpusPassage
    candidates: list[QuestionCandidate]


@dataclass(frozen=True)
class JudgedQuestions:
    """Task of a worker: compute P(yes), the probability that the passage answers a question, for each question."""

    prompts: QuestionPrompts
    max_passage_tokens: int

    def __call__(
        self, generator: Generator | Server, tasks: Iterator[WorkItem]
    ) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
        with generator.session():
            score: ServedDiscriminator | PassageJudge
            if isinstance(generator, Server):
                score = ServedDiscriminator(generator, self.prompts.judge, self.max_passage_tokens, judged=True)
            else:
                score = PassageJudge(generator, self.prompts.judge, self.max_passage_tokens)
            yield from judge_shards(tasks, PASSAGES_PER_BATCH, lambda _, some: judge_questions(some, score), counts_of)


def skip_judging(_: object, tasks: Iterator[WorkItem]) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
    """Task of a worker: copy the written questions without judging them."""
    return judge_shards(
        tasks, PASSAGES_PER_BATCH, lambda _, some: [row for one in some for row in one.candidates], counts_of
    )


def judge_questions(some: Sequence[PassageQuestions], score: Any) -> Iterator[QuestionCandidate]:
    """Yield each question with P(yes), the probability that its passage answers it. Equal questions of a passage are
    judged once; empty questions are not judged.
    """
    pairs = [(one.passage.whole, row["text"]) for one in some for row in one.candidates]
    wanted = [pair for pair in dict.fromkeys(pairs) if pair[1]]
    found = dict(zip(wanted, score(wanted), strict=True))
    rows = [row for one in some for row in one.candidates]
    for pair, row in zip(pairs, rows, strict=True):
        yield QuestionCandidate(**(row | {"p_yes": found.get(pair)}))  # type: ignore[typeddict-item]


class PassageJudge(Discriminator):
    """Judge that computes the probability that a passage answers a question, for several questions per passage. Each
    passage is processed once.
    """

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        rows = self.ids.discrimination([one for one, _ in pairs], [other for _, other in pairs], self.max_pair_tokens)
        of_passage: dict[str, list[int]] = {}
        for place, (passage, _) in enumerate(pairs):
            of_passage.setdefault(passage, []).append(place)
        found = dict[int, float]()
        left = sorted(of_passage.values(), key=lambda places: len(rows[places[0]]))
        while left:
            groups = left[-max(1, MAX_TOKENS_PER_PASS // len(rows[left[-1][0]])) :]
            del left[-len(groups) :]
            logits_R2 = self.generator.answer_logits_of_groups(
                [[rows[place] for place in places] for places in groups], self.answers
            )
            p_R = logits_R2.double().softmax(1)[:, 0].tolist()
            found.update(zip((place for places in groups for place in places), p_R, strict=True))
        if any(p != p for p in found.values()):
            raise not_finite_error(self.generator.name)
        return [round(found[place], PROBABILITY_DIGITS) for place in range(len(pairs))]
