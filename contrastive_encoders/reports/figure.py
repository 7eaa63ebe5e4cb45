"""Vega-Lite figures: interactive on a page, and PNG, SVG, and PDF for papers and Markdown.

Altair writes the specification. Its colors are variables of the page's style sheet, so that the same specification is
used for light, dark, and print styles. In a picture, they are replaced by fixed colors.
"""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core import OutputError
from contrastive_encoders.reports.tables import Table

if TYPE_CHECKING:  # slow to import, and only needed for drawing
    import altair as alt

INK, SOFT, LINE, PAPER = "var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"
SERIES = [f"var(--c{place})" for place in range(1, 9)]
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#8C6BB1", "#7F7F7F")  # with changes
PICTURE_COLORS = {INK: "#16181d", SOFT: "#5b6270", LINE: "#d5d8de", PAPER: "#ffffff"} | dict(
    zip(SERIES, OKABE_ITO, strict=True)
)
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
# The legend of a picture; on a page, the buttons of its key replace legends
LEGEND = {"orient": "bottom", "title": None, "columns": 3, "labelLimit": 300, "symbolLimit": 64, "symbolOpacity": 1}
# As escaped in JSON: control characters, which SVG does not allow, and line ends that end Vega's expressions
UNSUPPORTED_CHARACTERS = re.compile(r"(\\\\)|\\(?:[bf]|u00[01].|u202[89]|ufff[ef])")
ERROR_LINE = re.compile(r"[\w.]*Error: |memory|fatal", re.IGNORECASE)  # a line of an engine's error output
SECONDS, SECONDS_EACH = 60, 5  # time limit for drawing: a base, and an addition for each panel or picture
FONT = "system-ui, 'Liberation Sans', sans-serif"


class RenderError(OutputError):
    """Error raised if the rendering process fails or takes too long."""


class Control(NamedTuple):
    """A control on a page, such as a menu, that sets a variable of the figure: to one of ``options``, or to a number of
    at most ``most``.
    """

    signal: str
    label: str
    options: Sequence[str] = ()
    most: float = 0.0


class Figure(NamedTuple):
    """A figure that consists of one or more charts, its ``panels``.

    Panels are drawn next to each other if there is space, and a page sets the width of each.

    Panels are charts without a configuration. Their colors are `INK`, `SOFT`, `LINE`, `PAPER`, and `SERIES`.
    ``signals`` are variables of all panels, which controls and scripts of a page set. ``highlight``, the names that are
    selected in the page's key, always exists.
    """

    name: str  # pictures/NAME.png, NAME.svg and, of a comparison, NAME.pdf
    title: str  # alternative text for readers who cannot see the figure
    caption: str
    panels: "Sequence[alt.TopLevelMixin]"
    table: Table | None = None  # the same data as numbers
    signals: Mapping[str, Any] = {}
    width: int | None = 760  # of a panel in a picture; None: panels have their own width, also on a page
    columns: int = 4  # panels of a picture next to each other
    controls: Sequence[Control] = ()
    picture_panels: "Sequence[alt.TopLevelMixin]" = ()  # if they differ from those of the page
    hint: str = ""  # how to use it on a page


class RenderedFigure(NamedTuple):
    """A rendered figure, which `draw` returns. ``vega``: the compiled specification of each panel, for a page."""

    vega: list[dict[str, Any]]
    svg: bytes
    png: bytes
    pdf: bytes = b""


def draw(figures: Sequence[Figure], *, pictures: bool = True, pdf: bool = False) -> dict[str, RenderedFigure]:
    """Render figures for a page. If ``pictures`` is true, they are also rendered as SVG and PNG and, if ``pdf`` is
    true, as PDF.

    The rendered figures are returned by name.

    Raises:
        RenderError: the rendering process failed or took too long; there are no pictures.
    """
    jobs = list[tuple[dict[str, Any], list[str]]]()
    for figure in figures:
        jobs += [(_page_spec(figure, panel), ["vega"]) for panel in figure.panels]
        if pictures:
            jobs.append((_picture_spec(figure), ["svg", "png", *["pdf"] * pdf]))
    results = iter(_render(jobs) if jobs else [])
    rendered = dict[str, RenderedFigure]()
    for figure in figures:
        vega = [next(results)["vega"] for _ in figure.panels]
        picture = next(results) if pictures else {"svg": "", "png": ""}
        rendered[figure.name] = RenderedFigure(
            vega, picture["svg"].encode(), base64.b64decode(picture["png"]), base64.b64decode(picture.get("pdf", ""))
        )
    return rendered


@cache
def library() -> str:
    """Return the JavaScript libraries that draw figures on a page: Vega and Vega-Embed (BSD 3-clause), 0.9 MB."""
    source = _render([({}, ["library"])])[0]["library"]
    return f"(() => {{\n{source}\n}})();"  # its names stay local


def shape_of(place: int) -> str:
    """Return the shape that stands for the name at the position ``place`` in the legend. The ninth name has the color
    of the first, but another shape.
    """
    return SHAPES[(place + place // len(SHAPES)) % len(SHAPES)]


def _page_spec(figure: Figure, panel: "alt.TopLevelMixin") -> dict[str, Any]:
    spec = panel.to_dict(validate=False)
    if figure.width is not None:
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    config = _theme({"disable": True})
    config["axis"]["labelLimit"] = {"expr": "max(90, min(260, 0.3 * (containerSize()[0] || 800)))"}
    return spec | {"params": _params(spec, figure), "config": config}


def _picture_spec(figure: Figure) -> dict[str, Any]:
    import altair as alt

    panels: list[Any] = list(figure.picture_panels or figure.panels)
    if figure.width is not None:
        panels = [panel.properties(width=figure.width) for panel in panels]
    chart = panels[0] if len(panels) == 1 else alt.concat(*panels, columns=min(figure.columns, len(panels)))
    spec = chart.to_dict(validate=False)
    config = _theme(LEGEND) | {"background": PAPER}
    return spec | {"params": _params(spec, figure), "config": config, "padding": 12}


def _params(spec: Mapping[str, Any], figure: Figure) -> list[dict[str, Any]]:
    signals = {"highlight": [], **figure.signals}
    return [*spec.get("params", ()), *({"name": name, "value": value} for name, value in signals.items())]


def _theme(legend: Mapping[str, Any]) -> dict[str, Any]:
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    lines = {"gridColor": LINE, "domainColor": LINE, "tickColor": LINE}
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**text, **lines, "titleColor": SOFT, "labelLimit": 260, "titlePadding": 8, "labelPadding": 6},
        "axisQuantitative": {"tickCount": 6},
        "legend": {**text, "symbolStrokeWidth": 2, **legend},
        "title": {"color": INK, "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 8},
        "text": {"color": INK, "fontSize": 12},
        "rule": {"color": INK},
        "range": {"category": SERIES},
    }


def _render(jobs: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> list[dict[str, Any]]:
    program = Path(__file__).with_name("render.py")
    text = UNSUPPORTED_CHARACTERS.sub(
        lambda match: match[1] or " ", json.dumps([PICTURE_COLORS, jobs], allow_nan=False)
    )
    seconds = SECONDS + SECONDS_EACH * len(jobs)
    try:
        process = subprocess.run(
            [sys.executable, "-P", str(program)],
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RenderError(f"drawing the figures took longer than {seconds} seconds and was stopped") from None
    if process.returncode:
        reason = next((line.strip() for line in process.stderr.splitlines()[::-1] if ERROR_LINE.match(line)), "")[:300]
        raise RenderError(
            f"drawing the figures failed with exit code {process.returncode}{f' ({reason})' if reason else ''}"
        )
    return list(json.loads(process.stdout))
