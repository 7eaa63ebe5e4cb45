"""``contrastive-encoders generate``, in this process or in a separate one, and its rows."""

import json
import signal
from pathlib import Path

import pytest

import contrastive_encoders.cli.generate as command
from contrastive_encoders.core import InputError
from tests.forks import Started
from tests.in_process import run_here

ROOT = Path(__file__).resolve().parents[2]


def here(*overrides):
    """Run it in this process, which has imported torch already."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert not run_here("generate", command.run, overrides)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def refusal(*overrides):
    """Run it in this process, and return the error that refuses the input."""
    with pytest.raises(InputError) as error:
        here(*overrides)
    return error.value


def start(*overrides, **variables):
    return Started("generate", overrides, ROOT, **variables)


def rows_of(folder):
    return [json.loads(line) for path in sorted(folder.glob("shard-*")) for line in path.read_text().splitlines()]
