"""Progress of a synthesis: rates, yield per label and remaining time."""

import time
from collections import Counter

from cli.process_group import Ranks
from reports.progress import Progress
from synthesis.decoding.continuations import Continuation
from synthesis.shards.stage import ProgressListener, ShardBuilder, Stage

SECONDS_BETWEEN_UPDATES = 0.5


class StageProgress(ProgressListener):
    """Counts. What it calls accepted has passed the filters of single texts."""

    def __init__(self, ranks: Ranks) -> None:
        self.who = f" (process {ranks.rank} of {ranks.world}: its own part)" if ranks.world > 1 else ""

    def begin(self, stage: Stage, groups: int) -> None:
        self.progress, self.passes = Progress(f"{stage.title}{self.who}", "prompts", groups), stage.passes
        self.drawn, self.accepted = Counter[str](), Counter[str]()
        self.tokens = self.done = 0
        self.began = self.looked = time.monotonic()

    def took(self, sampled: Continuation, job: ShardBuilder) -> None:
        label = str(sampled.prompt.key[-1])
        self.drawn[label] += 1
        self.accepted[label] += self.passes(sampled)
        self.tokens += sampled.tokens
        self.done = job.groups_done
        if time.monotonic() - self.looked >= SECONDS_BETWEEN_UPDATES:
            self.looked = time.monotonic()
            self.progress.to(self.done, self.rates())

    def rates(self) -> str:
        seconds = max(time.monotonic() - self.began, SECONDS_BETWEEN_UPDATES)
        yields = " ".join(f"{label}:{self.accepted[label] / drawn:.0%}" for label, drawn in self.drawn.items())
        speed = f"{self.accepted.total() / seconds:.1f} accepted/s, {self.tokens / seconds:.0f} tokens/s"
        return f"{speed}, yield {yields}"

    def end(self) -> None:
        self.progress.to(self.done, self.rates())  # what came since the last look
        self.progress.bar.close()


def choose_progress(ranks: Ranks, *, quiet: bool) -> ProgressListener:
    """The first process speaks for all."""
    return ProgressListener() if quiet or ranks.rank > 0 else StageProgress(ranks)
