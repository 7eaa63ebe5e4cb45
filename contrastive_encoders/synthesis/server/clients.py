"""Use the model on a server as a generator and as a discriminator."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import Direction, PromptIds, Prompts
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.discriminator import PROBABILITY_DIGITS, Pair
from contrastive_encoders.synthesis.decoding.sampling import digest
from contrastive_encoders.synthesis.rules.triplet_rules import UNJUDGED_HINT
from contrastive_encoders.synthesis.server.protocol import extract_text, generation_request, judge_request, probability
from contrastive_encoders.synthesis.server.server import Server

log = logging.getLogger(__name__)


def ask(
    server: Server, prompts: Iterator[Prompt | None], how: Decoding, statistics: Statistics | None = None
) -> Iterator[Continuation]:
    """Request all samples of all prompts from a server, and yield each sample when it arrives, like
    `synthesis.decoding.loop.decode`.

    Raises:
        InputError: The server rejects a setting.
        SynthesisError: The server is unavailable.
    """
    counts = Statistics() if statistics is None else statistics
    under_way: dict[asyncio.Task[Continuation], None] = {}
    exhausted = False
    try:
        while True:
            while not exhausted and len(under_way) < 2 * server.requests.in_flight:  # some wait for a free slot there
                prompt = next(prompts, "done")
                if prompt is None:
                    break
                if isinstance(prompt, str):
                    exhausted = True
                    break
                counts.prompts += 1
                under_way |= {server.begin(_write(server, prompt, sample, how)): None for sample in prompt.samples}
            if not under_way:
                return
            done, _ = server.run(asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED))
            for task in [task for task in under_way if task in done]:
                del under_way[task]
                sampled = task.result()
                counts.samples += 1
                counts.tokens += sampled.tokens
                yield sampled
    finally:
        for task in under_way:
            task.cancel()
            if task.done() and not task.cancelled():
                task.exception()  # one error was raised; the others are ignored


async def _write(server: Server, prompt: Prompt, sample: int, how: Decoding) -> Continuation:
    assert isinstance(prompt.text, str)
    key = [*prompt.key, sample]
    seed = digest(how.seed, key) % 2**31
    answer = await server.answer(generation_request(prompt.text, how, seed, chat=server.chat), key, how.seed)
    if answer["refused"]:
        return Continuation(prompt, sample, "", False, 0, answer["refused"])
    text, closed = extract_text(answer, prompt.text, how, chat=server.chat)
    return Continuation(prompt, sample, text, closed, answer["tokens"])


class ServedPromptIds(PromptIds):
    """Prompts as strings instead of token ids, since a server has no tokenizer. Sentences are truncated to words."""

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts

    def _truncate(self, sentences: Sequence[str], max_tokens: int) -> list[str]:
        words = [sentence.split() for sentence in sentences]
        return [
            one if len(own) <= max_tokens else " ".join(own[:max_tokens])
            for one, own in zip(sentences, words, strict=True)
        ]


class ServedDiscriminator:
    """Discriminator that sends its questions to a model on a server. It returns P("true"), the probability that the
    second sentence of a pair follows from the first.

    P("true") is computed from the server's log-probabilities of the first token.

    Raises:
        InputError: The server returns no log-probabilities, or the answers begin with the same character.
    """

    def __init__(self, server: Server, prompts: Prompts, max_pair_tokens: int, *, judged: bool) -> None:
        self.server, self.asks, self.max_pair_tokens = server, ServedPromptIds(prompts), max_pair_tokens
        self.judged, self.listed = judged, False
        words = prompts.discrimination
        self.answers = {"yes": words.yes, "no": words.no}
        yes, no = (word.strip().casefold() for word in self.answers.values())
        if judged and (not yes or not no or yes[0] == no[0]):
            raise InputError(
                key="prompts.discrimination",
                value=f"{words.yes!r}, {words.no!r}",
                expected="texts for yes and no with different first letters, because only the first token is compared",
            )
        self([("The cat is black.", "It is black.")])  # errors occur before anything is written

    def questions(self, direction: Direction, sentences: Sequence[str], max_tokens: int) -> list[str]:
        return self.asks.generation_texts(direction, sentences, max_tokens)

    def __call__(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Return P("true"), the probability that the second sentence follows from the first, for each pair.

        Equal pairs are requested once. The result for a pair is None if pairs are not judged or if the server's answer
        contains neither of the two answers.
        """
        if not self.judged:
            return [None] * len(pairs)
        distinct = list(dict.fromkeys(pairs))
        prompts = self.asks.discrimination_texts(
            [one for one, _ in distinct], [other for _, other in distinct], self.max_pair_tokens
        )
        found = self.server.run(self._all(prompts))
        if undecided := found.count(None):
            log.warning(
                "%s: neither %s is among the likeliest answers for %d of %d pairs. These pairs are not judged, so "
                "rules.agree and rules.threshold reject them.",
                self.server.name,
                " nor ".join(self.answers.values()),
                undecided,
                len(found),
            )
        p_true = {
            pair: None if p is None else round(p, PROBABILITY_DIGITS) for pair, p in zip(distinct, found, strict=True)
        }
        return [p_true[pair] for pair in pairs]

    async def _all(self, prompts: Sequence[str]) -> list[float | None]:
        return await asyncio.gather(*map(self._p_true, prompts))

    async def _p_true(self, text: str) -> float | None:
        answer = await self.server.answer(judge_request(text, chat=self.server.chat), "judge")
        if answer["refused"] or (not answer["listed"] and self.listed):  # the latter ended before its first token
            return None
        if not answer["listed"]:
            raise InputError(
                key="base_url",
                value=self.server.url,
                expected="a server that returns log-probabilities, which are needed to judge candidates",
                hint=UNJUDGED_HINT,
            )
        self.listed = True
        return probability(answer["listed"], self.answers)
