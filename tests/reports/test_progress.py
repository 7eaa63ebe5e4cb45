"""Where nobody watches a terminal, what is long says now and then how far it is."""

import pytest

from reports import progress
from reports.progress import Progress, clock


@pytest.mark.parametrize(("quiet", "lines"), [(False, 2), (True, 0)])
def test_a_line_every_half_minute(quiet, lines, monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    caplog.set_level("INFO", logger="reports.progress")
    with Progress("encoding", "texts", 4_000, before=1_000, quiet=quiet) as one:
        for done in range(1_500, 4_001, 500):
            now[0] += 12.5
            one.to(done, "7 tokens")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == lines
    assert said[:1] in ([], ["encoding: 2,500 of 4,000 texts, 7 tokens, 40 a second, 0:00:38 left"])


def test_hours_minutes_seconds():
    assert [clock(seconds) for seconds in (0.4, 61, 36_000)] == ["0:00:00", "0:01:01", "10:00:00"]
