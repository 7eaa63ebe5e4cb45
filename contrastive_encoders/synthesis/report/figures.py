"""Draw the figures of a report: distributions for each label."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import altair as alt
import numpy as np

from contrastive_encoders.reports.encodings import color, opacity, shape, tooltip
from contrastive_encoders.reports.figure import SERIES, SOFT, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report.measures import BINS, MAX_WORDS, LabelStatistics
from contrastive_encoders.synthesis.rules.triplet_rules import ANSWER_BINS


class Curve(NamedTuple):
    """A line of a figure: the number of texts with a label in each bin, and the positions ``xs`` of the bins."""

    label: str
    xs: Sequence[float]
    counts: Sequence[int]


def lengths(measured: Mapping[str, LabelStatistics]) -> Figure:
    """Draw the distribution of text lengths, in words, for each label."""
    curves = [Curve(label, range(MAX_WORDS + 1), one.words) for label, one in measured.items()]
    caption = f"Lengths of accepted texts. The last point stands for {MAX_WORDS} or more words."
    return _shares("lengths", "Lengths", caption, "words", curves, form="d")


def overlaps(measured: Mapping[str, LabelStatistics]) -> Figure:
    """Draw the distribution of the lexical overlap of pairs (Jaccard): the number of words that both texts contain,
    divided by the number of words that at least one of them contains.
    """
    curves = [Curve(label, middles(0, 1, BINS), one.overlaps) for label, one in measured.items()]
    caption = (
        "Number of words in both texts of a pair over the number in either (Jaccard), without case and punctuation."
    )
    return _shares("overlaps", "Lexical overlap", caption, "overlap", curves)


def similarities(cosines: Mapping[str, Sequence[float]], encoder: str) -> Figure:
    """For each label, draw the distribution of the cosine similarities that an encoder computes for the pairs."""
    lowest = min((value for found in cosines.values() for value in found), default=0.0)
    begin = min(math.floor(lowest * BINS) / BINS, 0.0)
    bins = round((1 - begin) * BINS)
    curves = [
        Curve(label, middles(begin, 1, bins), np.histogram(np.minimum(found, 1.0), bins, (begin, 1))[0].tolist())
        for label, found in cosines.items()
    ]
    caption = f"Cosine similarity of the two texts of a pair under {encoder}, for a sample of the accepted pairs."
    return _shares("similarities", "Similarity", caption, "cosine", curves)


def answers(found: Mapping[str, Sequence[int]]) -> Figure:
    """For each direction (entailment and contradiction), draw the distribution of the probability that the
    discriminator assigns to the intended answer.
    """
    curves = [Curve(direction, middles(0, 1, ANSWER_BINS), counts) for direction, counts in found.items()]
    caption = (
        "Probability of the intended answer: that the text follows, or that it contradicts. Below one half, the "
        "discriminator disagrees. Only the selected candidate of each sentence counts, regardless of the other rules."
    )
    figure = _shares("answers", "Answers of the discriminator", caption, "probability of the intended answer", curves)
    half = alt.Chart({"values": [{"half": 0.5}]}).mark_rule(strokeDash=[4, 4], color=SOFT).encode(x="half:Q")
    return figure._replace(panels=[figure.panels[0] + half])


def middles(begin: float, end: float, bins: int) -> list[float]:
    edges = [begin + (end - begin) * place / bins for place in range(bins + 1)]
    return [round((low + high) / 2, 4) for low, high in pairwise(edges)]


def _shares(name: str, title: str, caption: str, x_title: str, curves: Sequence[Curve], form: str = ".3g") -> Figure:
    """Draw a line for each label: the fraction of its texts in each bin."""
    labels = [one.label for one in curves]
    points = [
        {"label": one.label, "x": x, "texts": count, "share": count / max(sum(one.counts), 1)}
        for one in curves
        for x, count in zip(one.xs, one.counts, strict=True)
    ]
    shares = alt.Chart().encode(
        x=alt.X("x:Q", title=x_title, scale=alt.Scale(zero=False, nice=False)),
        y=alt.Y("share:Q", title="share of the texts", axis=alt.Axis(format="%")),
        color=color(labels, "label") if len(labels) > 1 else alt.value(SERIES[0]),
        opacity=opacity(field="label"),
    )
    shown = tooltip(("label",), ("x", x_title, form), ("texts", "texts", ","), ("share", "share", ".1%"))
    dots = shares.mark_point(filled=True, size=36).encode(shape=shape(labels, "label"), tooltip=shown)
    panel = alt.layer(shares.mark_line(strokeWidth=1.6), dots, data={"values": points}).properties(height=240)
    rows = [[format(x, form), *(one.counts[place] for one in curves)] for place, x in enumerate(curves[0].xs)]
    table = Table([Column(x_title), *columns(*labels, number=",")], rows)
    return Figure(name, title, caption, [panel], table)
