"""What is drawn of the arms: leaderboard, curves, subsets, similarities, the plane, the map of sentences."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from comparison.arms import Arm
from comparison.collect import Run
from comparison.contrasts import Headline, Standing, replicates_of, same_items, values_of
from comparison.drawing import INK, Picture, colour, marker, say_over, wrapped
from comparison.probes import Probe
from comparison.statistics import interval, spread
from comparison.tables import Cell, Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OVER = ("optimizer step", "real tokens", "seconds of training")
BANDS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5.01))  # of ratings from 0 to 5


def leaderboard(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing]) -> Picture:
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
        axes.set_yticks(range(len(standings)), [wrapped(arms[one.arm].label) for one in standings])
        axes.invert_yaxis()
        axes.set_xlabel(headline.name)
        axes.grid(axis="x", alpha=0.25)

    return Picture(
        "leaderboard", "Leaderboard", "Mean over seeds (marker), seeds (strokes), 95 % interval over test items (bar).",
        (7.5, 0.8 + 0.42 * len(standings)), draw,
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
                    label = wrapped(arm.label, 40) if number_of_run == 0 else None
                    few = marker(place) if len(x) < 30 else ""
                    axes.plot(
                        x, y, color=colour(place), marker=few, markersize=3.5, linewidth=1.2, alpha=0.8, label=label
                    )
            axes.set_xlabel(over)
            axes.grid(alpha=0.25)
        figure.axes[0].set_ylabel(name)
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=min(4, len(arms)),
            frameon=False,
        )

    return Picture(
        stem, name, f"{what.capitalize()}; a line is a run. Tokens are spread evenly over the steps.", (10, 3.4), draw
    )


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
    table = Table("subsets", "Subsets", "Spearman x 100, mean over seeds.", ["subset", *(arm.label for arm in arms)],
                  [[Cell(name), *map(number, row)] for name, row in zip(names, grid, strict=True)],
                  frozenset(range(1, len(arms) + 1)))  # fmt: skip
    caption = "Spearman's correlation x 100 of each subset, mean over seeds; the darker, the higher."
    return Picture("subsets", "STS, subset by subset", caption, (2.5 + 1.1 * len(arms), 0.8 + 0.24 * len(names)),
                   heat(names, [wrapped(arm.label, 12) for arm in arms], grid), table)  # fmt: skip


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
        axes.set_xticks(
            range(len(columns)),
            columns,
            rotation=20 if max(map(len, columns)) > 9 else 0,
            ha="right" if max(map(len, columns)) > 9 else "center",
        )
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return draw


def similarities(arms: Sequence[Arm], headline: Headline) -> Picture | None:
    """How cosines of pairs of one rating lie, for each arm's first run."""
    tasks = [score.split("/")[0] for score in headline.tasks]
    tasks = sorted(tasks, key=lambda task: task != "stsb")
    for task in tasks:
        first = [arm.runs[0].items for arm in arms]
        if all(items is not None and task in items.cosines for items in first):
            break
    else:
        return None

    def draw(figure: "Figure") -> None:
        for axes, arm in zip(np.atleast_1d(figure.subplots(1, len(arms), sharey=True)), arms, strict=True):
            items = arm.runs[0].items
            assert items is not None
            cosines, gold = items.cosines[task], items.gold[task]
            edges = np.linspace(min(0.0, float(cosines.min())), 1, 26)
            for place, (low, high) in enumerate(BANDS):
                inside = cosines[(gold >= low) & (gold < high)]
                if len(inside):
                    density, _ = np.histogram(inside, edges, density=True)
                    axes.stairs(
                        density / (density.max() or 1) * 0.9 + place,
                        edges,
                        baseline=place,
                        fill=True,
                        color=colour(0),
                        alpha=0.35 + 0.13 * place,
                    )
            axes.set_yticks(np.arange(5) + 0.4, ["0 to 1", "1 to 2", "2 to 3", "3 to 4", "4 to 5"])
            axes.set_title(wrapped(arm.label), fontsize=9, color=INK)
            axes.set_xlabel("cosine")
        figure.axes[0].set_ylabel(f"rating in {task}")

    caption = (
        f"Cosines of the pairs of {task} by their rating, first run of each arm. Better encoders move the rows apart."
    )
    return Picture(
        "similarities", "Similarities against ratings", caption, (max(4.0, 2.3 * len(arms) + 0.6), 3.4), draw
    )


def plane(arms: Sequence[Arm], headline: Headline, probes: Sequence[Probe]) -> Picture | None:
    """Alignment and uniformity of each probed run, the score beside the point; towards the lower left is better."""
    known = [(arm, probe) for arm, probe in zip(arms, probes, strict=False) if probe.alignment is not None]
    if not known:
        return None
    means = [spread(values_of(arm, headline, headline.name)).mean for arm, _ in known]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for place, ((arm, probe), mean) in enumerate(zip(known, means, strict=True)):
            point = axes.scatter(
                [probe.uniformity], [float(probe.alignment or 0)], s=70, color=colour(place), marker=marker(place)
            )
            say_over(point, [f"{arm.label}: {mean:.2f}"])
            axes.annotate(
                f"{arm.label} {mean:.1f}",
                (probe.uniformity, probe.alignment),
                xytext=(7, 4),
                textcoords="offset points",
                fontsize=8,
                color=INK,
            )
        axes.set(xlabel="uniformity (lower: spread out)", ylabel="alignment (lower: pairs close)")
        axes.margins(0.25)
        axes.grid(alpha=0.25)

    table = Table("plane", "Alignment and uniformity", "", ["arm", "alignment", "uniformity", headline.name],
                  [[Cell(arm.label), number(probe.alignment, 3), number(probe.uniformity, 3), number(mean)]
                   for (arm, probe), mean in zip(known, means, strict=True)],
                  frozenset({1, 2, 3}))  # fmt: skip
    return Picture(
        "plane",
        "Alignment and uniformity",
        "Wang and Isola's plane, of each arm's first run: towards the lower left is better.",
        (5.6, 4.2),
        draw,
        table,
    )


def sentence_map(arms: Sequence[Arm], probes: Sequence[Probe], how: str) -> Picture | None:
    """The sentences in two dimensions under each arm's first encoder, in the first map's colours."""
    if not probes or not len(probes[0].sentences):
        return None
    shade = stats.rankdata(probes[0].places[:, 0])

    def draw(figure: "Figure") -> None:
        for axes, arm, probe in zip(np.atleast_1d(figure.subplots(1, len(probes))), arms, probes, strict=False):
            points = axes.scatter(*probe.places.T, c=shade, cmap="viridis", s=11, alpha=0.8, linewidths=0)
            say_over(points, probe.sentences)
            axes.set_title(wrapped(arm.label), fontsize=9, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])

    caption = f"{len(probes[0].sentences)} sentences by {how}, first run of each arm; coloured as in the first map."
    return Picture("map", "Map of sentences", caption, (max(4.5, 3.6 * len(probes)), 3.6), draw)
