"""Figures of vectors: similarity against ratings, alignment and uniformity, and a map of sentences."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.probe_sentences import Probe
from contrastive_encoders.comparison.tables import NUMBER
from contrastive_encoders.reports.figure import Figure, coloured, faded, quantity, shaped, tooltip
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import Headline
from contrastive_encoders.statistics.paired_tests import spread
from contrastive_encoders.statistics.score_names import ScoreName

BANDS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5.01))  # of ratings from 0 to 5
SHOWN = 8  # arms with panels of their own: the best
PLACES = ("#3b6fd4", "#1ba39c", "#b8860b", "#d9552b")  # of the first map from left to right; seen on light and dark
PANEL, LINE = 250, 32  # width of a panel in a picture, characters of a line of its title


def best(arms: Sequence[Arm], headline: Headline) -> list[Arm]:
    """``SHOWN`` of them, by their mean, in the order in which they were given."""
    means = [spread(values_of(arm, headline)).mean for arm in arms]
    chosen = sorted(sorted(range(len(arms)), key=lambda place: -means[place])[:SHOWN])
    return [arms[place] for place in chosen]


def similarities(arms: Sequence[Arm], headline: Headline) -> Figure | None:
    """How cosines of pairs of one rating lie, for the first run of each of the best arms."""
    shown = best(arms, headline)
    tasks = sorted((ScoreName.parse(score).full_task for score in headline.scores), key=lambda task: task != "stsb")
    first = [arm.runs[0].items for arm in shown]
    task = next((one for one in tasks if all(items is not None and one in items.cosines for items in first)), None)
    if task is None:
        return None
    panels = []
    for arm in shown:
        items = arm.runs[0].items
        assert items is not None
        panels.append(_boxes(arm.label, task, items.cosines[task], items.gold[task]))
    medians = [{row["rating"]: row["median"] for row in panel["data"]["values"]} for panel in panels]
    bands = list(dict.fromkeys(band for found in medians for band in found))
    rows = [[arm.label, *map(found.get, bands)] for arm, found in zip(shown, medians, strict=True)]
    table = Table([Column("arm"), *columns(*bands, number="z,.2f")], rows, "Median cosine by rating", name="medians")
    caption = (
        f"Cosines of the pairs of {task} by their rating, first run of each arm{_of(arms, shown)}: median, middle half "
        "(box), 5 to 95 % (line). Each panel has its own range of cosines; better encoders move the boxes apart."
    )
    return Figure("similarities", "Similarity against rating", caption, panels, table, width=PANEL)


def _boxes(label: str, task: str, cosines: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    rows = list[dict[str, Any]]()
    for low, high in BANDS:
        inside = cosines[(gold >= low) & (gold < high)]
        if len(inside):
            marks = zip(("low", "lower", "median", "upper", "high"), (0.05, 0.25, 0.5, 0.75, 0.95), strict=True)
            found = {name: float(np.quantile(inside, share)) for name, share in marks}
            rows.append({"rating": f"{low} to {high:.0f}", "pairs": len(inside), **found})
    x = {"field": "rating", "type": "ordinal", "title": f"rating in {task}", "axis": {"labelAngle": 0, "grid": False}}

    def y(field: str) -> dict[str, Any]:
        return quantity(field, title="cosine", scale={"zero": False}, axis={"tickCount": 5})

    said = tooltip(
        ("rating", "rating"),
        ("pairs", "pairs"),
        ("high", "95 %", ".2f"),
        ("upper", "75 %", ".2f"),
        ("median", "median", ".2f"),
        ("lower", "25 %", ".2f"),
        ("low", "5 %", ".2f"),
    )
    layers = [
        {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y("low"), "y2": {"field": "high"}}},
        {
            "mark": {"type": "bar", "size": 22, "color": "@c1", "cornerRadius": 3},
            "encoding": {"x": x, "y": y("lower"), "y2": {"field": "upper"}, "tooltip": said},
        },
        {
            "mark": {"type": "tick", "color": "@paper", "thickness": 2.5, "size": 22, "tooltip": None},
            "encoding": {"x": x, "y": y("median")},
        },
    ]
    return {"height": 210, "title": _title(label), "data": {"values": rows}, "layer": layers}


def _title(label: str) -> dict[str, Any]:
    """Return the title of a panel in at most two lines."""
    lines = textwrap.wrap(label, LINE, max_lines=2, placeholder=" …")
    return {"text": lines or [label], "limit": PANEL}


def _of(arms: Sequence[Arm], shown: Sequence[Arm]) -> str:
    return f" (the best {len(shown)} of {len(arms)})" if len(shown) < len(arms) else ""


def plane(arms: Sequence[Arm], headline: Headline, probes: Sequence[Probe]) -> Figure | None:
    """Alignment and uniformity of each probed run; towards the lower left is better."""
    known = [probe for probe in probes if probe.alignment is not None]
    if not known:
        return None
    key = [arm.label for arm in arms]
    means = [spread(values_of(probe.arm, headline)).mean for probe in known]
    rows = [[one.arm.label, one.alignment, one.uniformity, mean] for one, mean in zip(known, means, strict=True)]
    heads = [Column("arm"), *columns("alignment", "uniformity", number="z,.3f"), Column(headline.name, NUMBER)]
    table = Table(heads, rows, "Alignment and uniformity", name="plane")
    values = [dict(zip(("arm", "alignment", "uniformity", "score"), row, strict=True)) for row in rows]

    def axis(field: str, says: str) -> dict[str, Any]:
        scale = {"zero": False, "nice": True, "padding": 24}
        return quantity(field, scale=scale, title=f"{field} (lower: {says})")

    at = {"x": axis("uniformity", "spread out"), "y": axis("alignment", "pairs close"), "opacity": faded()}
    said = tooltip(
        ("arm", "arm"),
        ("score", headline.name, ".2f"),
        ("alignment", "alignment", ".3f"),
        ("uniformity", "uniformity", ".3f"),
    )
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "point", "filled": True, "size": 130, "opacity": 1},
            "encoding": {**at, "color": coloured(key), "shape": shaped(key), "tooltip": said},
        }
    ]
    caption = "Wang and Isola's plane, of each arm's first run: towards the lower left is better."
    panel: dict[str, Any] = {"height": 340, "data": {"values": values}, "layer": layers}
    return Figure("plane", "Alignment and uniformity", caption, [panel], table, width=560)


def sentence_map(probes: Sequence[Probe], shown: Sequence[int]) -> Figure | None:
    """The sentences in two dimensions under each arm's first encoder, in the colours of the first map."""
    if not probes or not shown:
        return None
    shades = stats.rankdata(probes[0].places[shown, 0]) / len(shown)
    panels = [_map(place, probe, shown, shades) for place, probe in enumerate(probes)]
    caption = (
        f"{len(shown):,} sentences by PCA, first run of each arm, every map turned and scaled to fit the first. A "
        "colour is a place in the first map: where colours stay together, neighbourhoods do. A click lights up a "
        "sentence in all maps, with its neighbours under each arm."
    )
    return Figure("map", "Map of sentences", caption, panels, signals={"chosen": -1, "near": []}, width=PANEL)


def _map(place: int, probe: Probe, shown: Sequence[int], shades: np.ndarray) -> dict[str, Any]:
    values = [
        {"sentence": row, "x": round(float(x), 4), "y": round(float(y), 4), "shade": round(float(shade), 3)}
        for row, ((x, y), shade) in enumerate(zip(probe.places[shown], shades, strict=True))
    ]
    lit = f"datum.sentence === chosen || (near[{place}] && indexof(near[{place}], datum.sentence) >= 0)"

    def axis(field: str) -> dict[str, Any]:
        return quantity(field, axis=None, scale={"zero": False, "padding": 8})

    shade = quantity("shade", scale={"range": PLACES}, legend=None)
    at = {"x": axis("x"), "y": axis("y"), "color": shade, "tooltip": {"field": "sentence", "title": "sentence"}}
    size = {"condition": {"test": "datum.sentence === chosen", "value": 190}, "value": 80}
    layers = [
        {
            "mark": {"type": "point", "filled": True, "size": 26},
            "encoding": {**at, "opacity": {"condition": {"test": "chosen < 0", "value": 0.85}, "value": 0.25}},
        },
        {
            "transform": [{"filter": lit}],
            "mark": {"type": "point", "filled": True, "opacity": 1, "stroke": "@ink", "strokeWidth": 1.5},
            "encoding": {**at, "size": size},
        },
    ]
    return {
        "height": 250,
        "title": _title(probe.arm.label),
        "data": {"values": values},
        "layer": layers,
        "view": {"stroke": "@line"},
    }
