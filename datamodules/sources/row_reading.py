"""Configuration keys of reading rows: their encoding, and how unusable rows are handled."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.io.text_files import ENCODING_MEANING

OnError = Literal["fail", "skip"]
MAX_SKIPPED = 0.05  # maximum share of undecodable or malformed rows with on_error=skip


@dataclass(frozen=True, kw_only=True)
class RowReadingConfig:
    """Configuration keys of commands that read rows of files."""

    on_error: OnError = config_field(
        "fail",
        "how to handle unreadable rows, and rows of training data with an empty text; fail: raise an error; skip: drop "
        "and count them",
    )
    max_skipped: float = config_field(
        MAX_SKIPPED,
        "maximum fraction of rows that on_error=skip may drop because they are undecodable or malformed; empty "
        "rows do not count",
        ge=0,
        le=1,
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)
