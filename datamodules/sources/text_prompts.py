"""Prompts in front of the texts of a column, such as ``query: ``, tokenised with them as one string.

So the ids are those that an encoder gets when it is used with the prompt: a text that is too long loses its own end,
and pooling sees the prompt's tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import Prompts
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.row_schemas import RowSchema
from contrastive_encoders.datamodules.store.token_store import RowSource


class PromptedSource:
    """A source whose texts have the prompts of their columns in front of them."""

    def __init__(self, source: RowSource, prompts: Sequence[str]) -> None:
        self.source, self.prompts, self.width = source, list(prompts), source.width

    def __iter__(self) -> Iterator[Record]:
        for record in self.source:
            texts = (text and prompt + text for prompt, text in zip(self.prompts, record.texts, strict=True))
            yield record._replace(texts=tuple(texts))

    def fingerprint(self) -> dict[str, Any]:
        return {**self.source.fingerprint(), "prompts": self.prompts}

    def manifest(self) -> dict[str, Any]:
        return {**self.source.manifest(), "prompts": self.prompts}


def of_columns(given: Prompts, kind: RowSchema, own: Sequence[str] | None, width: int) -> list[str]:
    """The prompt of each text of a row of ``width`` texts: one for all, or one each, or those of named columns.

    What is said of the third column holds for all behind it: these are hard negatives. ``own`` are the user's names of
    the columns.

    Raises:
        InputError: there is no such column, or there are more or fewer prompts than columns.
    """
    if given is None or isinstance(given, str):
        return [given or ""] * width
    places = {name: place for names in [*kind.columns, own or ()] for place, name in enumerate(names)}
    names = [name for name, place in places.items() if place < width]
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise InputError(f"data.prompts: this data has no column {name!r}. There are {', '.join(names)}.")
        by_place = {places[name]: prompt for name, prompt in given.items()}
        found = [by_place.get(place, by_place.get(2, "") if place > 2 else "") for place in range(width)]
    elif len(given) == width or (len(given) == 3 and width > 3):
        found = [given[min(place, len(given) - 1)] for place in range(width)]
    else:
        raise InputError(f"data.prompts={list(given)}: wanted {width} of them, one for each text of a row.")
    return found
