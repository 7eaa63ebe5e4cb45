"""Figures of embeddings: similarity against ratings, alignment and uniformity, and a map of sentences."""

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
from scipy import stats

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.probe_sentences import ProbeEmbeddings
from contrastive_encoders.comparison.tables import NUMBER
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.reports.encodings import FREE_SCALE, color, legend_of, opacity, shape, tooltip
from contrastive_encoders.reports.figure import INK, LINE, PAPER, SERIES, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import spread

BANDS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5.01))  # ranges of the ratings, which are from 0 to 5
QUANTILES = {"low": 0.05, "lower": 0.25, "median": 0.5, "upper": 0.75, "high": 0.95}
MAX_PANELS = 8  # the best arms are drawn
# Colors of positions in the first map from left to right, visible on light and dark backgrounds
MAP_COLORS = ["#3b6fd4", "#1ba39c", "#b8860b", "#d9552b"]
WIDTH, MAX_LETTERS = 250, 32  # width of a panel in a figure, and characters in a line of its title


def best(arms: Sequence[Arm], headline: RankingMetric) -> list[Arm]:
    """Return at most `MAX_PANELS` arms, those with the highest mean scores, in the given order."""
    means = [spread(values_of(arm, headline)).mean for arm in arms]
    indices = sorted(sorted(range(len(arms)), key=lambda place: -means[place])[:MAX_PANELS])
    return [arms[place] for place in indices]


def similarities(arms: Sequence[Arm], headline: RankingMetric) -> Figure | None:
    """Draw the cosine similarities of pairs, grouped by rating, for the first run of each of the best arms."""
    best_arms = best(arms, headline)
    tasks = sorted((ScoreName.parse(score).full_task for score in headline.scores), key=lambda task: task != "stsb")
    items = [arm.runs[0].items for arm in best_arms]
    task = next((one for one in tasks if all(each is not None and one in each.cosines for each in items)), None)
    if task is None:
        return None
    quantiles = [_quantiles(each.cosines[task], each.gold[task]) for each in items if each is not None]
    bands = list(dict.fromkeys(row["rating"] for rows in quantiles for row in rows))
    medians = [{row["rating"]: row["median"] for row in rows} for rows in quantiles]
    rows = [
        [arm.label, *map(medians_of_arm.get, bands)] for arm, medians_of_arm in zip(best_arms, medians, strict=True)
    ]
    table = Table([Column("arm"), *columns(*bands, number="z,.2f")], rows, "Median cosine by rating", name="medians")
    selection = f" (the best {len(best_arms)} of {len(arms)})" if len(best_arms) < len(arms) else ""
    caption = (
        f"Cosines of the pairs of {task} by their rating, first run of each arm{selection}: median, middle half "
        "(box), 5 to 95 % (line). Each panel has its own range of cosines. The boxes of better encoders overlap less."
    )
    panels = [_boxes(arm.label, task, one) for arm, one in zip(best_arms, quantiles, strict=True)]
    return Figure("similarities", "Similarity against rating", caption, panels, table, width=WIDTH)


def _quantiles(cosines: np.ndarray, gold: np.ndarray) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    for low, high in BANDS:
        values = cosines[(gold >= low) & (gold < high)]
        if len(values):
            quantiles = {name: float(np.quantile(values, share)) for name, share in QUANTILES.items()}
            rows.append({"rating": f"{low} to {high:.0f}", "pairs": len(values), **quantiles})
    return rows


def _boxes(label: str, task: str, rows: list[dict[str, Any]]) -> alt.TopLevelMixin:
    y = partial(alt.Y, title="cosine", scale=FREE_SCALE, axis=alt.Axis(tickCount=5))
    bands = alt.Chart({"values": rows}).encode(
        x=alt.X("rating:O", title=f"rating in {task}", axis=alt.Axis(labelAngle=0, grid=False))
    )
    fields = tooltip(
        ("rating", "rating"),
        ("pairs", "pairs"),
        ("high", "95 %", ".2f"),
        ("upper", "75 %", ".2f"),
        ("median", "median", ".2f"),
        ("lower", "25 %", ".2f"),
        ("low", "5 %", ".2f"),
    )
    boxes = bands.mark_bar(size=22, color=SERIES[0], cornerRadius=3)
    medians = bands.mark_tick(color=PAPER, thickness=2.5, size=22, tooltip=None)
    return alt.layer(
        bands.mark_rule(strokeWidth=1.5).encode(y=y("low:Q"), y2="high:Q"),
        boxes.encode(y=y("lower:Q"), y2="upper:Q", tooltip=fields),
        medians.encode(y=y("median:Q")),
    ).properties(height=210, title=_title(label))


def _title(label: str) -> dict[str, Any]:
    """Return the Vega-Lite title of a panel, wrapped to at most two lines."""
    lines = textwrap.wrap(label, MAX_LETTERS, max_lines=2, placeholder=" …")
    return {"text": lines or [label], "limit": WIDTH}


def plane(arms: Sequence[Arm], headline: RankingMetric, probes: Sequence[ProbeEmbeddings]) -> Figure | None:
    """Draw the alignment of each run in ``probes`` against its uniformity. Lower left is better."""
    known = [probe for probe in probes if probe.alignment is not None]
    if not known:
        return None
    key = [arm.label for arm in arms]
    means = [spread(values_of(probe.arm, headline)).mean for probe in known]
    rows = [[one.arm.label, one.alignment, one.uniformity, mean] for one, mean in zip(known, means, strict=True)]
    heads = [Column("arm"), *columns("alignment", "uniformity", number="z,.3f"), Column(headline.name, NUMBER)]
    table = Table(heads, rows, "Alignment and uniformity", name="plane")
    scale = alt.Scale(zero=False, nice=True, padding=24)
    fields = tooltip(
        ("arm", "arm"),
        ("score", headline.name, ".2f"),
        ("alignment", "alignment", ".3f"),
        ("uniformity", "uniformity", ".3f"),
    )
    values = [dict(zip(("arm", "alignment", "uniformity", "score"), row, strict=True)) for row in rows]
    panel = alt.Chart({"values": values}).mark_point(filled=True, size=130, opacity=1).properties(height=340)
    legend = legend_of(key, [probe.arm.label for probe in known])
    panel = panel.encode(
        x=alt.X("uniformity:Q", scale=scale, title="uniformity (lower: spread out)"),
        y=alt.Y("alignment:Q", scale=scale, title="alignment (lower: pairs close)"),
        opacity=opacity(),
        color=color(key, legend=legend),
        shape=shape(key, legend=legend),
        tooltip=fields,
    )
    caption = "Alignment and uniformity (Wang and Isola) of each arm's first run. Lower left is better."
    return Figure("plane", "Alignment and uniformity", caption, [panel], table, width=560)


def sentence_map(probes: Sequence[ProbeEmbeddings], shown: Sequence[int]) -> Figure | None:
    """Draw a 2-D map of the sentences for each arm. The position of a sentence in the first map defines its color."""
    if not probes or not shown:
        return None
    shades = stats.rankdata(probes[0].places[shown, 0]) / len(shown)
    panels = [_map(place, probe, shown, shades) for place, probe in enumerate(probes)]
    caption = (
        f"{len(shown):,} sentences projected by PCA, first run of each arm. Every map is rotated and scaled to fit the "
        "first one, whose positions define the colors."
    )
    hint = "Click a sentence to highlight it in all maps, with its nearest neighbors under each arm."
    signals = {"chosen": -1, "near": []}
    return Figure("map", "Map of sentences", caption, panels, signals=signals, width=WIDTH, hint=hint)


def _map(place: int, probe: ProbeEmbeddings, shown: Sequence[int], shades: np.ndarray) -> alt.TopLevelMixin:
    values = [
        {"sentence": row, "x": round(float(x), 4), "y": round(float(y), 4), "shade": round(float(shade), 3)}
        for row, ((x, y), shade) in enumerate(zip(probe.places[shown], shades, strict=True))
    ]
    scale = alt.Scale(zero=False, padding=8)
    sentences = alt.Chart({"values": values}).encode(
        x=alt.X("x:Q", axis=None, scale=scale),
        y=alt.Y("y:Q", axis=None, scale=scale),
        color=alt.Color("shade:Q", scale=alt.Scale(range=MAP_COLORS), legend=None),
        tooltip=alt.Tooltip(field="sentence", title="sentence"),
    )
    chosen_or_near = f"datum.sentence === chosen || (near[{place}] && indexof(near[{place}], datum.sentence) >= 0)"
    marked = sentences.transform_filter(chosen_or_near).mark_point(filled=True, opacity=1, stroke=INK, strokeWidth=1.5)
    return alt.layer(
        sentences.mark_point(filled=True, size=26).encode(
            opacity=alt.condition("chosen < 0", alt.value(0.85), alt.value(0.25))
        ),
        marked.encode(size=alt.condition("datum.sentence === chosen", alt.value(190), alt.value(80))),
    ).properties(height=250, title=_title(probe.arm.label), view={"stroke": LINE})
