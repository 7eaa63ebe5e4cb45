"""Draw scores against hyperparameters: heat maps and parallel coordinates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from contrastive_encoders.comparison.arms import Arm, own_settings, short
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.tables import NUMBER
from contrastive_encoders.reports.figure import COLOURS, Control, Figure, quantity, tooltip
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import Headline
from contrastive_encoders.statistics.paired_tests import spread

ANCHORS, POSITIVES, TEMPERATURE = "data.anchors_per_document", "data.positives_per_anchor", "model.temperature"
LABELS = 8  # of an axis, at most
PADDING, GAP = 0.3, 20  # steps outside the first and last axis, pixels between a label and the next axis
ALL = "all"


def settings_figures(arms: Sequence[Arm], headline: Headline) -> list[Figure]:
    """Nothing where the arms are of several objectives or differ in one setting only."""
    if len({arm.runs[0].results["objective"] for arm in arms}) > 1 or len(arms) < 3:
        return []
    keys = [key for key in own_settings(arms) if all(key in arm.settings for arm in arms) and "_target_" not in key]
    found = [_over_settings(arms, headline, keys), _parallel(arms, headline, keys)]
    return [one for one in found if one is not None]


def _over_settings(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Figure | None:
    """A and P downwards, tau across, where those were swept, else the first two settings; over others it averages.

    What was drawn at random would make a map of empty cells; it is drawn as points.
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
    """Numbers of which nearly every arm has another."""
    values = [arm.settings[key] for arm in arms]
    different = {value for value in values if isinstance(value, int | float)}
    return len(different) > max(4, 0.8 * len(arms)) and all(isinstance(value, int | float) for value in values)


def _heat_map(
    arms: Sequence[Arm], headline: Headline, rows: Sequence[str], across: str, others: Sequence[str]
) -> Figure | None:
    means = dict[tuple[Any, Any], list[float]]()
    for arm in arms:
        place = (tuple(_plain(arm.settings[key]) for key in rows), _plain(arm.settings[across]))
        means.setdefault(place, []).extend(values_of(arm, headline))
    down = sorted({place[0] for place in means}, key=_order)
    wide = sorted({place[1] for place in means}, key=_order)
    if 2 * len(means) <= len(down) * len(wide):
        return None  # the settings were not crossed
    of_paper = list(rows) == [ANCHORS, POSITIVES]
    names = {
        row: "A/P " + "/".join(map(str, row))
        if of_paper
        else ", ".join(f"{short(key)}={_shown(value)}" for key, value in zip(rows, row, strict=True))
        for row in down
    }
    cells = [
        {
            "row": names[row],
            "column": _shown(column),
            "score": float(np.mean(values)),
            "runs": len(values),
            "lowest": float(min(values)),
            "highest": float(max(values)),
        }
        for (row, column), values in means.items()
    ]
    scores = [float(np.mean(values)) for values in means.values()]
    middle = min(scores) + 0.55 * (max(scores) - min(scores))
    plain = {"domain": False, "ticks": False}
    columns_of = {"sort": [_shown(one) for one in wide], "title": short(across)}
    x = {"field": "column", "type": "ordinal", **columns_of, "axis": {"labelAngle": 0, **plain}}
    y = {"field": "row", "type": "ordinal", "sort": list(names.values()), "title": None, "axis": plain}
    said = tooltip(
        ("row", "setting"),
        ("column", short(across)),
        ("score", headline.name, ".2f"),
        ("lowest", "lowest run", ".2f"),
        ("highest", "highest run", ".2f"),
        ("runs", "runs"),
    )
    colour = quantity("score", scale={"scheme": "blues", "zero": False}, legend=None)
    ink = {"condition": {"test": f"datum.score > {middle}", "value": "#ffffff"}, "value": "#16181d"}
    layers = [
        {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"color": colour, "tooltip": said}},
        {
            "mark": {"type": "text", "tooltip": None},
            "encoding": {"text": quantity("score", format=".2f"), "color": ink},
        },
    ]
    panel = {
        "width": {"step": 78},
        "height": {"step": 34},
        "data": {"values": cells},
        "encoding": {"x": x, "y": y},
        "layer": layers,
    }
    over = f" and over {', '.join(others)}" if others else ""
    caption = f"{headline.name}, mean over seeds{over}; the darker, the higher."
    heads = [Column("setting"), *columns(*map(_shown, wide), number=NUMBER)]
    numbers = [[names[row], *(_mean(means.get((row, column))) for column in wide)] for row in down]
    title = f"{' and '.join(rows)} against {across}"
    return Figure("sweep", title, caption, [panel], Table(heads, numbers, title, name="sweep"))


def _mean(values: Sequence[float] | None) -> float | None:
    return None if values is None else float(np.mean(values))


def _points(arms: Sequence[Arm], headline: Headline, across: str, by: str) -> Figure:
    """A point for each setting, over the one with the most values."""
    values = sorted({_plain(arm.settings[by]) for arm in arms}, key=_order)
    rows = [
        {
            "x": float(arm.settings[across]),
            "score": spread(values_of(arm, headline)).mean,
            "by": f"{short(by)} {_shown(_plain(arm.settings[by]))}",
            "arm": arm.label,
        }
        for arm in arms
    ]
    known = [float(arm.settings[across]) for arm in arms]
    log = min(known) > 0 and max(known) > 10 * min(known)
    scale = {"type": "log" if log else "linear", "zero": False}
    encoding: dict[str, Any] = {
        "x": quantity("x", title=short(across), scale=scale),
        "y": quantity("score", title=headline.name, scale={"zero": False}),
        "tooltip": tooltip(("arm", "arm"), ("score", headline.name, ".2f")),
    }
    if len(values) <= len(COLOURS):
        order = [f"{short(by)} {_shown(value)}" for value in values]
        appearance = {"field": "by", "type": "nominal", "title": None, "legend": {"orient": "top"}, "sort": order}
        encoding |= {"color": appearance, "shape": appearance}
    mark = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    panel = {"height": 320, "data": {"values": rows}, "mark": mark, "encoding": encoding}
    return Figure("sweep", f"{across} and {by}", f"{headline.name}, mean over seeds; a point is a setting.", [panel])


def _parallel(arms: Sequence[Arm], headline: Headline, keys: Sequence[str]) -> Figure | None:
    if not keys:
        return None
    scores = np.array([spread(values_of(arm, headline)).mean for arm in arms])
    spans = (scores - scores.min()) / max(np.ptp(scores), 1e-9)
    rows, labels = list[dict[str, Any]](), list[dict[str, Any]]()
    for key in keys:
        shown = _last_parts([_shown(_plain(arm.settings[key])) for arm in arms])
        heights = _heights([arm.settings[key] for arm in arms])
        known = sorted(dict(zip(shown, heights, strict=True)).items(), key=lambda one: one[1])
        labels += [
            {"axis": short(key), "height": height, "text": text, "last": False}
            for text, height in known[:: -(-len(known) // LABELS)]
        ]
        rows += [
            _stop(arm, short(key), height, score) for arm, height, score in zip(arms, heights, scores, strict=True)
        ]
    rows += [_stop(arm, headline.name, height, score) for arm, height, score in zip(arms, spans, scores, strict=True)]
    labels += [
        {"axis": headline.name, "height": height, "text": f"{score:.2f}", "last": True}
        for height, score in ((0.0, scores.min()), (1.0, scores.max()))
    ]
    controls = list[Control]()
    for place, key in enumerate(keys):
        values = sorted(
            {_shown(_plain(arm.settings[key])): _plain(arm.settings[key]) for arm in arms}.items(),
            key=lambda one: _order(one[1]),
        )
        for row in rows:
            row[f"value{place}"] = next(_shown(_plain(arm.settings[key])) for arm in arms if arm.label == row["arm"])
        controls.append(Control(f"only{place}", short(key), [ALL, *(text for text, _ in values)]))
    panel = _lines(rows, labels, [*map(short, keys), headline.name], headline, len(keys))
    caption = (
        "A line is a setting of the sweep; the stronger, the higher its score. Point at a line to follow it; "
        "choose values to leave the others out."
    )
    signals = {control.signal: ALL for control in controls}
    return Figure("parallel", "Settings and score", caption, [panel], signals=signals, controls=controls)


def _stop(arm: Arm, axis: str, height: float, score: float) -> dict[str, Any]:
    return {"arm": arm.label, "axis": axis, "height": float(height), "score": float(score)}


def _lines(
    rows: list[dict[str, Any]], labels: list[dict[str, Any]], axes: Sequence[str], headline: Headline, settings: int
) -> dict[str, Any]:
    kept = " && ".join(f"(only{place} == '{ALL}' || only{place} == datum.value{place})" for place in range(settings))
    room = {"expr": f"width / {len(axes) - 1 + 2 * PADDING:g} - {GAP}"}  # pixels of a label, up to the next axis
    of_axes = {
        "labelAngle": 0,
        "orient": "top",
        "grid": True,
        "domain": False,
        "ticks": False,
        "labelLimit": room,
        "labelPadding": 8,
    }
    scale = {"domain": list(axes), "padding": PADDING}
    x = {"field": "axis", "type": "ordinal", "scale": scale, "title": None, "axis": of_axes}
    y = quantity("height", axis=None)
    select = {"type": "point", "fields": ["arm"], "on": "pointerover", "clear": "pointerout"}
    layers: list[dict[str, Any]] = [
        {
            "params": [{"name": "followed", "select": select}],
            "transform": [{"filter": kept}],
            "mark": {"type": "line", "strokeCap": "round", "color": "@c1"},
            "encoding": {
                "x": x,
                "y": y,
                "opacity": quantity("score", scale={"range": [0.12, 0.95], "zero": False}, legend=None),
                "detail": {"field": "arm"},
                "strokeWidth": {"condition": {"param": "followed", "empty": False, "value": 6}, "value": 2.2},
                "tooltip": tooltip(("arm", "setting"), ("score", headline.name, ".2f")),
            },
        },
    ]
    halo: dict[str, Any] = {"stroke": "@paper", "strokeWidth": 4}
    for last, around in ((False, halo), (False, {}), (True, halo), (True, {})):
        mark = {
            "type": "text",
            "align": ("right", "left")[last],
            "dx": (-8, 8)[last],
            "tooltip": None,
            "limit": room,
            **around,
        }
        of_these = {"filter": f"datum.last == {str(last).lower()}"}
        encoding = {"x": x, "y": y, "text": {"field": "text"}}
        layers.append({"data": {"values": labels}, "transform": [of_these], "mark": mark, "encoding": encoding})
    return {"height": 300, "data": {"values": rows}, "layer": layers}


def _last_parts(values: Sequence[str]) -> list[str]:
    """Return the last part of each path if these differ, else the values."""
    parts = [value.rstrip("/").rpartition("/")[2] for value in values]
    return parts if len(set(parts)) == len(set(values)) else list(values)


def _heights(values: Sequence[Any]) -> list[float]:
    """Evenly spaced in their order: grids are often geometric."""
    order = {str(value): place for place, value in enumerate(sorted({str(v): v for v in values}.values(), key=_order))}
    return [order[str(value)] / max(1, len(order) - 1) for value in values]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Return the value, or the text of a list or mapping."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return 2, tuple(_order(one) for one in value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
