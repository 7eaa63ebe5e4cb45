"""Published output handling, and the filters against slow definitions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_encoders.synthesis.rules.filters import COPY, FEW_WORDS, UNCLOSED, Filters, NearDuplicates, fold


def published(text, closed, keep_without_quote, allow_newlines):
    """Return the outcome of _process_output in dino/modeling.py, or None."""
    if not closed and not keep_without_quote:
        return None
    if not text:
        return None
    if "\n" in text and not allow_newlines:
        return None
    return text


@pytest.mark.parametrize("text", ["", " A ", "A\nB", "\n", "two words", "A\r"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("newlines", [True, False])
def test_the_published_handling_is_the_default(text, closed, keep, newlines):
    why = Filters(keep_unclosed=keep, allow_newlines=newlines).rejected(text, closed, "x1")
    blank = not text.strip()  # the published code accepts a text of spaces
    assert (why == "") == (published(text, closed, keep, newlines) is not None and not blank)


def test_the_first_reason_counts():
    chosen = Filters(min_words=2, copies="exact")
    assert chosen.rejected("A", False, "A") == UNCLOSED
    assert chosen.rejected("A\nB", False, "A") == "newline"
    assert chosen.rejected(" ", True, "A") == "empty"
    assert chosen.rejected("A\n", True, "A") == "newline"
    assert chosen.rejected("A", True, "A") == FEW_WORDS
    assert chosen.rejected("A b", True, "A b") == COPY
    assert chosen.rejected(" A b", True, "A b") == "", "texts are not stripped"


@pytest.mark.parametrize(
    ("copies", "dropped"),
    [("keep", []), ("exact", ["A dog runs."]), ("normalized", ["A dog runs.", " a DOG runs", "A dog, runs!"])],
)
def test_copies(copies, dropped):
    texts = ["A dog runs.", " a DOG runs", "A dog, runs!", "A dog ran."]
    assert [text for text in texts if Filters(copies=copies).rejected(text, True, "A dog runs.")] == dropped


def test_what_is_no_copy_though_ascii_punctuation_rules_would_say_so():
    """Words of Hindi differ in their vowel signs, and two texts without letters are not therefore equal."""
    chosen = Filters(copies="normalized")
    assert chosen.rejected("वह की है", True, "वह का है") == ""
    assert chosen.rejected("!!!", True, "?") == ""
    assert chosen.rejected("?", True, "?") == COPY
    assert chosen.rejected("Cafe\u0301", True, "café.") == COPY
    assert fold("हिन्दी, भाषा") == "हिन्दी भाषा"


def brute_force(texts, threshold):
    kept = []
    for text in texts:
        words = set(fold(text).split()) or {text}
        if all(len(words & other) / len(words | other) < threshold for other in kept):
            kept.append(words)
            yield text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("a bb ccc dd eee f gg hhhh".split()), max_size=7).map(" ".join), max_size=25),
    st.sampled_from([0.1, 0.3, 0.5, 2 / 3, 0.7, 0.8, 0.9, 1.0]),
)
def test_near_duplicates_are_those_of_a_search_through_all_pairs(texts, threshold):
    seen = NearDuplicates(threshold)
    assert [text for text in texts if seen.earlier(text) is None] == list(brute_force(texts, threshold))
