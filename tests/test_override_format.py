"""Texts as overrides: Hydra's parser must return them unchanged."""

import random

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString

from contrastive_encoders.core.override_format import format_override, without_replaced

CHARACTERS = "\\\\''\"a b\n=$#[{,é"
SPECIAL = ["", "\\", "it's", "\\'", "a\\\\", "'", "(1).txt", "a,b", "${x}", "null", "a\\b"]
RANDOM = ["".join(random.Random(seed).choices(CHARACTERS, k=seed % 9)) for seed in range(200)]


@pytest.mark.parametrize("text", [*SPECIAL, *RANDOM])
def test_a_text_in_quotes_is_that_of_hydra(text):
    override = format_override("key", text)
    assert override in (f"key={text}", f"key={QuotedString(text, Quote.single).with_quotes()}")
    assert format_override("key", f"={text}") == f"key={QuotedString(f'={text}', Quote.single).with_quotes()}"


@pytest.mark.parametrize("text", [one for one in SPECIAL if one not in ("", "null", "${x}")])
def test_hydra_parses_a_text_as_it_was(text):
    assert OverridesParser.create().parse_override(format_override("key", text)).value() == text


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (["model=a", "x=1", "model=b"], ["x=1", "model=b"]),
        (["model=a", "stages.one.model=b", "+model=c"], ["model=a", "stages.one.model=b", "+model=c"]),
        (["parts={a: 1}", "parts={b: 2}"], ["parts={a: 1}", "parts={b: 2}"]),
        (["parts={a: 1}", "parts=null", "parts={b: 2}"], ["parts=null", "parts={b: 2}"]),
    ],
)
def test_hydra_composes_the_same_without_replaced_overrides(overrides, kept):
    assert without_replaced(overrides) == kept
