"""The seed of tests that draw random cases: fuzzing, Hypothesis, and torture."""

import os
import time


def seed() -> int:
    """Return ``SEED`` of the environment, by default today's date as a number. Processes that this one starts get the
    same seed, also after midnight.
    """
    os.environ["SEED"] = os.environ.get("SEED") or time.strftime("%Y%m%d", time.gmtime())
    return int(os.environ["SEED"])
