"""How pictures of a comparison are drawn: colours, markers, legends, panels; each as a PNG and as an SVG."""

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from files.page import draw
from files.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#16181d"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#999999")  # Okabe and Ito
MARKERS = "osD^vP*X"  # nothing is told by colour alone
ACROSS = 4  # panels beside each other
STYLE: dict[str, Any] = {
    "font.family": "sans-serif", "font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


class Picture(NamedTuple):
    """``table`` holds the same for those who cannot see it."""

    name: str
    title: str
    caption: str
    size: tuple[float, float]
    draw: Callable[["Figure"], None]
    table: Table | None = None


class Rendered(NamedTuple):
    png: bytes
    svg: bytes


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    """Of the ninth arm another than of the first, whose colour it has."""
    return MARKERS[(place + place // len(MARKERS)) % len(MARKERS)]


def wrapped(label: str, width: int = 22) -> str:
    """Long labels would leave no room for the axes."""
    return "\n".join(textwrap.wrap(label, width, break_long_words=False, break_on_hyphens=False)) or label


def legend(figure: "Figure", width: float) -> None:
    """Below, of the first axes' artists, in as many columns as their labels leave room for."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = _legend_columns(labels, width)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def legend_height(labels: Sequence[str], width: float) -> float:
    """Inches that such a legend takes."""
    return 0.2 * -(-len(labels) // _legend_columns(labels, width))


def _legend_columns(labels: Sequence[str], width: float) -> int:
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), int(width / (0.075 * longest + 0.55))))


def panels(figure: "Figure", number: int, **more: Any) -> "list[Axes]":
    """So many axes, at most ``ACROSS`` beside each other."""
    import numpy as np

    down = -(-number // ACROSS)
    found = np.atleast_1d(figure.subplots(down, min(number, ACROSS), **more)).ravel().tolist()
    for unused in found[number:]:
        unused.set_visible(False)
    return found[:number]


def render(picture: Picture) -> Rendered:
    return Rendered(*draw(picture.draw, picture.size, ("png", "svg"), {**STYLE, "svg.hashsalt": picture.name}))
