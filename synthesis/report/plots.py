"""The plots of a report as PNGs in data URLs. Labels of any script: in a font found here that has it, or as numbers."""

import base64
import functools
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from synthesis.report.measures import BINS, Measured

WITHOUT_LETTERS = ("Last Resort", "Emoji")  # fonts of boxes, and of pictures that matplotlib cannot draw


class Names(NamedTuple):
    """How labels are drawn."""

    fonts: list[str]  # the first that has a letter draws it
    shown: dict[str, str]  # label -> itself, or #1 where no font has it

    def numbered(self) -> dict[str, str]:
        """Number -> label."""
        return {shown: label for label, shown in self.shown.items() if shown != label}


def names_of(labels: Sequence[str]) -> Names:
    """Find fonts for the labels' letters among those installed; those of matplotlib come first."""
    import matplotlib

    wanted = {letter for label in labels for letter in label if not letter.isspace()}
    fonts = [str(matplotlib.rcParams["font.sans-serif"][0])]
    wanted -= {letter for letter in wanted if ord(letter) in _letters_of(_path_of(fonts[0]))}
    for name, path in _others():
        if not wanted:
            break
        if found := {letter for letter in wanted if ord(letter) in _letters_of(path)}:
            fonts.append(name)
            wanted -= found
    shown = {
        label: f"#{place}" if wanted & set(label) or label.startswith("_") else label  # _: not in matplotlib's legends
        for place, label in enumerate(labels, start=1)
    }
    return Names(fonts, shown)


def draw_plots(
    measured: Mapping[str, Measured], counts: Mapping[str, Any], names: Names, *, pairs: bool
) -> Iterator[str]:
    """``img`` elements. ``counts`` are a manifest's."""
    labels = list(measured)

    def fates(axes: Any) -> None:
        below = [0] * len(labels)
        for fate in ["accepted", *counts["rejected"]]:
            found = [counts["labels"].get(label, {}) for label in labels]
            heights = [
                one.get("accepted", 0) if fate == "accepted" else one.get("rejected", {}).get(fate, 0) for one in found
            ]
            axes.bar(range(len(labels)), heights, bottom=below, label=fate)
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axes.set_xticks(range(len(labels)), [names.shown[label] for label in labels])
        axes.set(xlabel="label", ylabel="sampled texts")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the bars

    drawn: list[tuple[str, Callable[[Any], None]]] = [
        ("What became of the sampled texts", fates),
        ("Lengths", partial(_lengths, measured, names.shown)),
    ]
    drawn += [("Lexical overlap", partial(_overlaps, measured, names.shown))] if pairs else []
    for title, draw in drawn:
        yield f'<img alt="{html.escape(title)}" src="{_picture(title, draw, names.fonts)}">'


def draw_triplet_plots(
    measured: Mapping[str, Measured], broken: Mapping[str, int], curve: Mapping[str, int], rows: int
) -> Iterator[str]:
    """``img`` elements. ``broken`` and ``curve`` are a manifest's; ``curve`` is empty where nothing was judged."""
    fonts = names_of([]).fonts

    def thresholds(axes: Any) -> None:
        axes.plot([float(one) for one in curve], [number / max(rows, 1) for number in curve.values()], marker="o")
        axes.set(xlabel="threshold", ylabel="share of the sentences", ylim=(0, None))

    def rules(axes: Any) -> None:
        axes.barh(list(broken), [number / max(rows, 1) for number in broken.values()])
        axes.invert_yaxis()
        axes.set(xlabel="share of the sentences that break it", xlim=(0, 1))

    shown = {direction: direction for direction in measured}
    drawn = [("Accepted at other thresholds", thresholds)] if curve else []
    drawn += [("Rules", rules)] if broken else []
    drawn += [
        ("Lengths", partial(_lengths, measured, shown)),
        ("Lexical overlap", partial(_overlaps, measured, shown)),
    ]
    for title, draw in drawn:
        yield f'<img alt="{html.escape(title)}" src="{_picture(title, draw, fonts)}">'


def _lengths(measured: Mapping[str, Measured], shown: Mapping[str, str], axes: Any) -> None:
    for label, one in measured.items():
        axes.plot([count / max(one.texts, 1) for count in one.words], label=shown[label])
    axes.set(xlabel="words", ylabel="share of the texts")
    axes.legend(title="label")


def _overlaps(measured: Mapping[str, Measured], shown: Mapping[str, str], axes: Any) -> None:
    places = [(place + 0.5) / BINS for place in range(BINS)]
    for label, one in measured.items():
        axes.plot(places, [count / max(one.texts, 1) for count in one.overlaps], label=shown[label])
    axes.set(xlabel="lexical overlap of the two sentences (Jaccard)", ylabel="share of the texts")
    axes.legend(title="label")


def _picture(title: str, draw: Callable[[Any], None], fonts: Sequence[str]) -> str:
    """A PNG as a data URL."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = io.BytesIO()
    with matplotlib.rc_context({"text.parse_math": False, "font.family": list(fonts)}):  # a label may hold $
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.set_title(title)
        draw(axes)
        figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _path_of(name: str) -> str:
    from matplotlib import font_manager

    return str(font_manager.findfont(name))


def _others() -> Iterator[tuple[str, str]]:
    """Name and file of the other fonts here, in a fixed order."""
    from matplotlib import font_manager

    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        plain = font.style == "normal" and font.weight in (400, "normal", "regular", "book")
        if plain and not any(word in font.name for word in WITHOUT_LETTERS) and Path(font.fname).is_file():
            yield font.name, font.fname


@functools.cache
def _letters_of(path: str) -> frozenset[int]:
    """Code points; none of a file that is no sound font."""
    from matplotlib import ft2font

    try:
        return frozenset(ft2font.FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
