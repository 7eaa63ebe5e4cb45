"""Read the input of mining: pairs, and the corpus that is searched for negatives."""

import logging
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import MINED
from contrastive_encoders.io.file_discovery import QUERY_FILES, count_skipped, list_files
from contrastive_encoders.io.file_formats import has_columns
from contrastive_encoders.io.rows import read_windows
from contrastive_encoders.io.text_files import Encoding
from contrastive_encoders.synthesis.mining.mine_config import MineConfig

log = logging.getLogger(__name__)

TEXTS_PER_READ = 8192  # of the corpus
ADVICE = " Set column to the name of the column with the texts, or correct the row."


class MiningInput(NamedTuple):
    """Pairs of an anchor and a positive, and the corpus that is searched for negatives. The corpus contains all
    positives, and each text once.
    """

    rows: list[tuple[str, str]]
    corpus: list[str]


def read_pairs(config: MineConfig) -> tuple[MiningInput, dict[str, Any]]:
    """Read the pairs and the corpus, and return them with their provenance: the input files and the numbers of rows."""
    assert config.input is not None
    records = RecordSource(
        config.input,
        MINED,
        columns=config.columns,
        split=config.split,
        on_error=config.on_error,
        max_skipped=config.max_skipped,
        encoding=config.encoding,
        prefix="",
    )
    all_rows = [(record.texts[0], record.texts[1]) for record in records]
    rows = list(dict.fromkeys(all_rows))
    corpus = list(dict.fromkeys([*read_corpus(config), *(positive for _, positive in rows)]))
    duplicates = len(all_rows) - len(rows)
    log.info(
        "%s with %s, corpus of %s%s",
        count_of(len(rows), "pair"),
        count_of(len({anchor for anchor, _ in rows}), "anchor"),
        count_of(len(corpus), "text"),
        f"; skipped {count_of(duplicates, 'duplicate pair')}" if duplicates else "",
    )
    if len(corpus) < 2:
        raise InputError(
            key="corpus",
            value=config.corpus,
            expected="a file with texts to search for negatives, since the positives, "
            "which are searched too, are all the same text",
        )
    account = {"source": records.manifest(), "pairs": len(rows), "twice": duplicates, "corpus": len(corpus)}
    return MiningInput(rows, corpus), account


def read_corpus(config: MineConfig) -> list[str]:
    """Return the texts of ``corpus``, which are searched for negatives in addition to the positives."""
    if config.corpus is None:
        return []
    files = [one.path for one in list_files(config.corpus, "corpus", documents="named")]
    if QUERY_FILES in (skipped := count_skipped(config.corpus, files)):
        log.info("corpus: skipped: %d %s", skipped[QUERY_FILES], QUERY_FILES)
    if config.column is not None and not any(map(has_columns, files)):
        raise InputError(
            key="column", value=config.column, expected="null for text files and documents, which have no columns"
        )
    encoding = Encoding(config.encoding, "encoding")
    windows = read_windows(files, config.column or "text", TEXTS_PER_READ, lambda _: True, ADVICE, encoding)
    texts = [text for _, window in windows for text in window if text.strip()]
    if not texts:
        raise InputError(
            key="corpus",
            value=config.corpus,
            expected="files that contain texts",
            hint="Choose other files, or remove corpus.",
        )
    return texts
