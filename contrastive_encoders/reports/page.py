"""HTML pages of reports: sections of paragraphs, tables, and figures in one file without external resources.

The Markdown report is made from the same sections.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from contrastive_encoders.reports.figure import Figure, RenderedFigure, draw, library, shape_of
from contrastive_encoders.reports.tables import Table, code, escape, fence, markdown

OUTLINES = {  # of a shape of the key, around 0
    "circle": "M5,0A5,5,0,1,1,-5,0A5,5,0,1,1,5,0Z",
    "square": "M-5,-5H5V5H-5Z",
    "diamond": "M0,-6L5,0L0,6L-5,0Z",
    "triangle-up": "M0,-5L5,5H-5Z",
    "cross": "M-6,-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z",
    "triangle-down": "M0,5L5,-5H-5Z",
    "triangle-right": "M5,0L-5,5V-5Z",
    "triangle-left": "M-5,0L5,5V-5Z",
}


class ReportSection(NamedTuple):
    """Section of a report: paragraphs, tables, and figures.

    A ``markupsafe.Markup`` is only shown on a page, unescaped.
    """

    title: str
    parts: Sequence[str | Table | Figure]
    name: str = ""  # id in a page; the default is the title

    @property
    def anchor(self) -> str:
        return self.name or self.title.replace(" ", "-")

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]

    @property
    def tables(self) -> list[Table]:
        return [part for part in self.parts if isinstance(part, Table)]


def page(
    title: str,
    sections: Sequence[ReportSection],
    lead: Sequence[str] = (),
    *,
    style: str = "",
    key: Sequence[str] = (),
    drawn: Mapping[str, RenderedFigure] | None = None,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> str:
    """Return a report as an HTML page, with a light and a dark style.

    Args:
        title: title of the page.
        sections: sections of the page.
        lead: paragraphs before the sections.
        style: more CSS.
        key: names that figures distinguish by color, in the order of their colors; selecting some fades the others.
        drawn: the drawn figures, if they are already drawn.
        scripts: more JavaScript, only from this package, which finds ``data`` as ``report.data``.
        data: data of the scripts; everything that a user has written must be passed as data.
    """
    here = Path(__file__).parent
    figures = [figure for section in sections for figure in section.figures]
    if drawn is None:
        drawn = draw(figures, pictures=False)
    page_data = {"figures": {figure.name: drawn[figure.name].vega for figure in figures}, **(data or {})}
    template = environment(here).get_template("page.html.j2")
    return (
        template.render(
            title=title,
            sections=sections,
            lead=lead,
            style=style,
            key=key,
            data=page_data,
            outlines=[OUTLINES[shape_of(place)] for place in range(len(key))],
            css=(here / "page.css").read_text(encoding="utf-8"),
            scripts=[*([library()] if figures else []), (here / "page.js").read_text(encoding="utf-8"), *scripts],
        )
        + "\n"
    )


def environment(folder: Path) -> Any:
    """Return a Jinja environment for the templates in a folder. HTML is escaped automatically, Markdown by a filter."""
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader(folder)
    jinja = Environment(loader=loader, trim_blocks=True, autoescape=lambda name: str(name).endswith(".html.j2"))
    jinja.filters |= {"escaped": escape, "code": code, "fenced": fence}
    jinja.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return jinja


def to_markdown(title: str, sections: Sequence[ReportSection], lead: Sequence[str] = ()) -> str:
    """Return the report as Markdown. Figures are linked as ``pictures/NAME.png``."""
    blocks = [f"# {escape(title)}", *map(escape, lead)]
    for section in sections:
        blocks.append(f"## {escape(section.title)}")
        for part in section.parts:
            if isinstance(part, Table):
                heading = [f"**{escape(part.title)}.**"] * bool(part.title) + [escape(part.note)] * bool(part.note)
                blocks += [*([" ".join(heading)] if heading else []), markdown(part)]
            elif isinstance(part, Figure):
                blocks.append(f"![{escape(part.caption or part.title)}](pictures/{quote(part.name)}.png)")
            elif not hasattr(part, "__html__"):
                blocks.append(escape(part))
    return "\n\n".join(blocks) + "\n"
