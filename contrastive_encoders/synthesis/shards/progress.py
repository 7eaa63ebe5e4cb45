"""Show the progress of a synthesis: rates, yield per label, and remaining time."""

import logging
import time
from collections import Counter
from types import TracebackType
from typing import NamedTuple, Self

from contrastive_encoders.core.progress import ProgressBar

log = logging.getLogger(__name__)

MIN_RATE_SECONDS = 0.5  # minimum time over which a rate is computed


class WorkerProgress(NamedTuple):
    """Counts of a worker's results since its last report.

    ``accepted`` counts texts that pass the filters which consider a text alone.
    """

    groups: int  # prompts, with all of their samples
    drawn: Counter[str] = Counter()  # samples by label
    accepted: Counter[str] = Counter()
    tokens: int = 0
    rows: int = 0  # of forward passes
    wasted_rows: int = 0  # of these, rows whose sample was already finished


class StageProgress:
    """Context manager with a progress bar that sums the reports of all workers."""

    def __init__(self, title: str, groups: int, *, quiet: bool) -> None:
        self.progress, self.sums = ProgressBar(title, "prompts", groups, quiet=quiet), WorkerProgress(0)
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.bar.close()
        if self.sums.rows:
            wasted = 100 * self.sums.wasted_rows / self.sums.rows
            log.info("%.1f%% of the decoded rows belonged to texts that were already complete", wasted)

    def add(self, report: WorkerProgress) -> None:
        self.sums = WorkerProgress(*(before + more for before, more in zip(self.sums, report, strict=True)))  # type: ignore[operator]
        self.progress.to(self.sums.groups, self.rates())

    def rates(self) -> str:
        seconds = max(time.monotonic() - self.began, MIN_RATE_SECONDS)
        yields = " ".join(
            f"{label}:{self.sums.accepted[label] / drawn:.0%}" for label, drawn in sorted(self.sums.drawn.items())
        )
        speed = f"{self.sums.accepted.total() / seconds:.1f} accepted/s, {self.sums.tokens / seconds:.0f} tokens/s"
        return f"{speed}, yield {yields}" if yields else ""
