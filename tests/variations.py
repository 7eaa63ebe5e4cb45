"""Cases of a test that `make test` runs, and further ones that only `make test-slow` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases for `parametrize`, those after the first ``count`` with the mark ``slow``."""
    return [
        case if index < count else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
