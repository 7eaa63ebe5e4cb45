"""The overlap with test sentences equals that of a naive search."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_encoders.datamodules import overlap
from contrastive_encoders.datamodules.documents import DocumentRows
from contrastive_encoders.datamodules.overlap import contained, find_overlap
from contrastive_encoders.datamodules.store.token_store import build_or_open
from contrastive_encoders.datamodules.store.tokenization import LengthRule, LongDocuments
from tests.data import TextSource


class Ids:
    """The part of a store that `contained` reads."""

    def __init__(self, documents):
        self.ids = np.array([id for document in documents for id in document], dtype=np.uint16)
        self.offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)


def stands_in(needle, document):
    return any(document[i : i + len(needle)] == needle for i in range(len(document) - len(needle) + 1))


few_ids = st.lists(st.integers(0, 2), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(st.lists(few_ids, min_size=1, max_size=6), st.lists(few_ids, max_size=8), st.integers(1, 5), st.integers(1, 9))
def test_finds_what_a_naive_search_finds(documents, needles, window, block):
    needles = [needle for needle in needles if len(needle) >= window]
    needles += [document[1:] for document in documents if len(document) > window]
    needles += [a[-window:] + b[:window] for a, b in pairwise(documents) if len(a) >= window]  # across a boundary
    before, overlap.BLOCK_TOKENS = overlap.BLOCK_TOKENS, block
    try:
        found = contained(Ids(documents), [np.array(needle, dtype=np.uint16) for needle in needles], window)
    finally:
        overlap.BLOCK_TOKENS = before
    assert found.tolist() == [any(stands_in(needle, document) for document in documents) for needle in needles]


def test_a_hash_that_collides_does_not_count(monkeypatch):
    monkeypatch.setattr(overlap, "MULTIPLIER", 1)  # every permutation of a window now has its hash
    store = Ids([[1, 2, 3, 4, 5, 6]])
    needles = [np.array(ids) for ids in ([2, 1, 3], [3, 4, 5], [4, 3, 5], [4, 5, 6, 7])]
    assert contained(store, needles, 3).tolist() == [False, True, False, False]


def stored(path, tokenizer, cache, lowercase=False):
    reading = LongDocuments(tokenizer, LengthRule(1, "tokens", 1), lowercase=lowercase)
    return build_or_open(DocumentRows(TextSource(path)), reading, cache, quiet=True), reading


def test_sentences_are_read_as_documents_are(tokenizer, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "Long ago a violin needs a new   string and a little patience today.\nThe ferry leaves the\n"
        "harbour before the market opens.\n"
    )
    sentences = [
        "a violin  needs a new string and\ta little patience",  # found, regardless of white space
        "a violin needs a new string and a little impatience",
        "The ferry leaves the harbour before the market opens.",  # spans two documents
        "harbour before the market opens.",
        "Q",  # too short to decide
    ]
    store, reading = stored(path, tokenizer, tmp_path)
    assert find_overlap(store, reading, sentences, min_tokens=6).counts() == {"checked": 4, "found": 2}
    assert find_overlap(store, reading, []).counts() == {"checked": 0, "found": 0}
