"""Join half of the sentences of a dataset into longer texts, so that a model that is trained on them sees both
lengths.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from contrastive_encoders.datamodules.sources.records import Record, RecordSource


class JoinedSentences:
    """Source that joins half of the rows of another source into longer texts.

    Of every 2n rows of single texts, the first n are unchanged and the other n become one text, joined by blanks. Of
    the remaining rows at the end, the second half is joined, too.
    """

    width = 1

    def __init__(self, rows: RecordSource, n: int) -> None:
        self.rows, self.n = rows, n
        self.joined = 0  # joined rows in the last iteration

    def __iter__(self) -> Iterator[Record]:
        self.joined, rows = 0, iter(self.rows)
        while some := list(islice(rows, 2 * self.n)):
            half = -(-len(some) // 2)
            yield from some[:half]
            if group := some[half:]:
                text = " ".join(one.texts[0].strip() for one in group)
                yield group[0]._replace(texts=(text,))
                self.joined += len(group)

    def fingerprint(self) -> dict[str, Any]:
        return {**self.rows.fingerprint(), "joined": self.n}

    def manifest(self) -> dict[str, Any]:
        return {**self.rows.manifest(), "joined": {"texts": self.n, "rows": self.joined}}
