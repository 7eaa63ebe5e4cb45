"""The learning curve as a picture: losses on the left, scores on the right."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from files.metrics import Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = ("train/loss", "train/contrastive", "train/mlm")  # and whatever else calls itself a loss
NO_CURVES = ("train/", "throughput/", "time/", "step")
MOST_SCORES = 6  # more lines than that, and none can be followed
Curve = tuple[list[int], list[float]]


def draw_curve(
    metrics_csv: str | Path,
    picture: str | Path,
    *,
    losses: Sequence[str] | None = None,
    scores: Sequence[str] | None = None,
    monitor: str | None = None,
    baselines: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw ``metrics.csv`` into a PNG.

    ``losses`` defaults to the training loss and its parts, ``scores`` to the monitored one and as many
    others as can be told apart. ``baselines`` maps names to values in 0..100; each becomes a dashed line.
    """
    import matplotlib.figure  # a quarter of a second, which only a finished run pays
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    rows = read_rows(metrics_csv)
    figure = matplotlib.figure.Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw(left, {name: curve_of(rows, name) for name in (losses or loss_names(rows))}, marker="")
    left.set(xlabel="optimizer step", ylabel="training loss")
    _draw(right, {name: curve_of(rows, name) for name in (scores or score_names(rows, monitor))}, marker="o")
    for place, (name, value) in enumerate(sorted((baselines or {}).items())):
        right.axhline(
            value, linestyle="--", color=("black", "dimgray", "darkgray")[place % 3], label=f"{name} (baseline)"
        )
    right.set(xlabel="optimizer step", ylabel="score (0 to 100)")
    if any(abs(value) > 100 for line in right.get_lines() for value in line.get_ydata()):
        right.set(yscale="symlog", ylabel="score")  # perplexities begin in the thousands
    for axes in (left, right):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
        else:
            axes.text(0.5, 0.5, "nothing was logged", ha="center", transform=axes.transAxes)
    if title:
        figure.suptitle(title)
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

    return sorted(names, key=rank)[:MOST_SCORES]


def curve_of(rows: Sequence[Row], name: str) -> Curve:
    """Steps and values of one column."""
    found = [(int(row["step"]), float(row[name])) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]


def _draw(axes: "Axes", curves: Mapping[str, Curve], marker: str) -> None:
    for name, (steps, values) in curves.items():
        axes.plot(steps, values, marker=marker if len(steps) < 50 else "", markersize=4, linewidth=1.3, label=name)
