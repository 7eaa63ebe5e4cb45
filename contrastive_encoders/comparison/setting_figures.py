"""Draw scores against hyperparameters: heat maps and parallel coordinates."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from contrastive_encoders.comparison.arms import Arm, own_settings, short
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.tables import NUMBER
from contrastive_encoders.reports.encodings import NOT_FROM_ZERO, tooltip
from contrastive_encoders.reports.figure import PAPER, SERIES, Control, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import spread

ANCHORS, POSITIVES, TEMPERATURE = "data.anchors_per_document", "data.positives_per_anchor", "model.temperature"
MAX_LABELS = 8  # on an axis
PADDING, GAP = 0.3, 20  # steps outside the first and last axis, pixels between a label and the next axis
ALL = "all"


def settings_figures(arms: Sequence[Arm], headline: RankingMetric) -> list[Figure]:
    """Return figures of the score against the settings.

    There are none if the arms have several objectives, differ in only one setting, or are fewer than three.
    """
    if len({arm.runs[0].results["objective"] for arm in arms}) > 1 or len(arms) < 3:
        return []
    keys = [key for key in own_settings(arms) if all(key in arm.settings for arm in arms) and "_target_" not in key]
    found = [_over_settings(arms, headline, keys), _parallel(arms, headline, keys) if keys else None]
    return [one for one in found if one is not None]


def _over_settings(arms: Sequence[Arm], headline: RankingMetric, keys: Sequence[str]) -> Figure | None:
    """Draw anchors and positives against temperature if a sweep varied them, otherwise the first two settings.

    A heat map averages over all other settings. Values that were drawn at random would leave most of its cells empty,
    so they are drawn as points.
    """
    rows = [key for key in (ANCHORS, POSITIVES) if key in keys] if TEMPERATURE in keys else []
    across = TEMPERATURE if rows else next(iter(keys[1:]), None)
    rows = rows or list(keys[:1])
    if across is None:
        return None
    if drawn := next((key for key in (across, *rows) if _drawn_at_random(arms, key)), None):
        return _points(arms, headline, drawn, next(key for key in (*rows, across) if key != drawn))
    return _heat_map(arms, headline, rows, across, [key for key in keys if key not in (*rows, across)])


def _drawn_at_random(arms: Sequence[Arm], key: str) -> bool:
    """Return whether the values are numbers and nearly every arm has a different one."""
    values = [arm.settings[key] for arm in arms]
    different = {value for value in values if isinstance(value, int | float)}
    return len(different) > max(4, 0.8 * len(arms)) and all(isinstance(value, int | float) for value in values)


def _heat_map(
    arms: Sequence[Arm], headline: RankingMetric, rows: Sequence[str], across: str, others: Sequence[str]
) -> Figure | None:
    scores = dict[tuple[Any, Any], list[float]]()
    for arm in arms:
        place = (tuple(_plain(arm.settings[key]) for key in rows), _plain(arm.settings[across]))
        scores.setdefault(place, []).extend(values_of(arm, headline))
    down = sorted({place[0] for place in scores}, key=_order)
    wide = sorted({place[1] for place in scores}, key=_order)
    if 2 * len(scores) <= len(down) * len(wide):
        return None  # the settings were not combined with each other
    as_in_paper = list(rows) == [ANCHORS, POSITIVES]
    names = {
        row: "A/P " + "/".join(map(str, row))
        if as_in_paper
        else ", ".join(f"{short(key)}={_shown(value)}" for key, value in zip(rows, row, strict=True))
        for row in down
    }
    means = {place: float(np.mean(values)) for place, values in scores.items()}
    cells = [
        {
            "row": names[row],
            "column": _shown(column),
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
            sort=[_shown(one) for one in wide],
            title=short(across),
            axis=alt.Axis(labelAngle=0, domain=False, ticks=False),
        ),
        y=alt.Y("row:O", sort=list(names.values()), title=None, axis=alt.Axis(domain=False, ticks=False)),
    )
    shown = tooltip(
        ("row", "setting"),
        ("column", short(across)),
        ("score", headline.name, ".2f"),
        ("lowest", "lowest run", ".2f"),
        ("highest", "highest run", ".2f"),
        ("runs", "runs"),
    )
    shade = alt.Color("score:Q", scale=alt.Scale(scheme="blues", zero=False), legend=None)
    ink = alt.condition(f"datum.score > {middle}", alt.value("#ffffff"), alt.value("#16181d"))
    panel = alt.layer(
        map_of_scores.mark_rect(cornerRadius=3).encode(color=shade, tooltip=shown),
        map_of_scores.mark_text(tooltip=None).encode(text=alt.Text("score:Q", format=".2f"), color=ink),
    ).properties(width=alt.Step(78), height=alt.Step(34))
    over = f" and over {', '.join(others)}" if others else ""
    caption = f"{headline.name}, mean over seeds{over}; the darker, the higher."
    heads = [Column("setting"), *columns(*map(_shown, wide), number=NUMBER)]
    numbers = [[names[row], *(means.get((row, column)) for column in wide)] for row in down]
    title = f"{' and '.join(rows)} against {across}"
    return Figure("sweep", title, caption, [panel], Table(heads, numbers, title, name="sweep"), width=None)


def _points(arms: Sequence[Arm], headline: RankingMetric, across: str, by: str) -> Figure:
    """Draw a point for each arm over the setting with the most values."""
    values = sorted({_plain(arm.settings[by]) for arm in arms}, key=_order)
    rows: list[dict[str, Any]] = [
        {
            "x": float(arm.settings[across]),
            "score": spread(values_of(arm, headline)).mean,
            "by": f"{short(by)} {_shown(_plain(arm.settings[by]))}",
            "arm": arm.label,
        }
        for arm in arms
    ]
    known = [row["x"] for row in rows]
    log = min(known) > 0 and max(known) > 10 * min(known)
    scale = alt.Scale(type="log" if log else "linear", zero=False)
    panel = alt.Chart({"values": rows}).mark_point(filled=True, size=70, opacity=1)
    panel = panel.properties(height=320).encode(
        x=alt.X("x:Q", title=short(across), scale=scale),
        y=alt.Y("score:Q", title=headline.name, scale=NOT_FROM_ZERO),
        tooltip=tooltip(("arm", "arm"), ("score", headline.name, ".2f")),
    )
    if len(values) <= len(SERIES):
        order = [f"{short(by)} {_shown(value)}" for value in values]
        by_value: dict[str, Any] = {
            "shorthand": "by:N",
            "title": None,
            "legend": alt.Legend(orient="top"),
            "sort": order,
        }
        panel = panel.encode(color=alt.Color(**by_value), shape=alt.Shape(**by_value))
    return Figure("sweep", f"{across} and {by}", f"{headline.name}, mean over seeds; a point is a setting.", [panel])


def _parallel(arms: Sequence[Arm], headline: RankingMetric, keys: Sequence[str]) -> Figure:
    scores = np.array([spread(values_of(arm, headline)).mean for arm in arms])
    values = {key: [_plain(arm.settings[key]) for arm in arms] for key in keys}
    chosen = [{f"value{place}": _shown(values[key][row]) for place, key in enumerate(keys)} for row in range(len(arms))]

    def stops(axis: str, heights: Sequence[float]) -> list[dict[str, Any]]:
        return [
            {"arm": arm.label, "axis": axis, "height": float(height), "score": float(score), **settings}
            for arm, height, score, settings in zip(arms, heights, scores, chosen, strict=True)
        ]

    rows, labels, controls = list[dict[str, Any]](), list[dict[str, Any]](), list[Control]()
    for place, key in enumerate(keys):
        heights = _heights(values[key])
        height_of = dict(zip(_last_parts([_shown(value) for value in values[key]]), heights, strict=True))
        known = sorted(height_of.items(), key=lambda one: one[1])
        labels += [
            {"axis": short(key), "height": height, "text": text, "last": False}
            for text, height in known[:: -(-len(known) // MAX_LABELS)]
        ]
        rows += stops(short(key), heights)
        options = dict.fromkeys(_shown(value) for value in sorted(values[key], key=_order))
        controls.append(Control(f"only{place}", short(key), [ALL, *options]))
    rows += stops(headline.name, (scores - scores.min()) / max(np.ptp(scores), 1e-9))
    labels += [
        {"axis": headline.name, "height": height, "text": f"{score:.2f}", "last": True}
        for height, score in ((0.0, scores.min()), (1.0, scores.max()))
    ]
    caption = (
        "A line is a setting of the sweep; the stronger, the higher its score. Point at a line to follow it; "
        "choose values to leave the others out."
    )
    panel = _lines(rows, labels, [*map(short, keys), headline.name], headline)
    signals = {control.signal: ALL for control in controls}
    return Figure("parallel", "Settings and score", caption, [panel], signals=signals, controls=controls)


def _lines(
    rows: list[dict[str, Any]], labels: list[dict[str, Any]], axes: Sequence[str], headline: RankingMetric
) -> alt.TopLevelMixin:
    kept = " && ".join(
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
        .transform_filter(kept)
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
        of_axis = texts.transform_filter(f"datum.last == {last}")
        mark: dict[str, Any] = {"align": align, "dx": offset, "tooltip": None, "limit": room}
        layers += [of_axis.mark_text(**mark, stroke=PAPER, strokeWidth=4), of_axis.mark_text(**mark)]
    return alt.layer(*layers, data={"values": rows}).properties(height=300)


def _last_parts(values: Sequence[str]) -> list[str]:
    """Return the last part of each path if these differ, else the values."""
    parts = [value.rstrip("/").rpartition("/")[2] for value in values]
    return parts if len(set(parts)) == len(set(values)) else list(values)


def _heights(values: Sequence[Any]) -> list[float]:
    """Return evenly spaced heights in the order of the values, because grids are often geometric."""
    order = {str(value): place for place, value in enumerate(sorted({str(v): v for v in values}.values(), key=_order))}
    return [order[str(value)] / max(1, len(order) - 1) for value in values]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Return the value, or a list or mapping as text."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return 2, tuple(_order(one) for one in value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
