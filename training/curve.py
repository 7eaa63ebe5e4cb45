"""The learning curve as a picture: the monitored score, each loss on its own scale, the learning rate."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from files.metrics import Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec

LOSSES = ("train/loss", "train/contrastive", "train/mlm")  # and whatever else calls itself a loss
RATE = "train/lr"
NO_CURVES = ("train/", "throughput/", "time/", "step")
MOST_OTHERS = 5  # lines of one panel; with more none can be followed
MOST_LOSSES = 5
SCORE, QUIET, MARK = "#0b5394", "#7f8c99", "#c0392b"
Curve = tuple[list[int], list[float]]


class Reference(NamedTuple):
    """What the curve of a score is read against: all of it is in ``results.json``."""

    best_step: int | None = None
    intervals: Mapping[str, Sequence[float]] = {}
    before: Mapping[str, float] = {}  # of the untrained encoder
    baselines: Mapping[str, float] = {}

    def lines(self, name: str) -> dict[str, float]:
        """What stays the same over the steps, by its label."""
        found = {"untrained": self.before[name]} if name in self.before else {}
        alike = {other: value for other, value in self.baselines.items() if is_alike(other, name)}
        return found | {other.split("/")[1]: value for other, value in alike.items()}


def draw_curve(
    metrics_csv: str | Path, picture: str | Path, *, monitor: str | None, against: Reference, title: str
) -> None:
    """Draw ``metrics.csv`` into a PNG: scores on the left, the monitored one alone and large; losses and rate right."""
    import matplotlib.figure  # a quarter of a second, which only a finished run pays
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    rows = read_rows(metrics_csv)
    scores, losses = score_names(rows, monitor), loss_names(rows)[:MOST_LOSSES]
    figure = matplotlib.figure.Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(1, 5)
    others = scores[1 : 1 + MOST_OTHERS]
    if scores:
        main, *beside = _stacked(figure, grid[:3], [2, 1] if others else [1])
        _draw_score(main, scores[0], rows, against)
        for axes in beside:
            for name in others:
                axes.plot(*curve_of(rows, name), linewidth=1.1, marker=".", label=name)
            axes.set_title("other scores", loc="left", fontsize=9)
            axes.legend(fontsize=7)
    names = [*losses, *([RATE] if any(RATE in row for row in rows) else [])] or [""]
    for name, axes in zip(names, _stacked(figure, grid[3:] if scores else grid[:], [1] * len(names)), strict=True):
        axes.plot(*curve_of(rows, name), color=QUIET if name == RATE else SCORE, linewidth=1.1)
        axes.set_title("learning rate" if name == RATE else name or "nothing was logged", loc="left", fontsize=9)
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11, fontweight="bold", parse_math=False)  # a folder may be called $a$
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # such a letter is drawn as a box
        figure.savefig(picture, dpi=150, format="png")


def loss_names(rows: Sequence[Row]) -> list[str]:
    """``train/loss`` first, then its parts."""
    names = {name for row in rows for name in row if name in LOSSES or (name.startswith("train/") and "loss" in name)}
    return sorted(names, key=lambda name: (name != LOSSES[0], name))


def score_names(rows: Sequence[Row], monitor: str | None) -> list[str]:
    """The monitored score first, then development and retrieval scores, then others."""
    names = {name for row in rows for name in row if not name.startswith(NO_CURVES)}

    def rank(name: str) -> tuple[bool, bool, str]:
        return name != monitor, not any(word in name for word in ("-dev/", "mrr", "recall")), name

    return sorted(names, key=rank)


def spans_decades(values: Sequence[float]) -> bool:
    """Whether they want a logarithmic scale: perplexities begin in the thousands."""
    return bool(values) and min(values) > 0 and max(values) > 100


def curve_of(rows: Sequence[Row], name: str) -> Curve:
    """Steps and values of one column."""
    found = [(int(row["step"]), float(row[name])) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]


def _stacked(figure: Any, place: "SubplotSpec", heights: Sequence[int]) -> "list[Axes]":
    """Panels one above the other over the same steps."""
    grid = place.subgridspec(len(heights), 1, height_ratios=heights)
    panels: list[Axes] = []
    for row in range(len(heights)):
        panels.append(figure.add_subplot(grid[row], sharex=panels[0] if panels else None))
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    panels[-1].set_xlabel("optimizer step")
    return panels


def _draw_score(axes: "Axes", name: str, rows: Sequence[Row], against: Reference) -> None:
    steps, values = curve_of(rows, name)
    axes.plot(steps, values, color=SCORE, linewidth=1.8, marker="o" if len(steps) < 50 else "", markersize=4)
    axes.set_title(name, loc="left", fontsize=10)
    lines = against.lines(name)
    for place, (label, value) in enumerate(lines.items()):
        axes.axhline(value, linestyle=("--", ":", "-.")[place % 3], color=QUIET, label=f"{label} {value:.2f}")
    if against.best_step in steps:
        best = values[steps.index(against.best_step)]
        bounds = against.intervals.get(name)
        reach = [[max(0.0, best - bounds[0])], [max(0.0, bounds[1] - best)]] if bounds else None
        label = f"step {against.best_step}: {best:.2f}" + (
            f", 95 % {bounds[0]:.2f} to {bounds[1]:.2f}" if bounds else ""
        )
        axes.errorbar([against.best_step], [best], yerr=reach, fmt="o", color=MARK, capsize=4, zorder=3, label=label)
    if spans_decades([*values, *lines.values()]):
        axes.set_yscale("log")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def is_alike(baseline: str, name: str) -> bool:
    """Whether both are of the same task and metric, but for the protocol between them."""
    return baseline.count("/") == name.count("/") == 2 and baseline.split("/")[::2] == name.split("/")[::2]
