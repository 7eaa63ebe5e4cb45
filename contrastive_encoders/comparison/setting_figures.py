"""Draw scores against hyperparameters: heat maps and parallel coordinates."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from contrastive_encoders.comparison.arms import Arm, distinguishing_settings, short_key
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.tables import NUMBER
from contrastive_encoders.reports.encodings import FREE_SCALE, tooltip
from contrastive_encoders.reports.figure import PAPER, SERIES, Control, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import spread

ANCHORS, POSITIVES, TEMPERATURE = "data.anchors_per_document", "data.positives_per_anchor", "model.temperature"
MAX_LABELS = 8  # on an axis
PADDING, GAP = 0.3, 20  # steps outside the first and last axis, pixels between a label and the next axis
ALL = "all"


def settings_figures(arms: Sequence[Arm], headline: RankingMetric) -> list[Figure]:
    """Return figures that show how the score depends on the settings in which the arms differ.

    There are none if the arms have several objectives, differ in only one setting, or are fewer than three.
    """
    if len({arm.runs[0].results["objective"] for arm in arms}) > 1 or len(arms) < 3:
        return []
    keys = [
        key
        for key in distinguishing_settings(arms)
        if all(key in arm.settings for arm in arms) and "_target_" not in key
    ]
    figures = [_over_settings(arms, headline, keys), _parallel(arms, headline, keys) if keys else None]
    return [one for one in figures if one is not None]


def _over_settings(arms: Sequence[Arm], headline: RankingMetric, keys: Sequence[str]) -> Figure | None:
    """Draw a heat map of the score over two axes: the temperature and the numbers of anchors and positives if these
    vary, otherwise the first two settings that vary.

    The heat map averages over all other settings. Randomly sampled values would leave most of its cells empty, so they
    are drawn as points.
    """
    rows = [key for key in (ANCHORS, POSITIVES) if key in keys] if TEMPERATURE in keys else []
    column_key = TEMPERATURE if rows else next(iter(keys[1:]), None)
    rows = rows or list(keys[:1])
    if column_key is None:
        return None
    if random_key := next((key for key in (column_key, *rows) if _is_random_search(arms, key)), None):
        return _points(arms, headline, random_key, next(key for key in (*rows, column_key) if key != random_key))
    return _heat_map(arms, headline, rows, column_key, [key for key in keys if key not in (*rows, column_key)])


def _is_random_search(arms: Sequence[Arm], key: str) -> bool:
    """Return whether nearly every arm has a different value of a setting, and all values are numbers, as in a random
    search.
    """
    values = [arm.settings[key] for arm in arms]
    different = {value for value in values if isinstance(value, int | float)}
    return len(different) > max(4, 0.8 * len(arms)) and all(isinstance(value, int | float) for value in values)


def _heat_map(
    arms: Sequence[Arm], headline: RankingMetric, rows: Sequence[str], column_key: str, others: Sequence[str]
) -> Figure | None:
    scores = dict[tuple[Any, Any], list[float]]()
    for arm in arms:
        place = (tuple(_plain(arm.settings[key]) for key in rows), _plain(arm.settings[column_key]))
        scores.setdefault(place, []).extend(values_of(arm, headline))
    row_values = sorted({place[0] for place in scores}, key=_order)
    column_values = sorted({place[1] for place in scores}, key=_order)
    if 2 * len(scores) <= len(row_values) * len(column_values):
        return None  # the settings were not combined with each other
    is_paper_sweep = list(rows) == [ANCHORS, POSITIVES]
    names = {
        row: "A/P " + "/".join(map(str, row))
        if is_paper_sweep
        else ", ".join(f"{short_key(key)}={_format(value)}" for key, value in zip(rows, row, strict=True))
        for row in row_values
    }
    means = {place: float(np.mean(values)) for place, values in scores.items()}
    cells = [
        {
            "row": names[row],
            "column": _format(column),
            "score": means[row, column],
            "runs": len(values),
            "lowest": float(min(values)),
            "highest": float(max(values)),
        }
        for (row, column), values in scores.items()
    ]
    middle = min(means.values()) + 0.55 * (max(means.values()) - min(means.values()))
    map_of_scores = alt.Chart({"values": cells}).encode(
        x=alt.X(
            "column:O",
            sort=[_format(one) for one in column_values],
            title=short_key(column_key),
            axis=alt.Axis(labelAngle=0, domain=False, ticks=False),
        ),
        y=alt.Y("row:O", sort=list(names.values()), title=None, axis=alt.Axis(domain=False, ticks=False)),
    )
    fields = tooltip(
        ("row", "setting"),
        ("column", short_key(column_key)),
        ("score", headline.name, ".2f"),
        ("lowest", "lowest run", ".2f"),
        ("highest", "highest run", ".2f"),
        ("runs", "runs"),
    )
    shade = alt.Color("score:Q", scale=alt.Scale(scheme="blues", zero=False), legend=None)
    ink = alt.condition(f"datum.score > {middle}", alt.value("#ffffff"), alt.value("#16181d"))
    panel = alt.layer(
        map_of_scores.mark_rect(cornerRadius=3).encode(color=shade, tooltip=fields),
        map_of_scores.mark_text(tooltip=None).encode(text=alt.Text("score:Q", format=".2f"), color=ink),
    ).properties(width=alt.Step(78), height=alt.Step(34))
    averaged = f" and over {', '.join(others)}" if others else ""
    caption = f"{headline.name}, mean over seeds{averaged}. Darker is higher."
    heads = [Column("setting"), *columns(*map(_format, column_values), number=NUMBER)]
    numbers = [[names[row], *(means.get((row, column)) for column in column_values)] for row in row_values]
    title = f"{' and '.join(rows)} against {column_key}"
    return Figure("sweep", title, caption, [panel], Table(heads, numbers, title, name="sweep"), width=None)


def _points(arms: Sequence[Arm], headline: RankingMetric, x_key: str, color_key: str) -> Figure:
    """Draw each arm as a point: its score against the setting ``x_key``, colored by the setting ``color_key``."""
    values = sorted({_plain(arm.settings[color_key]) for arm in arms}, key=_order)
    rows: list[dict[str, Any]] = [
        {
            "x": float(arm.settings[x_key]),
            "score": spread(values_of(arm, headline)).mean,
            "by": f"{short_key(color_key)} {_format(_plain(arm.settings[color_key]))}",
            "arm": arm.label,
        }
        for arm in arms
    ]
    known = [row["x"] for row in rows]
    log = min(known) > 0 and max(known) > 10 * min(known)
    scale = alt.Scale(type="log" if log else "linear", zero=False)
    panel = alt.Chart({"values": rows}).mark_point(filled=True, size=70, opacity=1)
    panel = panel.properties(height=320).encode(
        x=alt.X("x:Q", title=short_key(x_key), scale=scale),
        y=alt.Y("score:Q", title=headline.name, scale=FREE_SCALE),
        tooltip=tooltip(("arm", "arm"), ("score", headline.name, ".2f")),
    )
    if len(values) <= len(SERIES):
        order = [f"{short_key(color_key)} {_format(value)}" for value in values]
        by_value: dict[str, Any] = {
            "shorthand": "by:N",
            "title": None,
            "legend": alt.Legend(orient="top"),
            "sort": order,
        }
        panel = panel.encode(color=alt.Color(**by_value), shape=alt.Shape(**by_value))
    return Figure(
        "sweep", f"{x_key} and {color_key}", f"{headline.name}, mean over seeds. Each point is a setting.", [panel]
    )


def _parallel(arms: Sequence[Arm], headline: RankingMetric, keys: Sequence[str]) -> Figure:
    scores = np.array([spread(values_of(arm, headline)).mean for arm in arms])
    values = {key: [_plain(arm.settings[key]) for arm in arms] for key in keys}
    settings_of_arms = [
        {f"value{place}": _format(values[key][row]) for place, key in enumerate(keys)} for row in range(len(arms))
    ]

    def stops(axis: str, heights: Sequence[float]) -> list[dict[str, Any]]:
        return [
            {"arm": arm.label, "axis": axis, "height": float(height), "score": float(score), **settings}
            for arm, height, score, settings in zip(arms, heights, scores, settings_of_arms, strict=True)
        ]

    rows, labels, controls = list[dict[str, Any]](), list[dict[str, Any]](), list[Control]()
    for place, key in enumerate(keys):
        heights = _heights(values[key])
        height_of = dict(zip(_last_parts([_format(value) for value in values[key]]), heights, strict=True))
        known = sorted(height_of.items(), key=lambda one: one[1])
        labels += [
            {"axis": short_key(key), "height": height, "text": text, "last": False}
            for text, height in known[:: -(-len(known) // MAX_LABELS)]
        ]
        rows += stops(short_key(key), heights)
        options = dict.fromkeys(_format(value) for value in sorted(values[key], key=_order))
        controls.append(Control(f"only{place}", short_key(key), [ALL, *options]))
    rows += stops(headline.name, (scores - scores.min()) / max(np.ptp(scores), 1e-9))
    labels += [
        {"axis": headline.name, "height": height, "text": f"{score:.2f}", "last": True}
        for height, score in ((0.0, scores.min()), (1.0, scores.max()))
    ]
    caption = "Each line is a setting of the sweep; a stronger color means a higher score."
    hint = "Point at a line to highlight it, or select values to hide the others."
    panel = _lines(rows, labels, [*map(short_key, keys), headline.name], headline)
    signals = {control.signal: ALL for control in controls}
    return Figure("parallel", "Settings and score", caption, [panel], signals=signals, controls=controls, hint=hint)


def _lines(
    rows: list[dict[str, Any]], labels: list[dict[str, Any]], axes: Sequence[str], headline: RankingMetric
) -> alt.TopLevelMixin:
    is_selected = " && ".join(
        f"(only{place} == '{ALL}' || only{place} == datum.value{place})" for place in range(len(axes) - 1)
    )
    room = alt.ExprRef(f"width / {len(axes) - 1 + 2 * PADDING:g} - {GAP}")  # pixels for a label, up to the next axis
    axis = alt.Axis(labelAngle=0, orient="top", grid=True, domain=False, ticks=False, labelLimit=room, labelPadding=8)
    places = alt.Chart().encode(
        x=alt.X("axis:O", scale=alt.Scale(domain=list(axes), padding=PADDING), title=None, axis=axis),
        y=alt.Y("height:Q", axis=None),
    )
    line = alt.selection_point("line", fields=["arm"], on="pointerover", clear="pointerout")
    lines = (
        places.add_params(line)
        .transform_filter(is_selected)
        .mark_line(strokeCap="round", color=SERIES[0])
        .encode(
            opacity=alt.Opacity("score:Q", scale=alt.Scale(range=[0.12, 0.95], zero=False), legend=None),
            detail="arm:N",
            strokeWidth=alt.condition(line, alt.value(6), alt.value(2.2), empty=False),
            tooltip=tooltip(("arm", "setting"), ("score", headline.name, ".2f")),
        )
    )
    layers = [lines]
    texts = places.properties(data={"values": labels}).encode(text="text:N")
    for last, align, offset in (("false", "right", -8), ("true", "left", 8)):
        axis_texts = texts.transform_filter(f"datum.last == {last}")
        mark: dict[str, Any] = {"align": align, "dx": offset, "tooltip": None, "limit": room}
        layers += [axis_texts.mark_text(**mark, stroke=PAPER, strokeWidth=4), axis_texts.mark_text(**mark)]
    return alt.layer(*layers, data={"values": rows}).properties(height=300)


def _last_parts(values: Sequence[str]) -> list[str]:
    """Shorten paths to their last component if the shortened paths are still distinct. Otherwise, return the values
    unchanged.
    """
    parts = [value.rstrip("/").rpartition("/")[2] for value in values]
    return parts if len(set(parts)) == len(set(values)) else list(values)


def _heights(values: Sequence[Any]) -> list[float]:
    """Return the height at which each value is drawn on its axis. Heights are evenly spaced by rank, because grids of
    values are often geometric.
    """
    order = {str(value): place for place, value in enumerate(sorted({str(v): v for v in values}.values(), key=_order))}
    return [order[str(value)] / max(1, len(order) - 1) for value in values]


def _format(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Convert a list or mapping to a string. Return a scalar unchanged."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return 2, tuple(_order(one) for one in value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
