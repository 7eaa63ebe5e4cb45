"""Prompts before the texts of a column, such as ``query: ``, tokenized together with the text as one string.

The ids are therefore those that an encoder receives when it is used with the prompt. Texts that are too long are
truncated at their own end, and pooling includes the tokens of the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import Prompts
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.row_schemas import RowSchema
from contrastive_encoders.datamodules.store.token_store import RowSource


class PromptedSource:
    """Source whose texts start with the prompts of their columns."""

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
    """Return the prompt of each text of a row of ``width`` texts.

    Prompts are given as one for all, one each, or by column name.

    The prompt of the third column is also used for all columns after it, which contain hard negatives. ``own`` contains
    the user's column names.

    Raises:
        InputError: A column does not exist, or the number of prompts differs from the number of columns.
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
