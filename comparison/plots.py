"""What is drawn of the arms' scores: leaderboard, curves while training, subsets."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from comparison.arms import Arm
from comparison.collect import Run
from comparison.contrasts import Headline, Standing, replicates_of, same_items, values_of
from comparison.drawing import INK, Picture, colour, legend, legend_height, marker, wrapped
from comparison.statistics import interval
from comparison.tables import NUMBER
from files import tables
from files.tables import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TURNED = 12  # letters of a column's name: beyond, it stands upright
WIDE = 10.0  # inches of a row of axes
OVER = ("optimizer step", "real tokens", "seconds of training")


def leaderboard(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing]) -> Picture:
    labels = [wrapped(arms[one.arm].label, 30) for one in standings]
    lines = max(label.count("\n") + 1 for label in labels)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for place, standing in enumerate(standings):
            arm, shade = arms[standing.arm], colour(standing.arm)
            values = values_of(arm, headline, headline.name)
            kept = replicates_of(arm, headline, headline.name) if same_items(arms, headline.tasks) else None
            if kept is not None:
                axes.hlines(place, *interval(kept), color=shade, linewidth=3, alpha=0.5)
            axes.plot(values, np.full(len(values), place), "|", color=INK, markersize=9)
            axes.plot([values.mean()], [place], marker(standing.arm), color=shade, markersize=8)
        axes.set_yticks(range(len(standings)), labels)
        axes.invert_yaxis()
        axes.set_xlabel(headline.name)
        axes.grid(axis="x", alpha=0.25)

    return Picture(
        "leaderboard", "Leaderboard", "Mean over seeds (marker), seeds (strokes), 95 % interval over test items (bar).",
        (7.5, 0.8 + max(0.42, 0.17 * lines + 0.08) * len(standings)), draw,
    )  # fmt: skip


def curves(arms: Sequence[Arm]) -> list[Picture]:
    """Of the score that was computed while training, and of the loss; each over steps, tokens and seconds."""
    logged = {name for arm in arms for run in arm.runs for row in run.rows for name in row}
    monitored = [str(run.results["recipe"].get("monitor")) for arm in arms for run in arm.runs]
    scores = [name for name in logged if not name.startswith(("train/", "throughput/", "time/")) and name != "step"]
    order = sorted(scores, key=lambda name: (-monitored.count(name), not name.endswith("cosine/spearman"), name))
    pictures = [_curve(arms, order[0], "score while training", "training-score")] if order else []
    if "train/loss" in logged:
        pictures.append(
            _curve(
                arms, "train/loss", "training loss; losses of different objectives are not comparable", "training-loss"
            )
        )
    return pictures


def _curve(arms: Sequence[Arm], name: str, what: str, stem: str) -> Picture:
    def draw(figure: "Figure") -> None:
        for axes, over, axis in zip(figure.subplots(1, 3, sharey=True), OVER, range(3), strict=True):
            for place, arm in enumerate(arms):
                for number_of_run, run in enumerate(arm.runs):
                    x, y = curve_of(run, name, axis)
                    label = arm.label if number_of_run == 0 else None
                    few = marker(place) if len(x) < 30 else ""
                    axes.plot(
                        x, y, color=colour(place), marker=few, markersize=3.5, linewidth=1.2, alpha=0.8, label=label
                    )
            axes.set_xlabel(over)
            axes.grid(alpha=0.25)
        figure.axes[0].set_ylabel(name)
        legend(figure, WIDE)

    return Picture(
        stem, name, f"{what.capitalize()}; a line is a run. Tokens are spread evenly over the steps.",
        (WIDE, 3.0 + legend_height([arm.label for arm in arms], WIDE)), draw,
    )  # fmt: skip


def curve_of(run: Run, name: str, axis: int) -> tuple[list[float], list[float]]:
    """``axis`` 0: steps, 1: real tokens, 2: seconds."""
    rows = [row for row in run.rows if name in row and "step" in row]
    steps = [row["step"] for row in rows]
    if axis == 1:
        spent = run.results["spent"]
        steps = [step * spent["real_tokens"] / max(1, spent["steps"]) for step in steps]
    if axis == 2:
        timed = [(row["step"], row["time/elapsed_s"]) for row in run.rows if "time/elapsed_s" in row] or [(0.0, 0.0)]
        at, elapsed = np.array([(0.0, 0.0), *timed]).T
        steps = np.interp(steps, at, elapsed).tolist()
    return steps, [row[name] for row in rows]


def subsets(arms: Sequence[Arm], headline: Headline) -> Picture | None:
    """Spearman's correlation of each subset of each STS task, mean over seeds."""
    names, columns = list[str](), list[list[float]]()
    tasks = [score.split("/")[0] for score in headline.tasks]
    for place, arm in enumerate(arms):
        found = dict[str, list[float]]()
        for run in arm.runs:
            for task in tasks:
                if run.items and task in run.items.cosines:
                    for subset in dict.fromkeys(run.items.subsets[task].tolist()):
                        rows_N = run.items.subsets[task] == subset
                        rho = stats.spearmanr(run.items.cosines[task][rows_N], run.items.gold[task][rows_N]).statistic
                        label = task if subset == task else f"{task} {subset}"
                        found.setdefault(label, []).append(100 * float(np.nan_to_num(rho)))
        if place and list(found) != names:
            return None
        names = list(found)
        columns.append([float(np.mean(values)) for values in found.values()])
    if not names:
        return None
    grid = np.array(columns).T
    rows = [[name, *map(float, row)] for name, row in zip(names, grid, strict=True)]
    heads = [Column("subset"), *tables.columns(*(arm.label for arm in arms), number=NUMBER)]
    table = Table(heads, rows, "Subsets", "Spearman x 100, mean over seeds.", "subsets")
    caption = "Spearman's correlation x 100 of each subset, mean over seeds; the darker, the higher."
    return Picture("subsets", "STS, subset by subset", caption, (2.5 + 0.8 * len(arms), 1.6 + 0.24 * len(names)),
                   heat(names, [arm.label for arm in arms], grid), table)  # fmt: skip


def heat(rows: Sequence[str], columns: Sequence[str], grid: np.ndarray, digits: int = 1) -> Callable[["Figure"], None]:
    """Cells with their numbers in them."""

    def draw(figure: "Figure") -> None:
        axes: Axes = figure.subplots()
        known = grid[~np.isnan(grid)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        axes.imshow(
            grid,
            cmap="Blues",
            aspect="auto",
            vmin=low - 0.15 * (high - low + 1e-9),
            vmax=high + 0.25 * (high - low + 1e-9),
        )
        for (row, column), value in np.ndenumerate(grid):
            if not np.isnan(value):
                dark = value > low + 0.72 * (high - low)
                axes.text(
                    column,
                    row,
                    f"{value:.{digits}f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else "#101010",
                )
        longest = max(map(len, columns))
        upright = longest > TURNED and len(columns) > 1
        shown = [wrapped(one, 26) for one in columns]
        axes.set_xticks(range(len(columns)), shown, rotation=90 if upright else 0, fontsize=8)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return draw
