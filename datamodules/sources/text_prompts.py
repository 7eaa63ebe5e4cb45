"""Prompts that are prepended to the texts of a column, such as ``query: ``. Prompt and text are tokenized as one
string.

The ids are therefore those that an encoder receives when it is used with the prompt. A text that is too long
is truncated at the tokenizer's truncation side, which is the end of the text for most tokenizers. Pooling includes the
tokens of the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import Prompts
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.row_schemas import RowSchema
from contrastive_encoders.datamodules.store.token_store import RowSource


class PromptedSource:
    """Source that prepends the prompt of each column to its texts."""

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


def prompts_of_columns(prompts: Prompts, kind: RowSchema, own_columns: Sequence[str] | None, width: int) -> list[str]:
    """Return the ``width`` prompts for a row, one for each of its texts.

    ``prompts`` is one prompt for all texts, one each, or a mapping of column names.

    The prompt of the third column is also used for all columns after it, which contain hard negatives.
    ``own_columns`` are the user's column names.

    Raises:
        InputError: A column does not exist, or the number of prompts differs from the number of columns.
    """
    if prompts is None or isinstance(prompts, str):
        return [prompts or ""] * width
    places = {name: place for names in [*kind.columns, own_columns or ()] for place, name in enumerate(names)}
    names = [name for name, place in places.items() if place < width]
    if isinstance(prompts, Mapping):
        for name in prompts:
            if name not in names:
                raise InputError(
                    key=f"data.prompts.{name}", value=prompts[name], expected=f"one of the columns {', '.join(names)}"
                )
        by_place = {places[name]: prompt for name, prompt in prompts.items()}
        found = [by_place.get(place, by_place.get(2, "") if place > 2 else "") for place in range(width)]
    elif len(prompts) == width or (len(prompts) == 3 and width > 3):
        found = [prompts[min(place, len(prompts) - 1)] for place in range(width)]
    else:
        raise InputError(
            key="data.prompts", value=list(prompts), expected=f"{width} prompts, one for each text of a row"
        )
    return found
