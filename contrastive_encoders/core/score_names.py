"""Names of scores, such as ``stsb-dev@senteval@256/cosine/spearman``, which are parsed only in this module."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

TASK = re.compile(
    r"(?P<task>.*?)(-(?P<split>dev(:[^@]*)?))?(@(?P<form>[^@]*[^@\d][^@]*))?(@(?P<size>[1-9]\d*))?", re.DOTALL
)

LESS_IS_BETTER = ("mse", "perplexity")  # metrics


@dataclass(frozen=True)
class ScoreName:
    """Parsed name of a score, ``TASK[-SPLIT][@FORM][@SIZE]/PROTOCOL/METRIC``; ``str`` returns the name.

    Attributes:
        task: name of the task, without its split and text form.
        protocol: how the metric is computed; empty for a task that has one way only.
        metric: ``spearman``, ``ndcg@10``, ...
        split: ``dev``, with the subset of an mteb task ``dev:en``; empty for the test split.
        form: text form, such as ``senteval``; empty for the text as it is.
        size: number of dimensions that were used; None for full embeddings.
    """

    task: str
    protocol: str = ""
    metric: str = ""
    split: str = ""
    form: str = ""
    size: int | None = None

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better, which does not hold for errors, perplexities, and measures of the geometry
        of embeddings.
        """
        return self.metric not in LESS_IS_BETTER and self.protocol != "geometry"

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, name: str) -> "ScoreName":
        """Parse the name of a score or of a task; for a task, the protocol and the metric are empty."""
        full_task, *rest = name.split("/")
        *protocol, metric = rest or [""]
        match = TASK.fullmatch(full_task)
        assert match is not None, "every part of the pattern may be empty"
        size = int(match["size"]) if match["size"] else None
        return cls(match["task"], "/".join(protocol), metric, match["split"] or "", match["form"] or "", size)

    def __str__(self) -> str:
        return f"{self.full_task}/{self.measure}" if self.metric else self.full_task

    @property
    def full_task(self) -> str:
        """The name of the task with its split, text form, and size."""
        split = f"-{self.split}" if self.split else ""
        form = f"@{self.form}" if self.form else ""
        size = "" if self.size is None else f"@{self.size}"
        return f"{self.task}{split}{form}{size}"

    @property
    def measure(self) -> str:
        """The protocol and the metric: ``cosine/spearman``."""
        return f"{self.protocol}/{self.metric}" if self.protocol else self.metric

    @property
    def is_plain(self) -> bool:
        """Return whether the score is computed on a test split, from full embeddings."""
        return not self.split and self.size is None

    def without_form(self) -> str:
        """Return the name of the same score on the unmodified texts, that is, the name without ``@FORM``."""
        return str(replace(self, form=""))

    def with_protocol(self, protocol: str) -> str:
        """Return the name of the same score with the given protocol."""
        return str(replace(self, protocol=protocol))
