"""What is drawn of arms that differ in settings: a heat map over two or three of them, and parallel coordinates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.arms import Arm, own_settings, short
from comparison.contrasts import Headline, values_of
from comparison.drawing import COLOURS, INK, Picture, colour, legend, marker
from comparison.plots import heat
from comparison.statistics import spread
from comparison.tables import NUMBER
from files import tables
from files.tables import Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANCHORS, POSITIVES, TEMPERATURE = "data.anchors_per_document", "data.positives_per_anchor", "model.temperature"

LABELS = 8  # of an axis, at most
WIDTH = 7.0  # inches


def sweep_pictures(arms: Sequence[Arm], headline: Headline) -> list[Picture]:
    """Nothing where the arms are of several objectives or differ in one setting only."""
    if len({arm.runs[0].results["objective"] for arm in arms}) > 1 or len(arms) < 3:
        return []
    keys = [key for key in own_settings(arms) if all(key in arm.settings for arm in arms)]
    found = [_over_settings(arms, headline, keys), _parallel(arms, headline, keys)]
    return [one for one in found if one is not None]


def _over_settings(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Picture | None:
    """A and P downwards, tau across, where those were swept, else the first two settings; over others it averages.

    What was drawn at random would make a map of empty cells; it is drawn as points.
    """
    rows = [key for key in (ANCHORS, POSITIVES) if key in keys] if TEMPERATURE in keys else []
    across = TEMPERATURE if rows else next(iter(keys[1:]), None)
    rows = rows or list(keys[:1])
    if across is None:
        return None
    means = dict[tuple[Any, Any], list[float]]()
    for arm in arms:
        place = (tuple(_plain(arm.settings[key]) for key in rows), _plain(arm.settings[across]))
        means.setdefault(place, []).extend(values_of(arm, headline, headline.name))
    if drawn := next((key for key in (across, *rows) if _drawn_at_random(arms, key)), None):
        return _points(arms, headline, drawn, next(key for key in (*rows, across) if key != drawn))
    return _heat_map(headline, means, rows, across, [key for key in keys if key not in (*rows, across)])


def _drawn_at_random(arms: Sequence[Arm], key: str) -> bool:
    """Numbers of which nearly every arm has another."""
    values = [arm.settings[key] for arm in arms]
    different = {value for value in values if isinstance(value, int | float)}
    return len(different) > max(4, 0.8 * len(arms)) and all(isinstance(value, int | float) for value in values)


def _heat_map(
    headline: Headline,
    means: dict[tuple[Any, Any], list[float]],
    rows: Sequence[str],
    across: str,
    others: Sequence[str],
) -> Picture:
    down = sorted({place[0] for place in means}, key=_order)
    wide = sorted({place[1] for place in means}, key=_order)
    grid = np.array([[np.mean(means.get((row, column), [np.nan])) for column in wide] for row in down])
    names = [
        "A/P " + "/".join(map(str, row))
        if list(rows) == [ANCHORS, POSITIVES]
        else ", ".join(f"{key}={_shown(value)}" for key, value in zip(map(short, rows), row, strict=True))
        for row in down
    ]
    columns = [f"{short(across)} {_shown(value)}" for value in wide]
    rows_of_table = [
        [name, *(None if np.isnan(value) else float(value) for value in row)]
        for name, row in zip(names, grid, strict=True)
    ]
    table = Table([Column(""), *tables.columns(*columns, number=NUMBER)], rows_of_table, "Settings", name="sweep")
    caption = f"{headline.name}, mean over seeds" + (f" and over {', '.join(others)}" if others else "") + "."
    size = (2.6 + 1.1 * len(wide), 1.0 + 0.4 * len(down))
    return Picture(
        "sweep", f"{' and '.join(rows)} against {across}", caption, size, heat(names, columns, grid, 2), table
    )


def _points(arms: Sequence[Arm], headline: Headline, across: str, by: str) -> Picture:
    """A point for each setting, over the one with the most values."""
    values = sorted({_plain(arm.settings[by]) for arm in arms}, key=_order)
    told_apart = values if len(values) <= len(COLOURS) else [None]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for place, value in enumerate(told_apart):
            inside = [arm for arm in arms if value is None or _plain(arm.settings[by]) == value]
            axes.scatter(
                [arm.settings[across] for arm in inside],
                [spread(values_of(arm, headline, headline.name)).mean for arm in inside],
                s=40, color=colour(place), marker=marker(place), label=f"{short(by)} {_shown(value)}",
            )  # fmt: skip
        known = [float(arm.settings[across]) for arm in arms]
        if min(known) > 0 and max(known) > 10 * min(known):
            axes.set_xscale("log")
        axes.set(xlabel=short(across), ylabel=headline.name)
        axes.grid(alpha=0.25)
        if len(told_apart) > 1:
            legend(figure, WIDTH)

    caption = f"{headline.name}, mean over seeds; a point is a setting."
    return Picture("sweep", f"{across} and {by}", caption, (WIDTH, 3.8), draw)


def _parallel(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Picture | None:
    if not keys:
        return None
    scores = np.array([spread(values_of(arm, headline, headline.name)).mean for arm in arms])
    axes_of = [(short(key), [arm.settings[key] for arm in arms]) for key in keys]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        span = (scores - scores.min()) / max(np.ptp(scores), 1e-9)
        heights = [_heights(values) for _, values in axes_of] + [span]
        for arm in np.argsort(scores):
            axes.plot(
                range(len(heights)), [column[arm] for column in heights],
                color=colour(0), linewidth=1 + 2.5 * span[arm], alpha=0.2 + 0.7 * span[arm],
            )  # fmt: skip
        for place, (_, values) in enumerate(axes_of):
            shown = {_shown(value): height for value, height in zip(values, heights[place], strict=True)}
            every = -(-len(shown) // LABELS)
            for value, height in sorted(shown.items(), key=lambda one: one[1])[::every]:
                axes.text(place - 0.04, height, value, ha="right", va="center", fontsize=8, color=INK)
        for height in (0, 1):
            said = f"{scores.min() + height * np.ptp(scores):.2f}"
            axes.text(len(axes_of) + 0.04, height, said, va="center", fontsize=8, color=INK)
        axes.vlines(range(len(heights)), 0, 1, color=INK, linewidth=0.8)
        axes.set_xticks(range(len(heights)), [*(name for name, _ in axes_of), headline.name])
        axes.tick_params(axis="x", length=0)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)

    caption = "A line is a setting of the sweep; the stronger and thicker, the higher its score."
    return Picture("parallel", "Settings and score", caption, (2.0 + 1.7 * len(keys), 3.6), draw)


def _heights(values: Sequence[Any]) -> list[float]:
    """Evenly spaced in their order: grids are often geometric."""
    order = {str(value): place for place, value in enumerate(sorted({str(v): v for v in values}.values(), key=_order))}
    return [order[str(value)] / max(1, len(order) - 1) for value in values]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Of a list or a mapping its words."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return 2, tuple(_order(one) for one in value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
