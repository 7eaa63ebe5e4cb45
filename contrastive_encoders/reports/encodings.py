"""Altair encodings that the figures of reports share."""

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt

from contrastive_encoders.reports.figure import shape_of

INTEGER_TICKS = 1.01  # tickMinStep of an axis of integers; with 1, Vega draws one tick too many, such as 1.5
FREE_SCALE = alt.Scale(zero=False)


def color(names: Sequence[str], field: str = "arm", **more: Any) -> alt.Color:
    """Return the Altair encoding that shows names as colors, in the order of the page's legend."""
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names)), **more)


def shape(names: Sequence[str], field: str = "arm", **more: Any) -> alt.Shape:
    """Return the Altair encoding that shows names as shapes, so that color is never the only distinction."""
    shapes = [shape_of(place) for place in range(len(names))]
    return alt.Shape(f"{field}:N", scale=alt.Scale(domain=list(names), range=shapes), **more)


def legend_of(names: Sequence[str], drawn: Collection[str]) -> alt.Legend | None:
    """Return a legend with only those names that are drawn. A scale contains all names, so that the color of a name is
    the same in all figures.
    """
    shown = [name for name in names if name in drawn]
    return alt.Legend(values=shown) if shown else None


def opacity(selected: float = 1.0, others: float = 0.08, field: str = "arm") -> Any:
    """Return the opacity encoding, which fades a mark if only other names are selected in the page's legend."""
    test = f"!length(highlight) || indexof(highlight, datum.{field}) >= 0"
    return alt.condition(test, alt.value(selected), alt.value(others))


def tooltip(*fields: tuple[str, ...]) -> list[alt.Tooltip]:
    """Return the tooltip encodings of several fields. A field is (name, title), or (name, title, format) for a
    number.
    """
    tooltips = list[alt.Tooltip]()
    for one in fields:
        encoding: dict[str, Any] = dict(zip(("field", "title", "format"), one, strict=False))
        tooltips.append(alt.Tooltip(**encoding))
    return tooltips
