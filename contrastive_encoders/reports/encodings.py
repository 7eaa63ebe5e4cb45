"""Altair encodings that the figures of reports share."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from contrastive_encoders.reports.figure import shape_of

NOT_FROM_ZERO = alt.Scale(zero=False)


def color(names: Sequence[str], field: str = "arm", **more: Any) -> alt.Color:
    """Color by the position of the name in the page's key."""
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names)), **more)


def shape(names: Sequence[str], field: str = "arm", **more: Any) -> alt.Shape:
    """Shape by the position of the name, as nothing is told by color alone."""
    shapes = [shape_of(place) for place in range(len(names))]
    return alt.Shape(f"{field}:N", scale=alt.Scale(domain=list(names), range=shapes), **more)


def opacity(selected: float = 1.0, others: float = 0.08, field: str = "arm") -> Any:
    """Opacity of a mark: it fades if other names are selected in the page's key."""
    test = f"!length(highlight) || indexof(highlight, datum.{field}) >= 0"
    return alt.condition(test, alt.value(selected), alt.value(others))


def tooltip(*fields: tuple[str, ...]) -> list[alt.Tooltip]:
    """The text of a hover: for each field its name, its title and, for a number, its format."""
    found = list[alt.Tooltip]()
    for one in fields:
        encoding: dict[str, Any] = dict(zip(("field", "title", "format"), one, strict=False))
        found.append(alt.Tooltip(**encoding))
    return found
