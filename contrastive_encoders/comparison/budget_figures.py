"""Draw scores against the number of training tokens, for arms that were trained with several budgets."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.baselines import UNTRAINED
from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.reports.encodings import FREE_SCALE, color, shape, tooltip
from contrastive_encoders.reports.figure import LEGEND, SOFT, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric

LOG_SCALE = alt.Scale(type="log", nice=False, padding=12)  # from the first budget to the last
MIN_BUDGET_RATIO = 1.2  # budgets count as different if their ratio is above this factor
NAME_LEGEND = LEGEND | {"columns": 4}  # also on a page: its legend has a name for each budget


def score_over_tokens(arms: Sequence[Arm], headline: RankingMetric) -> Figure | None:
    """Draw the mean score against the number of training tokens: one line for each name of an arm, with a band from the
    lowest to the highest score of its seeds.

    A dashed line shows the untrained encoder. Arms have the same name and different budgets if they were trained in two
    races (`comparison.race`). Return None if there are no such arms.
    """
    budgets = dict[str, list[Arm]]()
    for arm in arms:
        if (name := arm.runs[0].label) and (_tokens(arm) or name == UNTRAINED):  # an evaluation has no tokens
            budgets.setdefault(name, []).append(arm)
    untrained = budgets.pop(UNTRAINED, [])
    lines = {name: sorted(group, key=_tokens) for name, group in budgets.items() if _have_different_budgets(group)}
    if not lines:
        return None
    points = [
        {"arm": name, "tokens": _tokens(arm), **_spread(values_of(arm, headline))}
        for name, group in lines.items()
        for arm in group
    ]
    start = [float(value) for arm in untrained for value in values_of(arm, headline)]
    names = list(lines)
    rows = [[one["arm"], one["tokens"], one["mean"], one["low"], one["high"], one["seeds"]] for one in points]
    heads = [
        Column("arm"),
        Column("real tokens", ",.0f"),
        *columns("mean", "lowest seed", "highest seed", number=".2f"),
        Column("seeds", ",.0f"),
    ]
    description = f"{headline.name} by the real tokens that a run was trained on." + (
        f" Untrained: {np.mean(start):.2f}, dashed." if start else ""
    )
    return Figure(
        "budgets",
        f"{headline.name} over tokens of training",
        f"{description} A line is the mean over an arm's seeds, its band the lowest and the highest.",
        [_panel(points, names, start, headline.name)],
        table=Table(heads, rows, description, name="budgets"),
    )


def _tokens(arm: Arm) -> float:
    return float(np.mean([run.results["cost"]["real_tokens"] for run in arm.runs]))


def _have_different_budgets(arms: Sequence[Arm]) -> bool:
    """Return whether there are at least two arms, and the budgets of any two differ clearly.

    Otherwise, the arms do not differ in their budget alone.
    """
    tokens = sorted(_tokens(arm) for arm in arms)
    return len(tokens) > 1 and all(later > MIN_BUDGET_RATIO * one for one, later in pairwise(tokens))


def _spread(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "low": float(values.min()),
        "high": float(values.max()),
        "seeds": float(len(values)),
    }


def _panel(points: list[dict[str, Any]], names: Sequence[str], start: Sequence[float], score: str) -> alt.TopLevelMixin:
    y = partial(alt.Y, title=score, scale=FREE_SCALE)
    arms = alt.Chart({"values": points}).encode(
        x=alt.X("tokens:Q", title="real tokens of training", scale=LOG_SCALE, axis=alt.Axis(format="~s", grid=False)),
        y=y("mean:Q"),
        color=color(names, legend=NAME_LEGEND),
    )
    fields = tooltip(
        ("arm", "arm"),
        ("tokens", "real tokens", ",.0f"),
        ("mean", "mean", ".2f"),
        ("low", "lowest seed", ".2f"),
        ("high", "highest seed", ".2f"),
    )
    layers = [
        arms.mark_area(opacity=0.16).encode(y=y("low:Q"), y2="high:Q"),
        arms.mark_line(strokeWidth=2.2),
        arms.mark_point(filled=True, size=70, opacity=1).encode(shape=shape(names, legend=NAME_LEGEND), tooltip=fields),
    ]
    if start:
        untrained = alt.Chart({"values": [{"mean": float(np.mean(start))}]})
        layers.append(untrained.mark_rule(strokeDash=[5, 4], color=SOFT).encode(y=y("mean:Q")))
    return alt.layer(*layers).properties(height=360)
