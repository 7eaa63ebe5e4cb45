"""How far a synthesis is: accepted texts and tokens per second, yield per label, time left.

A bar on a terminal; lines of a log where the output goes to a file.
"""

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter

from tqdm import tqdm

from command.processes import Ranks
from synthesis.decoding.continuations import Continuation
from synthesis.shards.stage import ProgressListener, ShardBuilder, Stage

SECONDS_BETWEEN_UPDATES = 0.5  # seconds between looks
SHARE_PER_LINE = 0.05  # of the prompts: a line for each
LONGEST_INTERVAL, SHORTEST_INTERVAL = 300.0, 20.0  # seconds: a line at least, and at most, so often

log = logging.getLogger(__name__)


class CountingListener(ProgressListener, ABC):
    """Counts. What it calls accepted has passed the filters of single texts."""

    def begin(self, stage: Stage, groups: int) -> None:
        self.name, self.total, self.passes = stage.title, groups, stage.passes
        self.drawn, self.accepted = Counter[str](), Counter[str]()
        self.tokens = self.done = 0
        self.began = self.looked = time.monotonic()

    def took(self, sampled: Continuation, job: ShardBuilder) -> None:
        label = str(sampled.prompt.key[-1])
        self.drawn[label] += 1
        self.accepted[label] += self.passes(sampled)
        self.tokens += sampled.tokens
        self.done = job.groups_done
        now = time.monotonic()
        if now - self.looked >= SECONDS_BETWEEN_UPDATES:
            self.looked = now
            self.show(now - self.began)

    def rates(self, seconds: float) -> str:
        yields = " ".join(f"{label}:{self.accepted[label] / drawn:.0%}" for label, drawn in self.drawn.items())
        speed = f"{self.accepted.total() / seconds:.1f} accepted/s, {self.tokens / seconds:.0f} tokens/s"
        return f"{speed}, yield {yields}"

    @abstractmethod
    def show(self, seconds: float) -> None:
        """To whoever watches."""


class ProgressBar(CountingListener):
    """One line at the foot of the terminal."""

    def begin(self, stage: Stage, groups: int) -> None:
        super().begin(stage, groups)
        self.bar = tqdm(total=groups, desc=self.name, unit="prompt", file=sys.stderr, dynamic_ncols=True)

    def show(self, seconds: float) -> None:
        self.bar.set_postfix_str(self.rates(seconds), refresh=False)
        self.bar.update(self.done - self.bar.n)

    def end(self) -> None:
        if self.done:  # what came since the last look
            self.show(max(time.monotonic() - self.began, SECONDS_BETWEEN_UPDATES))
        self.bar.close()


class ProgressLog(CountingListener):
    """A line for every twentieth of the prompts, but none within seconds of the last, and one every few minutes."""

    def __init__(self, ranks: Ranks) -> None:
        self.who = f" (process {ranks.rank} of {ranks.world}: its own part)" if ranks.world > 1 else ""

    def begin(self, stage: Stage, groups: int) -> None:
        super().begin(stage, groups)
        self.logged, self.logged_done = 0.0, 0  # seconds, prompts

    def show(self, seconds: float) -> None:
        done = self.done
        waited, more = seconds - self.logged, done - self.logged_done
        if waited < SHORTEST_INTERVAL or (waited < LONGEST_INTERVAL and more < SHARE_PER_LINE * self.total):
            return
        self.logged, self.logged_done = seconds, done
        left = tqdm.format_interval((self.total - done) * seconds / done) if done else "unknown"
        log.info(
            "%s%s: %.0f %%, %s of %s prompts, %s, time left %s",
            self.name,
            self.who,
            100 * done / self.total,
            f"{done:,}",
            f"{self.total:,}",
            self.rates(seconds),
            left,
        )


def choose_progress(ranks: Ranks, *, quiet: bool) -> ProgressListener:
    """The first process speaks for all."""
    if quiet or ranks.rank > 0:
        return ProgressListener()
    return ProgressBar() if sys.stderr.isatty() else ProgressLog(ranks)
