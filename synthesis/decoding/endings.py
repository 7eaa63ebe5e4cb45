"""When a sample is finished, told by its decoded text: the closing quotation mark may stand inside of a token.

Where there is no stop string, the end of sequence closes a text.
"""

from synthesis.decoding.batch import Sample
from synthesis.decoding.continuations import Decoding, Sampled
from synthesis.decoding.generator import Generator


class Endings:
    """Text is decoded only after a token that can complete the stop string."""

    def __init__(self, generator: Generator, how: Decoding) -> None:
        self.generator, self.how = generator, how
        self.suspects: set[int] = set()
        for part in filter(None, (how.stop, how.abandon)):
            self.suspects.update(generator.tokens_with(part).nonzero()[:, 0].tolist())
        self.eos = set() if how.ban_eos else set(generator.eos)

    def of(self, sample: Sample) -> Sampled | None:
        """What the sample came to, and it is marked as finished; None while it goes on."""
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
        return Sampled(sample.prompt, sample.number, text, closed, len(sample.tokens))

    def _text(self, sample: Sample) -> str:
        ids = sample.tokens[:-1] if sample.tokens[-1] in self.eos else sample.tokens
        return self.generator.decode(sample.before, ids)
