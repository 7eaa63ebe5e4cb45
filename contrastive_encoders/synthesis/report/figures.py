"""Figures of a report: distributions per label."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.reports.figure import Figure, coloured, faded, quantity, shaped, tooltip
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report.measures import BINS, LONGEST, Measured
from contrastive_encoders.synthesis.rules.triplet_rules import ANSWER_BINS

PERCENT = {"format": "%"}


class Curve(NamedTuple):
    """The number of texts of a label at each of ``xs``."""

    label: str
    xs: Sequence[float]
    counts: Sequence[int]


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
    caption = f"Cosine of the two texts of a pair under {encoder}; of the accepted pairs that were drawn."
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
