"""Without a terminal, long operations report their progress from time to time."""

import re

import pytest

from contrastive_encoders.core import progress
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.encoders import sentence_encoder
from contrastive_encoders.encoders.loading.load import load_encoder


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


def test_progress_of_encoding_is_measured_in_tokens(tiny_bert, monkeypatch):
    """The longest texts are encoded first, so a rate of texts would be too low at first."""
    encoder = load_encoder(tiny_bert)
    texts = ["the ferry leaves the harbour " * 5, *(f"ferry {number}" for number in range(9))]
    bars = []

    class Bar(ProgressBar):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.steps = []
            bars.append(self)

        def to(self, done, more=""):
            super().to(done, more)
            self.steps.append(done)

    monkeypatch.setattr(sentence_encoder, "ProgressBar", Bar)
    encoder.embed(texts, progress=True, batch_size=2)
    [bar] = bars
    ids = {tuple(encoder.tokenizer(text).input_ids) for text in texts}  # equal sequences are encoded once
    tokens = sum(map(len, ids))
    assert bar.steps[-1] == bar.total
    assert tokens <= bar.total < 2 * tokens  # with padding
    assert bar.steps[0] / bar.total > 0.5 > 2 / len(ids)  # the first chunk contains the long text
