"""One drawing in two forms: a PNG, and an SVG that takes the page's colours, with words on what the pointer is over."""

import io
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from comparison.tables import Table

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"  # stands for the colour of text: black in a PNG, the page's in an SVG
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#999999")  # Okabe and Ito
MARKERS = "osD^vP*X"  # nothing is told by colour alone
ACROSS = 4  # panels beside each other
SVG = "http://www.w3.org/2000/svg"
STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "text.parse_math": False,
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
    svg: str


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    """Of the ninth arm another than of the first, whose colour it has."""
    return MARKERS[(place + place // len(MARKERS)) % len(MARKERS)]


def say_over(artist: "Artist", texts: Sequence[str]) -> None:
    """``texts`` are those of the artist's points, in their order."""
    artist.set_gid(f"hover-{id(artist)}")
    artist.hover_texts = list(texts)  # type: ignore[attr-defined]


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
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {**STYLE, "svg.hashsalt": picture.name, "svg.id": picture.name}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=picture.size, layout="constrained")
        FigureCanvasAgg(figure)
        picture.draw(figure)
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=110, facecolor="white")
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        spoken: list[Any] = figure.findobj(lambda one: hasattr(one, "hover_texts"))
        hover = {str(one.get_gid()): one.hover_texts for one in spoken}
    return Rendered(png.getvalue(), _for_the_page(svg.getvalue(), picture, hover))


def _for_the_page(text: str, picture: Picture, hover: dict[str, list[str]]) -> str:
    """An element to stand inside HTML: named, scalable, in the page's ink, its ids its own."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ET.fromstring(text)  # our own file, written a moment ago
    for gid, texts in hover.items():
        group = root.find(f".//*[@id='{gid}']")
        points = [] if group is None else list(group.iter(f"{{{SVG}}}use"))
        for point, said in zip(points, texts, strict=False):
            point.set("data-text", said)
            ET.SubElement(point, f"{{{SVG}}}title").text = said
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    width, height = (72 * side for side in picture.size)
    root.attrib.update({"role": "img", "aria-label": f"{picture.title}. {picture.caption}", "class": "picture"})
    root.attrib.update({"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"})
    found = ET.tostring(root, encoding="unicode").replace(INK, "currentColor")
    return _with_own_ids(found, picture.name)


def _with_own_ids(svg: str, name: str) -> str:
    """Ids of several drawings in one page must differ; matplotlib calls all of them figure_1, axes_1 ..."""
    ids = set(part.split('"', 1)[0] for part in svg.split(' id="')[1:])
    for one in sorted(ids, key=len, reverse=True):
        for before, after in ((' id="', '"'), ('"#', '"'), ("url(#", ")")):
            svg = svg.replace(f"{before}{one}{after}", f"{before}{name}-{one}{after}")
    return svg
