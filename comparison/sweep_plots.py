"""What is drawn of arms that differ in settings: a heat map over two or three of them, and parallel coordinates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from comparison.arms import Arm, own_settings
from comparison.contrasts import Headline, values_of
from comparison.drawing import INK, Picture
from comparison.plots import heat
from comparison.statistics import spread
from comparison.tables import Cell, Table, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANCHORS, POSITIVES, TEMPERATURE = "data.anchors_per_document", "data.positives_per_anchor", "model.temperature"


def sweep_pictures(arms: Sequence[Arm], headline: Headline) -> list[Picture]:
    """Nothing where the arms are of several objectives or differ in one setting only."""
    if len({arm.runs[0].results["objective"] for arm in arms}) > 1 or len(arms) < 3:
        return []
    keys = [key for key in own_settings(arms) if all(key in arm.settings for arm in arms)]
    found = [_heat_map(arms, headline, keys), _parallel(arms, headline, keys)]
    return [one for one in found if one is not None]


def _heat_map(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Picture | None:
    """A and P downwards, tau across, where those were swept, else the first two settings; over others it averages."""
    rows = [key for key in (ANCHORS, POSITIVES) if key in keys] if TEMPERATURE in keys else []
    across = TEMPERATURE if rows else next(iter(keys[1:]), None)
    rows = rows or list(keys[:1])
    if across is None:
        return None
    means = dict[tuple[Any, Any], list[float]]()
    for arm in arms:
        place = (tuple(_plain(arm.settings[key]) for key in rows), _plain(arm.settings[across]))
        means.setdefault(place, []).extend(values_of(arm, headline, headline.name))
    down = sorted({place[0] for place in means}, key=_order)
    wide = sorted({place[1] for place in means}, key=_order)
    grid = np.array([[np.mean(means.get((row, column), [np.nan])) for column in wide] for row in down])
    short = [key.rpartition(".")[2] for key in rows]
    names = [
        "A/P " + "/".join(map(str, row))
        if rows == [ANCHORS, POSITIVES]
        else ", ".join(f"{key}={value}" for key, value in zip(short, row, strict=True))
        for row in down
    ]
    columns = [f"{across.rpartition('.')[2]} {value}" for value in wide]
    table = Table(
        "sweep",
        "Settings",
        "",
        ["", *columns],
        [
            [Cell(name), *(number(None if np.isnan(value) else float(value)) for value in row)]
            for name, row in zip(names, grid, strict=True)
        ],
        frozenset(range(1, len(columns) + 1)),
    )
    others = [key for key in keys if key not in (*rows, across)]
    caption = f"{headline.name}, mean over seeds" + (f" and over {', '.join(others)}" if others else "") + "."
    return Picture(
        "sweep",
        f"{' and '.join(rows)} against {across}",
        caption,
        (2.6 + 1.1 * len(wide), 1.0 + 0.4 * len(down)),
        heat(names, columns, grid, 2),
        table,
    )


def _parallel(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Picture | None:
    if not keys:
        return None
    scores = np.array([spread(values_of(arm, headline, headline.name)).mean for arm in arms])
    axes_of = [(key.rpartition(".")[2], [arm.settings[key] for arm in arms]) for key in keys]

    def draw(figure: "Figure") -> None:
        import matplotlib

        axes = figure.subplots()
        span = (scores - scores.min()) / max(np.ptp(scores), 1e-9)
        heights = [_heights(values) for _, values in axes_of] + [span]
        for arm in np.argsort(scores):
            shade = matplotlib.colormaps["viridis"](0.9 - 0.8 * span[arm])
            axes.plot(
                range(len(heights)),
                [column[arm] for column in heights],
                color=shade,
                linewidth=1 + 1.5 * span[arm],
                alpha=0.8,
            )
        for place, (_, values) in enumerate(axes_of):
            for value, height in {
                str(value): height for value, height in zip(values, heights[place], strict=True)
            }.items():
                axes.text(place - 0.02, height, value, ha="right", va="center", fontsize=7, color=INK)
        for height in (0, 1):
            axes.text(
                len(axes_of) + 0.02,
                height,
                f"{scores.min() + height * np.ptp(scores):.2f}",
                va="center",
                fontsize=8,
                color=INK,
            )
        axes.vlines(range(len(heights)), 0, 1, color=INK, linewidth=0.8)
        axes.set_xticks(range(len(heights)), [*(name for name, _ in axes_of), headline.name])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)

    return Picture(
        "parallel",
        "Settings and score",
        "A line is a setting of the sweep; the darker and thicker, the higher its score.",
        (2.0 + 1.7 * len(keys), 3.6),
        draw,
    )


def _heights(values: Sequence[Any]) -> list[float]:
    """Evenly spaced in their order: grids are often geometric."""
    order = {str(value): place for place, value in enumerate(sorted({str(v): v for v in values}.values(), key=_order))}
    return [order[str(value)] / max(1, len(order) - 1) for value in values]


def _plain(value: Any) -> Any:
    """Of a list or a mapping its words."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return 2, tuple(_order(one) for one in value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
