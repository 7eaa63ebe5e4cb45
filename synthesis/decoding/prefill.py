"""Run prompts and their counter prompts through the model once, for all samples that will continue them.

Each text is run once even if several prompts share it, and texts of similar length share a pass.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from synthesis.decoding.caches import Pass
from synthesis.decoding.continuations import Text
from synthesis.decoding.generator import Generator

TOKENS = 2048  # in one pass, padding included
AnyText = TypeVar("AnyText", bound=Text)


class Place(NamedTuple):
    """Where a text's keys, values and logits are."""

    shared: Pass
    row: int


def prefill(generator: Generator, ids_of: Mapping[Text, list[int]]) -> tuple[dict[Text, Place], int, int]:
    """The place of every text, and how many real and padded tokens that took."""
    places: dict[Text, Place] = {}
    real = padded = 0
    for texts in by_length(ids_of):
        shared = generator.begin([ids_of[text] for text in texts])
        places.update({text: Place(shared, row) for row, text in enumerate(texts)})
        lengths = [len(ids_of[text]) for text in texts]
        real += sum(lengths)
        padded += max(lengths) * len(texts) - sum(lengths)
    return places, real, padded


def by_length(ids_of: Mapping[AnyText, list[int]]) -> Iterator[list[AnyText]]:
    """All texts, in lists for one pass each, the longest first."""
    left = sorted(ids_of, key=lambda text: len(ids_of[text]))
    while left:
        texts = left[-max(1, TOKENS // len(ids_of[left[-1]])) :]
        del left[-len(texts) :]
        yield texts
