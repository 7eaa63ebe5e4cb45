"""Draw the ranking: confidence intervals of the arms and their pairwise differences."""

import textwrap
from collections.abc import Sequence
from typing import Any

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import Contrast, Standing, interval_of, values_of
from contrastive_encoders.comparison.tables import p_value, rank
from contrastive_encoders.reports.figure import Control, Figure, coloured, faded, quantity, shaped, tooltip
from contrastive_encoders.statistics.headline import Headline
from contrastive_encoders.statistics.paired_tests import spread

MOST_CELLS = 5_000  # of the matrix, over all scores; beyond, of the headline alone
WRAPPED = 18  # letters of a line of a name on a narrow page
NARROW = "containerSize()[0] < 500 ? {1} : {0}"
NAMED = NARROW.format("datum.label", "wrapped[datum.label]")
READABLE = 14  # arms whose differences are written into the cells


def dots(arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing]) -> Figure:
    key, rows, seeds = [arm.label for arm in arms], list[dict[str, Any]](), list[dict[str, Any]]()
    for standing in standings:
        arm = arms[standing.arm]
        values = values_of(arm, headline)
        bounds = interval_of(arms, arm, headline)
        found = spread(values)
        row: dict[str, Any] = {"arm": arm.label, "mean": found.mean, "seeds": found.seeds, "rank": rank(standing).text}
        row["sd"] = "one seed" if found.deviation is None else f"{found.deviation:.2f}"
        if bounds is not None:
            row["low"], row["high"] = bounds
            row["items"] = f"{row['low']:.2f} to {row['high']:.2f}"
        if found.deviation is not None:
            row["below"], row["above"] = found.mean - found.deviation, found.mean + found.deviation
        rows.append(row)
        seeds += [
            {"arm": arm.label, "value": float(value), "seed": run.seed}
            for run, value in zip(arm.runs, values, strict=True)
        ]
    order = [row["arm"] for row in rows]
    axis = {"domain": False, "ticks": False, "labelExpr": NAMED}
    y = {"field": "arm", "type": "nominal", "sort": order, "title": None, "axis": axis}
    colour = coloured(key) | {"legend": None}
    said = tooltip(
        ("arm", "arm"),
        ("rank", "rank"),
        ("mean", headline.name, ".2f"),
        ("items", "95 % over test items"),
        ("sd", "sd over seeds"),
        ("seeds", "seeds"),
    )

    def x(field: str) -> dict[str, Any]:
        return quantity(field, scale={"zero": False, "nice": True}, title=headline.name)

    def span(low: str, high: str, opacity: dict[str, Any]) -> dict[str, Any]:
        return {"y": y, "x": x(low), "x2": {"field": high}, "color": colour, "opacity": opacity}

    shape = shaped(key) | {"legend": None}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 9, "strokeCap": "round"},
            "transform": [{"filter": "isValid(datum.low)"}],
            "encoding": span("low", "high", faded(0.28, 0.05)),
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "transform": [{"filter": "isValid(datum.below)"}],
            "encoding": span("below", "above", faded(1, 0.1)),
        },
        {
            "mark": {"type": "tick", "thickness": 1.5, "height": 13, "color": "@ink"},
            "data": {"values": seeds},
            "encoding": {"y": y, "x": x("value"), "opacity": faded(0.75, 0.08)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {"y": y, "x": x("mean"), "color": colour, "shape": shape, "opacity": faded(), "tooltip": said},
        },
    ]
    caption = (
        "Mean over seeds (mark), each seed (stroke), mean ± standard deviation over seeds (thin line), 95 % interval "
        "over test items for these seeds (broad line)."
    )
    step = 34 if len(rows) <= 12 else 28
    panel: dict[str, Any] = {"height": {"step": step}, "data": {"values": rows}, "layer": layers}
    signals = {"wrapped": {name: _wrapped(name) for name in order}}
    return Figure("leaderboard", f"By {headline.name}", caption, [panel], signals=signals, width=640)


def _wrapped(name: str) -> list[str]:
    return textwrap.wrap(name, WRAPPED, break_on_hyphens=False, max_lines=2, placeholder=" …") or [name]


def differences(
    arms: Sequence[Arm], headline: Headline, standings: Sequence[Standing], found: Sequence[Contrast]
) -> Figure | None:
    """A cell for each two arms: row minus column."""
    if not found:
        return None
    places = {standing.arm: place for place, standing in enumerate(standings, start=1)}
    scores = list(dict.fromkeys(one.score for one in found))
    if 2 * len(found) > MOST_CELLS:
        scores = [headline.name]
    cells = list[dict[str, Any]]()
    for one in found:
        if one.score not in scores:
            continue
        for row, column, sign in ((one.first, one.second, 1), (one.second, one.first, -1)):
            bounds = one.over_items and sorted(sign * bound for bound in one.over_items)
            cells.append(
                {
                    "row": places[row],
                    "column": places[column],
                    "arm": arms[row].label,
                    "minus": arms[column].label,
                    "score": one.score,
                    "value": sign * one.difference,
                    "size": abs(one.difference),
                    "items": f"{bounds[0]:z.2f} to {bounds[1]:z.2f}" if bounds else "",
                    "p": p_value(one.p_holm).text,
                    "sign": "above" if sign * one.difference > 0 else "below",
                    "told": one.distinguishable,
                    "says": "distinguishable" if one.distinguishable else "not distinguishable",
                }
            )
    few = len(arms) <= READABLE
    panel = _matrix(len(standings), cells, few=few)
    caption = (
        "Row minus column, the arms in the order of the ranking. Blue: the row is above, orange: below; the stronger, "
        "the more. A dot: the two are distinguishable, for these seeds."
    )
    controls = [Control("score", "Score", scores)] if len(scores) > 1 else []
    names = [f"{arms[one.arm].label}  {place}" for place, one in enumerate(standings, start=1)]
    signals = {"score": headline.name, "names": names, "wrapped": [_wrapped(name) for name in names]}
    return Figure("differences", "Every two arms", caption, [panel], signals=signals, controls=controls)


def _matrix(arms: int, cells: list[dict[str, Any]], *, few: bool) -> dict[str, Any]:
    names = {"type": "ordinal", "scale": {"domain": list(range(1, arms + 1))}, "title": None}
    plain = {"domain": False, "ticks": False}
    in_row = NARROW.format("names[datum.value - 1]", "wrapped[datum.value - 1]")
    y = {"field": "row", **names, "axis": {"labelExpr": in_row, **plain}}
    x = {"field": "column", **names, "axis": {"orient": "top", "labelAngle": 0, "labelOverlap": "parity", **plain}}
    said = tooltip(
        ("arm", "arm"),
        ("minus", "minus"),
        ("score", "score"),
        ("value", "difference", "+.2f"),
        ("items", "95 % over test items"),
        ("p", "p, Holm"),
        ("says", "for these seeds"),
    )
    sides = {"domain": ["above", "below"], "range": ["@c1", "@c2"]}
    strength = quantity("size", legend=None, scale={"domainMin": 0, "range": [0.04, 0.75]})
    dot = {"type": "point", "filled": True, "color": "@ink", "opacity": 1, "tooltip": None}
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rect", "cornerRadius": 3 if few else 0, "stroke": "@line"},
            "encoding": {
                "color": {"field": "sign", "type": "nominal", "legend": None, "scale": sides},
                "fillOpacity": strength,
                "tooltip": said,
            },
        },
        {
            "transform": [{"filter": "datum.told"}],
            "mark": {**dot, "size": 22 if few else 14, "yOffset": 13 if few else 0},
            "encoding": {},
        },
    ]
    if few:
        text = {"type": "text", "dy": -2, "tooltip": None}
        layers.append({"mark": text, "encoding": {"text": quantity("value", format="+.1f")}})
    step = max(11, min(20, 1000 // arms))
    return {
        "width": {"step": 62 if few else step},
        "height": {"step": 44 if few else step},
        "data": {"values": cells},
        "transform": [{"filter": "datum.score == score"}],
        "encoding": {"x": x, "y": y},
        "layer": layers,
    }
