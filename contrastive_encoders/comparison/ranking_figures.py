"""Draw the ranking of the arms: scores with confidence intervals, and pairwise differences."""

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import PairwiseComparison, Standing, interval_of, values_of
from contrastive_encoders.comparison.tables import p_value, rank
from contrastive_encoders.reports.encodings import color, opacity, shape, tooltip
from contrastive_encoders.reports.figure import INK, LINE, SERIES, Control, Figure
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import spread

MAX_CELLS = 5_000  # maximum number of cells of the matrix over all scores; above it, only the headline is drawn
MAX_LETTERS = 18  # maximum characters in a line of a name on a narrow page
NARROW = "containerSize()[0] < 500 ? {1} : {0}"
ROW_LABEL = NARROW.format("datum.label", "wrapped[datum.label]")
MAX_ARMS_WITH_NUMBERS = 14  # with more arms, the cells of the matrix are too small for numbers


def dots(arms: Sequence[Arm], headline: RankingMetric, standings: Sequence[Standing]) -> Figure:
    """Draw the mean score of each arm in ranked order, with its 95 % interval and the score of each seed."""
    key, rows, seeds = [arm.label for arm in arms], list[dict[str, Any]](), list[dict[str, Any]]()
    for standing in standings:
        arm = arms[standing.arm]
        values = values_of(arm, headline)
        bounds = interval_of(arms, arm, headline)
        summary = spread(values)
        row: dict[str, Any] = {
            "arm": arm.label,
            "mean": summary.mean,
            "seeds": summary.seeds,
            "rank": rank(standing).text,
        }
        row["sd"] = "one seed" if summary.deviation is None else f"{summary.deviation:.2f}"
        if bounds is not None:
            row["low"], row["high"] = bounds
            row["items"] = f"{row['low']:.2f} to {row['high']:.2f}"
        if summary.deviation is not None:
            row["below"], row["above"] = summary.mean - summary.deviation, summary.mean + summary.deviation
        rows.append(row)
        seeds += [
            {"arm": arm.label, "value": float(value), "seed": run.seed}
            for run, value in zip(arm.runs, values, strict=True)
        ]
    order = [row["arm"] for row in rows]
    y = alt.Y("arm:N", sort=order, title=None, axis=alt.Axis(domain=False, ticks=False, labelExpr=ROW_LABEL))
    x = partial(alt.X, scale=alt.Scale(zero=False, nice=True), title=headline.name)
    means = alt.Chart().encode(y=y, color=color(key, legend=None))
    over_items = means.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=9, strokeCap="round")
    over_seeds = means.transform_filter("isValid(datum.below)").mark_rule(strokeWidth=2)
    fields = tooltip(
        ("arm", "arm"),
        ("rank", "rank"),
        ("mean", headline.name, ".2f"),
        ("items", "95 % over test items"),
        ("sd", "sd over seeds"),
        ("seeds", "seeds"),
    )
    panel = alt.layer(
        over_items.encode(x=x("low:Q"), x2="high:Q", opacity=opacity(0.28, 0.05)),
        over_seeds.encode(x=x("below:Q"), x2="above:Q", opacity=opacity(1, 0.1)),
        alt.Chart({"values": seeds})
        .mark_tick(thickness=1.5, height=13, color=INK)
        .encode(x=x("value:Q"), y=y, opacity=opacity(0.75)),
        means.mark_point(filled=True, size=110, opacity=1).encode(
            x=x("mean:Q"), shape=shape(key, legend=None), opacity=opacity(), tooltip=fields
        ),
        data={"values": rows},
    ).properties(height=alt.Step(34 if len(rows) <= 12 else 28))
    caption = (
        "Mean over seeds (mark), each seed (stroke), mean ± standard deviation over seeds (thin line), 95 % interval "
        "over test items for these seeds (broad line)."
    )
    signals = {"wrapped": {name: _wrap(name) for name in order}}
    return Figure("leaderboard", f"By {headline.name}", caption, [panel], signals=signals, width=640)


def _wrap(name: str) -> list[str]:
    return textwrap.wrap(name, MAX_LETTERS, break_on_hyphens=False, max_lines=2, placeholder=" …") or [name]


def differences(
    arms: Sequence[Arm],
    headline: RankingMetric,
    standings: Sequence[Standing],
    comparisons: Sequence[PairwiseComparison],
) -> Figure | None:
    """Draw a matrix of the score differences of all pairs of arms: row minus column."""
    if not comparisons:
        return None
    places = {standing.arm: place for place, standing in enumerate(standings, start=1)}
    scores = list(dict.fromkeys(one.score for one in comparisons))
    if 2 * len(comparisons) > MAX_CELLS:
        scores = [headline.name]
    cells = list[dict[str, Any]]()
    for one in comparisons:
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
                    "distinguishable": one.distinguishable,
                    "verdict": "distinguishable" if one.distinguishable else "not distinguishable",
                }
            )
    caption = (
        "Row minus column, with the arms in the order of the ranking. Blue: the row is better; orange: it is worse. A "
        "stronger color means a larger difference, and a dot that the two are distinguishable for these seeds."
    )
    names = [f"{arms[one.arm].label}  {place}" for place, one in enumerate(standings, start=1)]
    return Figure(
        "differences",
        "Pairwise differences",
        caption,
        [_matrix(len(standings), cells, numbers=len(arms) <= MAX_ARMS_WITH_NUMBERS)],
        signals={"score": headline.name, "names": names, "wrapped": [_wrap(name) for name in names]},
        width=None,
        controls=[Control("score", "Score", scores)] if len(scores) > 1 else [],
    )


def _matrix(arms: int, cells: list[dict[str, Any]], *, numbers: bool) -> alt.TopLevelMixin:
    names: dict[str, Any] = {"scale": alt.Scale(domain=list(range(1, arms + 1))), "title": None}
    axis = partial(alt.Axis, domain=False, ticks=False)
    name_of_row = NARROW.format("names[datum.value - 1]", "wrapped[datum.value - 1]")
    pairs = alt.Chart().encode(
        x=alt.X("column:O", **names, axis=axis(orient="top", labelAngle=0, labelOverlap="parity")),
        y=alt.Y("row:O", **names, axis=axis(labelExpr=name_of_row)),
    )
    fields = tooltip(
        ("arm", "arm"),
        ("minus", "minus"),
        ("score", "score"),
        ("value", "difference", "+.2f"),
        ("items", "95 % over test items"),
        ("p", "p, Holm"),
        ("verdict", "for these seeds"),
    )
    sides = alt.Scale(domain=["above", "below"], range=SERIES[:2])
    layers = [
        pairs.mark_rect(cornerRadius=3 if numbers else 0, stroke=LINE).encode(
            color=alt.Color("sign:N", legend=None, scale=sides),
            fillOpacity=alt.FillOpacity("size:Q", legend=None, scale=alt.Scale(domainMin=0, range=[0.04, 0.75])),
            tooltip=fields,
        ),
        pairs.transform_filter("datum.distinguishable").mark_point(
            filled=True,
            color=INK,
            opacity=1,
            tooltip=None,
            size=22 if numbers else 14,
            yOffset=13 if numbers else 0,
        ),
    ]
    if numbers:
        layers.append(pairs.mark_text(dy=-2, tooltip=None).encode(text=alt.Text("value:Q", format="+.1f")))
    step = max(11, min(20, 1000 // arms))
    matrix = alt.layer(*layers, data={"values": cells}).transform_filter("datum.score == score")
    return matrix.properties(width=alt.Step(62 if numbers else step), height=alt.Step(44 if numbers else step))
