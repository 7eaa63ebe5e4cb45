"""Figures of a report: outcomes, yield over time, and distributions per label."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.reports.figure import Figure, coloured, faded, quantity, shaped, tooltip
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report.measures import BINS, LONGEST, Measured
from contrastive_encoders.synthesis.report.texts import ACCEPTED
from contrastive_encoders.synthesis.rules.triplet_rules import ANSWER_BINS
from contrastive_encoders.synthesis.shards.store import LabelCounts, ShardRecord

MOST_POINTS = 120  # of a line over time; with more shards some are one point
UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0), ("seconds", 1.0))
FATES = ("@c3", "@c2", "@c4", "@c5", "@c6", "@c7", "@c1", "@c8")
PERCENT = {"format": "%"}


class Curve(NamedTuple):
    """The number of texts of a label at each of ``xs``."""

    label: str
    xs: Sequence[float]
    counts: Sequence[int]


def fates(counts: Mapping[str, Any], labels: Sequence[str]) -> Figure:
    """What became of the sampled texts of each label. ``counts`` are a manifest's."""
    reasons = [ACCEPTED, *counts["rejected"]]
    parts = [
        {"label": label, "fate": fate, "place": place, "texts": number, "share": number / max(one["samples"], 1)}
        for label in labels
        if (one := counts["labels"].get(label))
        for place, fate in enumerate(reasons)
        if (number := one["accepted"] if place == 0 else one["rejected"].get(fate, 0))
    ]
    legend = {"orient": "top", "title": None, "columns": 2, "labelLimit": 300}
    scale = {"domain": reasons, "range": [FATES[place % 8] for place in range(len(reasons))]}
    panel = {
        "height": {"step": 38},
        "data": {"values": parts},
        "mark": {"type": "bar", "cornerRadius": 2},
        "encoding": {
            "y": {"field": "label", "type": "nominal", "title": None, "sort": list(labels)},
            "x": quantity("texts", title="sampled texts", axis={"grid": False}),
            "order": quantity("place"),
            "color": {"field": "fate", "type": "nominal", "legend": legend, "scale": scale},
            "opacity": faded(field="label"),
            "tooltip": tooltip(("label",), ("fate",), ("texts", "texts", ","), ("share", "share", ".1%")),
        },
    }
    return Figure("fates", "What became of the sampled texts", "By the first reason that applied.", [panel])


def over_time(records: Sequence[ShardRecord], labels: Sequence[str]) -> Figure | None:
    """Accepted texts and their share of the samples over time; None where all were written at one time."""
    found = sorted(records, key=lambda one: one["written"])
    if len(found) < 2 or found[0]["written"] == found[-1]["written"]:
        return None
    size = -(-len(found) // MOST_POINTS)
    groups = [found[at : at + size] for at in range(0, len(found), size)]
    whole = found[-1]["written"] - found[0]["written"]
    unit, seconds = next((one for one in UNITS if whole >= 2 * one[1]), UNITS[-1])
    none, rows = LabelCounts(samples=0, accepted=0, rejected={}), list[list[Any]]()
    so_far = dict.fromkeys(labels, 0)
    for group in groups:
        after = (group[-1]["written"] - found[0]["written"]) / seconds
        for label in labels:
            counts = [one["labels"].get(label, none) for one in group]
            samples, accepted = sum(one["samples"] for one in counts), sum(one["accepted"] for one in counts)
            so_far[label] += accepted
            rows.append([label, after, so_far[label], accepted / samples if samples else None])
    points = [dict(zip(("label", "after", "accepted", "yield"), row, strict=True)) for row in rows]
    caption = f"A point is {size:,} shard{'s' if size > 1 else ''}, at the time when they were written."
    x = quantity("after", title=f"{unit} after the first shard")
    share = quantity("yield", title="accepted of what was sampled", axis=PERCENT)
    total = quantity("accepted", title="accepted so far")
    said = tooltip(("label",), ("after", unit, ".1f"), ("accepted", "accepted", ","), ("yield", "yield", ".1%"))
    table = Table([Column("label"), Column(unit, ".1f"), Column("accepted so far", ","), Column("yield", ".1%")], rows)
    panels = [_lines(points, labels, x, y, said) for y in (share, total)]
    return Figure("over-time", "Yield over time", caption, panels, table, width=380)


def lengths(measured: Mapping[str, Measured]) -> Figure:
    """Words of the texts of each label."""
    curves = [Curve(label, range(LONGEST + 1), one.words) for label, one in measured.items()]
    caption = f"Of accepted texts. The last point is {LONGEST} words and more."
    return _shares("lengths", "Lengths", caption, "words", curves, form="d")


def overlaps(measured: Mapping[str, Measured]) -> Figure:
    """Words that both texts of a pair have, over words that either has."""
    curves = [Curve(label, middles(0, 1, BINS), one.overlaps) for label, one in measured.items()]
    caption = "Words that both texts of a pair have over those that either has (Jaccard), case and punctuation aside."
    return _shares("overlaps", "Lexical overlap", caption, "overlap", curves)


def similarities(cosines: Mapping[str, Sequence[float]], encoder: str) -> Figure:
    """Cosines of the two texts of each pair under an encoder, by label."""
    lowest = min((value for found in cosines.values() for value in found), default=0.0)
    begin = min(math.floor(lowest * BINS) / BINS, 0.0)
    bins = round((1 - begin) * BINS)
    curves = [
        Curve(label, middles(begin, 1, bins), np.histogram(np.minimum(found, 1.0), bins, (begin, 1))[0].tolist())
        for label, found in cosines.items()
    ]
    caption = f"Cosine of the two texts of a pair under {encoder}; of the accepted pairs that stand on this page."
    return _shares("similarities", "Similarity", caption, "cosine", curves)


def answers(found: Mapping[str, Sequence[int]]) -> Figure:
    """The discriminator's probability of what a text was written for, by direction."""
    curves = [Curve(direction, middles(0, 1, ANSWER_BINS), counts) for direction, counts in found.items()]
    caption = (
        "Probability of the answer that a text was written for: that it follows, or that it contradicts. Below one "
        "half the discriminator disagrees. Of each sentence the candidate that stands for it, whatever other rules say."
    )
    figure = _shares("answers", "What the discriminator said", caption, "probability of the wanted answer", curves)
    rule = {
        "data": {"values": [{"half": 0.5}]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "@soft"},
        "encoding": {"x": quantity("half")},
    }
    panel = {**figure.panels[0], "layer": [*figure.panels[0]["layer"], rule]}
    return figure._replace(panels=[panel])


def thresholds(curve: Mapping[str, int], rows: int) -> Figure:
    """Sentences whose triplet is accepted at other thresholds. ``curve`` is a manifest's."""
    points = [{"threshold": float(one), "share": count / max(rows, 1), "n": count} for one, count in curve.items()]
    panel = {
        "height": 240,
        "data": {"values": points},
        "mark": {"type": "line", "point": True, "color": "@ink"},
        "encoding": {
            "x": quantity("threshold", scale={"zero": False}),
            "y": quantity("share", title="share of the sentences", axis=PERCENT),
            "tooltip": tooltip(("threshold",), ("n", "triplets", ","), ("share", "share", ".1%")),
        },
    }
    return Figure("thresholds", "Accepted at other thresholds", "The other rules as they are.", [panel])


def rules(broken: Mapping[str, int], rows: int) -> Figure:
    """``broken`` is a manifest's: each rule as if it were the only one."""
    bars = [{"rule": rule, "n": number, "share": number / max(rows, 1)} for rule, number in broken.items()]
    panel = {
        "height": {"step": 30},
        "data": {"values": bars},
        "mark": {"type": "bar", "color": "@soft", "cornerRadius": 2},
        "encoding": {
            "y": {"field": "rule", "type": "nominal", "title": None, "sort": None},
            "x": quantity("share", title="share of the sentences that break it", axis=PERCENT),
            "tooltip": tooltip(("rule",), ("n", "sentences", ","), ("share", "share", ".1%")),
        },
    }
    return Figure("rules", "Rules", "Each as if it were the only one.", [panel])


def middles(begin: float, end: float, bins: int) -> list[float]:
    edges = [begin + (end - begin) * place / bins for place in range(bins + 1)]
    return [round((low + high) / 2, 4) for low, high in pairwise(edges)]


def _shares(name: str, title: str, caption: str, x_title: str, curves: Sequence[Curve], form: str = ".3g") -> Figure:
    """A line for each label."""
    labels = [one.label for one in curves]
    points = [
        {"label": one.label, "x": x, "texts": count, "share": count / max(sum(one.counts), 1)}
        for one in curves
        for x, count in zip(one.xs, one.counts, strict=True)
    ]
    x = quantity("x", title=x_title, scale={"zero": False, "nice": False})
    y = quantity("share", title="share of the texts", axis=PERCENT)
    said = tooltip(("label",), ("x", x_title, form), ("texts", "texts", ","), ("share", "share", ".1%"))
    rows = [[format(x, form), *(one.counts[place] for one in curves)] for place, x in enumerate(curves[0].xs)]
    table = Table([Column(x_title), *columns(*labels, number=",")], rows)
    return Figure(name, title, caption, [_lines(points, labels, x, y, said)], table)


def _lines(
    points: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    said: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    several = len(labels) > 1
    alike = {"color": coloured(labels, "label"), "opacity": faded(field="label")} if several else {}
    drawn = {} if several else {"color": "@c1"}
    return {
        "height": 240,
        "data": {"values": list(points)},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.6, **drawn}, "encoding": alike},
            {
                "mark": {"type": "point", "filled": True, "size": 36, **drawn},
                "encoding": {**alike, "shape": shaped(labels, "label"), "tooltip": list(said)},
            },
        ],
    }
