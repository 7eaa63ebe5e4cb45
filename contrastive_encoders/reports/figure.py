"""Vega-Lite figures: interactive on a page, and PNG, SVG and PDF for papers and Markdown.

One specification gives both. On a page its colours are those of the style sheet, so that dark and print need no other.
"""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import OutputError
from contrastive_encoders.reports.tables import Table

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#B8860B",
    "#56B4E9",
    "#8C6BB1",
    "#7F7F7F",
)  # after Okabe and Ito
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
# Of a picture; a page has its own
KEY = {"orient": "bottom", "title": None, "columns": 3, "labelLimit": 300, "symbolLimit": 64, "symbolOpacity": 1}
TEXTS = ("values", "tooltip", "domain", "sort", "params")  # entries of a specification that hold no colours
# As JSON escapes them: control characters, which no SVG may hold, and ends of lines that end Vega's expressions
NOT_DRAWN = re.compile(r"(\\\\)|\\(?:[bf]|u00[01].|u202[89]|ufff[ef])")
INK, SOFT, LINE, PAPER = "ink", "soft", "line", "paper"  # colours of a specification that page and picture resolve
ON_PAPER = {INK: "#16181d", SOFT: "#5b6270", LINE: "#d5d8de", PAPER: "#ffffff"}
WHY = re.compile(r"[\w.]*Error: |memory|fatal", re.IGNORECASE)  # a line of an engine's last words
SECONDS, SECONDS_EACH = 60, 5  # until drawing is given up: in all, and more for each panel or picture
FONT = "system-ui, 'Liberation Sans', sans-serif"


class NotDrawn(OutputError):
    """The process that draws failed, or took too long."""


class Control(NamedTuple):
    """A choice on a page: a variable of the figure's panels, one of ``options`` or a number up to ``most``."""

    signal: str
    label: str
    options: Sequence[str] = ()
    most: float = 0.0


class Figure(NamedTuple):
    """``panels`` are drawn beside each other, as many as there is room for; a page gives each its width.

    A panel is Vega-Lite without config and params; its colours may be ``"@ink"``, ``"@soft"``, ``"@line"``,
    ``"@paper"`` and those of the key, ``"@c1"`` to ``"@c8"``. Without a width it has that of the page. ``signals`` are
    variables of all panels, which controls and scripts of a page set: ``highlit``, the names of the page's key that are
    looked at, is always there.
    """

    name: str  # pictures/NAME.png, NAME.svg and, of a comparison, NAME.pdf
    title: str  # for those who cannot see it
    caption: str
    panels: Sequence[Mapping[str, Any]]
    table: Table | None = None  # the same as numbers
    signals: Mapping[str, Any] = {}
    width: int = 760  # of a panel in a picture
    columns: int = 4  # panels of a picture beside each other
    controls: Sequence[Control] = ()
    on_paper: Sequence[Mapping[str, Any]] = ()  # of a picture, where its panels are others than the page's


class Drawn(NamedTuple):
    """``vega``: the compiled specification of each panel, for a page."""

    vega: list[dict[str, Any]]
    svg: bytes
    png: bytes
    pdf: bytes = b""


def draw(figures: Sequence[Figure], *, pictures: bool = True, pdf: bool = False) -> dict[str, Drawn]:
    """Draw every figure; without ``pictures`` only for a page, with ``pdf`` also for a paper. Return them by name.

    Raises:
        NotDrawn: of none there is a picture then.
    """
    asked = list[tuple[dict[str, Any], list[str]]]()
    for one in figures:
        asked += [(_on_page(one, panel), ["vega"]) for panel in one.panels]
        asked += [(_on_paper(one), ["svg", "png", *["pdf"] * pdf])] * pictures
    made = iter(_rendered(asked) if asked else [])
    found = dict[str, Drawn]()
    for one in figures:
        vega = [next(made)["vega"] for _ in one.panels]
        picture = next(made) if pictures else {"svg": "", "png": ""}
        found[one.name] = Drawn(
            vega, picture["svg"].encode(), base64.b64decode(picture["png"]), base64.b64decode(picture.get("pdf", ""))
        )
    return found


@cache
def library() -> str:
    """The JavaScript that draws on a page: Vega and Vega-Embed (BSD 3-clause), 0.9 MB."""
    source = _rendered([({}, ["library"])])[0]["library"]
    return f"(() => {{\n{source}\n}})();"  # its names stay its own


def coloured(names: Sequence[str], field: str = "arm") -> dict[str, Any]:
    """Encoding by colour, by the place of the name in the page's key."""
    return {"field": field, "type": "nominal", "scale": {"domain": list(names)}, "legend": KEY}


def shaped(names: Sequence[str], field: str = "arm") -> dict[str, Any]:
    """Encoding by shape besides, as nothing is told by colour alone; the ninth name has a shape of its own."""
    shapes = [shape_of(place) for place in range(len(names))]
    return {"field": field, "type": "nominal", "scale": {"domain": list(names), "range": shapes}, "legend": KEY}


def quantity(field: str, **more: Any) -> dict[str, Any]:
    """Encoding of a number; ``more`` are properties of Vega-Lite, such as ``title``, ``axis`` and ``scale``."""
    return {"field": field, "type": "quantitative", **more}


def tooltip(*shown: tuple[str, ...]) -> list[dict[str, str]]:
    """Encoding of the text of a hover: for each field its name, its title and, for a number, its format."""
    return [dict(zip(("field", "title", "format"), one, strict=False)) for one in shown]


def shape_of(place: int) -> str:
    return SHAPES[(place + place // len(SHAPES)) % len(SHAPES)]


def faded(strong: float = 1.0, weak: float = 0.08, field: str = "arm") -> dict[str, Any]:
    """Encoding of opacity: names that are not chosen in the page's key fade."""
    test = f"!length(highlit) || indexof(highlit, datum[{json.dumps(field)}]) >= 0"
    return {"condition": {"test": test, "value": strong}, "value": weak}


def _on_page(figure: Figure, panel: Mapping[str, Any]) -> dict[str, Any]:
    fitted = {} if "width" in panel else {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    theme = _theme([f"var(--c{place})" for place in range(1, 9)])
    theme["axis"]["labelLimit"] = {"expr": "max(90, min(260, 0.3 * (containerSize()[0] || 800)))"}
    whole = {**fitted, **panel, "params": _params(figure), "config": theme}
    names = [*ON_PAPER, *(f"c{place}" for place in range(1, 9))]
    return _resolved(whole, {name: f"var(--{name})" for name in names}, with_key=False)


def _on_paper(figure: Figure) -> dict[str, Any]:
    panels = [
        {**({} if "hconcat" in panel else {"width": figure.width}), **panel}
        for panel in figure.on_paper or figure.panels
    ]
    columns = min(figure.columns, len(panels))
    whole = panels[0] if len(panels) == 1 else {"concat": panels, "columns": columns}
    whole = whole | {"params": _params(figure), "config": _theme(COLOURS) | {"background": "@paper"}, "padding": 12}
    return _resolved(whole, ON_PAPER | {f"c{place}": shade for place, shade in enumerate(COLOURS, 1)}, with_key=True)


def _params(figure: Figure) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in {"highlit": [], **figure.signals}.items()]


def _theme(colours: Sequence[str]) -> dict[str, Any]:
    texts = {"labelColor": "@ink", "titleColor": "@ink", "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": texts
        | {
            "titleFontWeight": "normal",
            "titleColor": "@soft",
            "gridColor": "@line",
            "domainColor": "@line",
            "tickColor": "@line",
            "labelLimit": 260,
            "titlePadding": 8,
            "labelPadding": 6,
        },
        "axisQuantitative": {"tickCount": 6},
        "legend": texts | {"titleFontWeight": "normal", "symbolStrokeWidth": 2},
        "title": {"color": "@ink", "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 8},
        "text": {"color": "@ink", "fontSize": 12},
        "rule": {"color": "@ink"},
        "range": {"category": list(colours)},
    }


def _resolved(value: Any, colours: Mapping[str, str], *, with_key: bool) -> Any:
    """``"@ink"`` becomes that colour; on a page no figure repeats the page's key."""
    if isinstance(value, Mapping):
        if value == KEY and not with_key:
            return None
        return {
            name: one if _is_text(name, one) else _resolved(one, colours, with_key=with_key)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_resolved(one, colours, with_key=with_key) for one in value]
    return colours.get(value[1:], value) if isinstance(value, str) and value.startswith("@") else value


def _is_text(name: str, value: Any) -> bool:
    """Whether it may be a user's."""
    return name in TEXTS or (name in ("text", "title") and isinstance(value, str))


def _rendered(asked: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> list[dict[str, Any]]:
    program = Path(__file__).with_name("render.py")
    text = NOT_DRAWN.sub(lambda found: found[1] or " ", json.dumps(asked, allow_nan=False))
    seconds = SECONDS + SECONDS_EACH * len(asked)
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(program)],
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotDrawn(f"drawing the figures took longer than {seconds} seconds, and was ended") from None
    if done.returncode:
        why = next((line.strip() for line in done.stderr.splitlines()[::-1] if WHY.match(line)), "")[:300]
        raise NotDrawn(f"drawing the figures ended with {done.returncode}{f' ({why})' if why else ''}")
    return list(json.loads(done.stdout))
