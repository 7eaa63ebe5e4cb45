"""The plots of a report. Labels of any script: in a font found here that has it, or as numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from files.page import Picture, draw
from synthesis.report.measures import BINS, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (7, 3.6)  # inches
WITHOUT_LETTERS = ("Last Resort", "Emoji")  # fonts of boxes, and of pictures that matplotlib cannot draw


class Names(NamedTuple):
    """How labels are drawn."""

    fonts: list[str]  # the first that has a letter draws it
    shown: dict[str, str]  # label -> itself, or #1 where no font has it

    def numbered(self) -> dict[str, str]:
        """Number -> label."""
        return {shown: label for label, shown in self.shown.items() if shown != label}


def names_of(labels: Sequence[str]) -> Names:
    """Find fonts for the labels' letters among those that matplotlib knows; its own come first."""
    from matplotlib import rcParams
    from matplotlib.font_manager import findfont, fontManager

    own = str(rcParams["font.sans-serif"][0])
    missing = {letter for label in labels for letter in label if not letter.isspace()} - _letters_of(findfont(own))
    fonts = [own]
    for name, path in sorted((font.name, font.fname) for font in fontManager.ttflist if _is_plain(font)):
        if missing and (found := missing & _letters_of(path)):
            fonts.append(name)
            missing -= found
    shown = {
        label: f"#{place}" if missing & set(label) or label.startswith("_") else label  # _: not in matplotlib's legends
        for place, label in enumerate(labels, start=1)
    }
    return Names(fonts, shown)


def _is_plain(font: Any) -> bool:
    regular = font.style == "normal" and font.weight in (400, "normal", "regular", "book")
    return regular and not any(word in font.name for word in WITHOUT_LETTERS)


def _letters_of(path: str) -> set[str]:
    """None of a file that is no sound font."""
    from matplotlib.font_manager import get_font

    try:
        return set(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return set()


def draw_plots(
    measured: Mapping[str, Measured], counts: Mapping[str, Any], names: Names, *, pairs: bool
) -> list[Picture]:
    """Of texts that were written for labels. ``counts`` are a manifest's."""
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

    overlaps = [_overlaps(measured, names)] if pairs else []
    return [_picture("What became of the sampled texts", fates, names), _lengths(measured, names), *overlaps]


def draw_triplet_plots(
    measured: Mapping[str, Measured], broken: Mapping[str, int], curve: Mapping[str, int], rows: int
) -> list[Picture]:
    """``broken`` and ``curve`` are a manifest's; ``curve`` is empty where nothing was judged."""
    names = names_of(list(measured))

    def thresholds(axes: Any) -> None:
        axes.plot([float(one) for one in curve], [number / max(rows, 1) for number in curve.values()], marker="o")
        axes.set(xlabel="threshold", ylabel="share of the sentences", ylim=(0, None))

    def rules(axes: Any) -> None:
        axes.barh(list(broken), [number / max(rows, 1) for number in broken.values()])
        axes.invert_yaxis()
        axes.set(xlabel="share of the sentences that break it", xlim=(0, 1))

    return [
        *([_picture("Accepted at other thresholds", thresholds, names)] if curve else []),
        *([_picture("Rules", rules, names)] if broken else []),
        _lengths(measured, names), _overlaps(measured, names),
    ]  # fmt: skip


def _lengths(measured: Mapping[str, Measured], names: Names) -> Picture:
    def paint(axes: Any) -> None:
        for label, one in measured.items():
            axes.plot([count / max(one.texts, 1) for count in one.words], label=names.shown[label])
        axes.set(xlabel="words", ylabel="share of the texts")
        axes.legend(title="label")

    return _picture("Lengths", paint, names)


def _overlaps(measured: Mapping[str, Measured], names: Names) -> Picture:
    def paint(axes: Any) -> None:
        middles = [(place + 0.5) / BINS for place in range(BINS)]
        for label, one in measured.items():
            axes.plot(middles, [count / max(one.texts, 1) for count in one.overlaps], label=names.shown[label])
        axes.set(xlabel="lexical overlap of the two sentences (Jaccard)", ylabel="share of the texts")
        axes.legend(title="label")

    return _picture("Lexical overlap", paint, names)


def _picture(title: str, paint: Callable[[Any], None], names: Names) -> Picture:
    def on_figure(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.set_title(title)
        paint(axes)

    return Picture(title, draw(on_figure, SIZE, settings={"font.family": names.fonts})[0])
