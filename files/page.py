"""One page for every report: sections of paragraphs, tables and pictures, in one file that needs no network.

The same sections make the report in Markdown; pictures are drawn by matplotlib.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from files.tables import Table, code, escaped, fenced, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
SIGNS = (b'content="contrastive-encoders"', b"--ink: #16181d")  # of a page of ours; the latter of earlier releases


class Picture(NamedTuple):
    title: str  # for those who cannot see it
    image: bytes  # a PNG or an SVG
    caption: str = ""
    name: str = ""  # pictures/NAME.png beside a report in Markdown

    @property
    def address(self) -> str:
        """The image itself, as a data URL."""
        kind = "png" if self.image.startswith(b"\x89PNG") else "svg+xml"
        return f"data:image/{kind};base64,{base64.b64encode(self.image).decode()}"


class Section(NamedTuple):
    """Paragraphs, tables and pictures; a ``markupsafe.Markup`` among them is shown by a page alone, as it is."""

    title: str
    parts: Sequence[str | Table | Picture]
    name: str = ""  # its id in a page; by default its title

    @property
    def anchor(self) -> str:
        return self.name or self.title.replace(" ", "-")


def page(
    title: str, sections: Sequence[Section], lead: Sequence[str] = (), *, style: str = "", interactive: bool = False
) -> str:
    """The HTML; light and dark. ``style``: more CSS. ``interactive``: tables can be sorted and filtered (a script)."""
    template = environment(Path(__file__).parent).get_template("page.html.j2")
    return template.render(title=title, sections=sections, lead=lead, style=style, interactive=interactive) + "\n"


def is_page(path: Path) -> bool:
    """Whether a page of ours lies there, which another may replace."""
    with path.open("rb") as file:
        begin = file.read(4096)
    return any(sign in begin for sign in SIGNS)


def environment(folder: Path) -> Any:
    """Jinja's, over the templates of a folder: every text of a page is escaped, one of Markdown by a filter."""
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader(folder)
    found = Environment(loader=loader, trim_blocks=True, autoescape=lambda name: str(name).endswith(".html.j2"))
    found.filters |= {"escaped": escaped, "code": code, "fenced": fenced}
    found.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return found


def in_markdown(title: str, sections: Sequence[Section], lead: Sequence[str] = ()) -> str:
    """The same report; pictures that have a name are linked, as ``pictures/NAME.png``."""
    blocks = [f"# {escaped(title)}", *map(escaped, lead)]
    for section in sections:
        blocks.append(f"## {escaped(section.title)}")
        for part in section.parts:
            if isinstance(part, Table):
                about = [f"**{escaped(part.title)}.**"] * bool(part.title) + [escaped(part.note)] * bool(part.note)
                blocks += [*([" ".join(about)] if about else []), markdown(part)]
            elif isinstance(part, Picture):
                about_it = escaped(part.caption or part.title)
                blocks += [f"![{about_it}](pictures/{quote(part.name)}.png)"] if part.name else []
            elif not hasattr(part, "__html__"):
                blocks.append(escaped(part))
    return "\n\n".join(blocks) + "\n"


def draw(
    paint: Callable[["Figure"], None],
    size: tuple[float, float],
    kinds: Sequence[str] = ("png",),
    settings: Mapping[str, Any] | None = None,
) -> list[bytes]:
    """What ``paint`` draws on a figure of ``size`` inches, once, as an image of each kind: png, svg.

    The same drawing gives the same bytes. ``settings`` are matplotlib's; a ``$`` in a text is a dollar.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    own: Any = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "figure", **(settings or {})}
    images = []
    with matplotlib.rc_context(own):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        for kind in kinds:
            image = io.BytesIO()
            figure.savefig(image, format=kind, dpi=DPI, facecolor="white", metadata=metadata[kind])
            images.append(image.getvalue())
    return images
