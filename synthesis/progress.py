"""How far a synthesis is, on a terminal: accepted texts and tokens per second, yield per label, time left."""

import sys
import time
from collections import Counter

from tqdm import tqdm

from synthesis.decoding import Sampled
from synthesis.dino import Job, Shard
from synthesis.stage import Stage

EVERY = 0.5  # seconds between looks


class Quiet:
    """Says nothing."""

    def begin(self, stage: Stage, groups: int) -> None: ...

    def took(self, sampled: Sampled, job: Job) -> None: ...

    def wrote(self, shard: Shard) -> None: ...

    def end(self) -> None: ...


class Bar:
    """One line at the foot of the terminal. What it calls accepted has passed the filters of single texts."""

    def begin(self, stage: Stage, groups: int) -> None:
        self.filters = stage.plan.filters
        self.drawn, self.accepted = Counter[str](), Counter[str]()
        self.tokens = 0
        self.began = self.shown = time.monotonic()
        self.bar = tqdm(total=groups, desc=stage.spec.task_name, unit="prompt", file=sys.stderr, dynamic_ncols=True)

    def took(self, sampled: Sampled, job: Job) -> None:
        label = str(sampled.prompt.key[-1])
        self.drawn[label] += 1
        self.accepted[label] += not sampled.rejected and not self.filters.rejected(sampled.text, sampled.closed, None)
        self.tokens += sampled.tokens
        now = time.monotonic()
        if now - self.shown >= EVERY:
            self.shown = now
            self.show(job.groups_done, now - self.began)

    def show(self, done: int, seconds: float) -> None:
        yields = " ".join(f"{label}:{self.accepted[label] / drawn:.0%}" for label, drawn in self.drawn.items())
        rates = f"{self.accepted.total() / seconds:.1f} accepted/s, {self.tokens / seconds:.0f} tokens/s"
        self.bar.set_postfix_str(f"{rates}, yield {yields}", refresh=False)
        self.bar.update(done - self.bar.n)

    def wrote(self, shard: Shard) -> None: ...

    def end(self) -> None:
        self.bar.close()
