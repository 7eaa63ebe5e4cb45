"""Without a terminal, long operations report their progress from time to time."""

import re

import pytest

from contrastive_encoders.core import progress
from contrastive_encoders.core.progress import ProgressBar


@pytest.mark.parametrize(("quiet", "lines"), [(False, 2), (True, 0)])
def test_a_line_every_half_minute(quiet, lines, monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    caplog.set_level("INFO", logger="contrastive_encoders.core.progress")
    with ProgressBar("encoding", "texts", 4_000, before=1_000, quiet=quiet) as one:
        for done in range(1_500, 4_001, 500):
            now[0] += 12.5
            one.to(done, "7 tokens")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == lines
    assert all(re.search(r"2,500 .*4,000 .*\b40 .*0:00:38", one) for one in said[:1])
