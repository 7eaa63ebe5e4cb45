"""Progress of long operations: a bar on a terminal, otherwise lines of the log."""

import logging
import sys
import time
from types import TracebackType

from tqdm import tqdm

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 30.0  # seconds between lines
DELAY = 2.0  # delay of a bar, so that nothing is drawn for short operations


def clock(seconds: float) -> str:
    """Format a duration as ``h:mm:ss``."""
    total = round(seconds)
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"


class ProgressBar:
    """Context manager that shows how many of ``total`` items are finished, starting at ``before``; ``unit`` is the
    plural of the items, and ``total`` is None if their number is unknown.
    """

    def __init__(self, name: str, unit: str, total: int | None = None, *, before: int = 0, quiet: bool = False) -> None:
        self.name, self.unit, self.total, self.before, self.quiet = name, unit, total, before, quiet
        self.done = before
        self.start_time = self.logged = time.monotonic()
        is_terminal = not quiet and sys.stderr.isatty()
        self.bar = tqdm(
            desc=name, unit=f" {unit}", total=total, initial=before, delay=DELAY, leave=False, disable=not is_terminal
        )

    def to(self, done: int, more: str = "") -> None:
        """Show the number of finished items, followed by the text ``more``."""
        self.done = done
        if not self.bar.disable:
            self.bar.set_postfix_str(more, refresh=False)
            self.bar.update(done - self.bar.n)
        elif not self.quiet and time.monotonic() - self.logged >= POLL_INTERVAL_S:
            self.logged = time.monotonic()
            log.info("%s", self.line(self.logged - self.start_time, more))

    def line(self, seconds: float, more: str = "") -> str:
        """Return the progress as a log line: ``tokenizing: 1,200 of 4,000 rows, 40 rows a second, 0:01:10 left``."""
        rate = (self.done - self.before) / max(seconds, 1e-3)
        total = "" if self.total is None else f" of {self.total:,}"
        remaining = [] if self.total is None or not rate else [f"{clock((self.total - self.done) / rate)} left"]
        speed = f"{rate:,.0f} {self.unit} a second"
        facts = [f"{self.done:,}{total} {self.unit}", *([more] if more else []), speed, *remaining]
        return f"{self.name}: {', '.join(facts)}"

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bar.close()
