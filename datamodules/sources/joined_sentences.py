"""Sentences of which half are put together to longer texts, so that what learns from sentences meets both lengths."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from contrastive_encoders.datamodules.sources.records import Record, RecordSource


class JoinedSentences:
    """Of every 2n rows of single texts the first n as they are, and the other n as one text, with a blank between two.

    Of what is left at the end, the second half is joined, too.
    """

    width = 1

    def __init__(self, rows: RecordSource, n: int) -> None:
        self.rows, self.n = rows, n
        self.joined = 0  # rows, in the last iteration

    def __iter__(self) -> Iterator[Record]:
        self.joined, rows = 0, iter(self.rows)
        while some := list(islice(rows, 2 * self.n)):
            half = -(-len(some) // 2)
            yield from some[:half]
            if together := some[half:]:
                text = " ".join(one.texts[0].strip() for one in together)
                yield together[0]._replace(texts=(text,))
                self.joined += len(together)

    def fingerprint(self) -> dict[str, Any]:
        return {**self.rows.fingerprint(), "joined": self.n}

    def manifest(self) -> dict[str, Any]:
        return {**self.rows.manifest(), "joined": {"texts": self.n, "rows": self.joined}}
