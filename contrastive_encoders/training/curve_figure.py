"""The figure of a run's learning curves: on the left, a large chart of the monitored score and small charts of other
scores; on the right, losses and learning rate.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from contrastive_encoders.io.metrics import Row, numbers
from contrastive_encoders.reports.curves import MAX_POINTS, Curves, round_line
from contrastive_encoders.reports.encodings import INTEGER_TICKS
from contrastive_encoders.reports.figure import SERIES, SOFT, Figure
from contrastive_encoders.training.curve import Reference, loss_names, others_of, score_names

RATE = "train/lr"
DASHES = alt.Scale(range=[[6, 4], [2, 3], [10, 3, 2, 3]])  # of the lines of reference values, which a legend names
KEY = alt.Legend(symbolSize=1600, symbolStrokeWidth=1.5)  # long enough to show the dashes
MAX_LOSSES = 5
# Axis labels as a Vega expression; a learning rate is shown as 2.5e-5
NUMBER = "format(datum.value, datum.value && abs(datum.value) < 0.001 ? '~e' : '.4~g')"
X = alt.X("step:Q", title=None, axis=alt.Axis(grid=False, tickCount=5, tickMinStep=INTEGER_TICKS))
Y = partial(alt.Y, title=None, axis=alt.Axis(tickCount=5, labelExpr=NUMBER))


def curve_figure(rows: Sequence[Row], monitor: str | None, against: Reference, title: str) -> Figure:
    run = Curves("", "", against.curves(numbers(rows)), {})
    scores = [name for name in score_names(rows, monitor) if name in run.lines]
    left, right = list[Any](), list[Any]()  # charts
    if scores:
        left.append(_monitored(run, scores[0], against))
        small = [_small(run, name, 260) for name in others_of(run, scores)]
        left += [alt.concat(*small, columns=2)] if small else []
    losses = [name for name in loss_names(rows) if name in run.lines][:MAX_LOSSES]
    right += [_small(run, name, 320) for name in [*losses, *([RATE] if RATE in run.lines else [])]]
    if not left and not right:
        right.append(alt.Chart({"values": []}).mark_point().properties(width=320, title="nothing was logged"))
    columns = [alt.vconcat(*column).resolve_legend(strokeDash="independent") for column in (left, right) if column]
    whole = alt.hconcat(*columns).resolve_legend(strokeDash="independent").properties(title={"text": title})
    return Figure("curve", title, "", [], picture_panels=[whole], width=None)


def _monitored(run: Curves, name: str, against: Reference) -> alt.TopLevelMixin:
    """Return a chart of the monitored score, with reference values as horizontal lines, and a marker with the
    confidence interval at the best step.
    """
    steps, values = run.lines[name]
    lines = [{"label": f"{label} {value:.2f}", "value": value} for label, value in against.lines(name).items()]
    y = partial(Y, scale=_scale([*values, *against.lines(name).values()]))
    layers = [_curve(run, name).encode(y=y("value:Q"))]
    if lines:  # a legend of nothing has no size
        dash = alt.StrokeDash("label:N", sort=None, scale=DASHES, legend=KEY)
        layers.append(alt.Chart({"values": lines}).mark_rule(color=SOFT).encode(y=y("value:Q"), strokeDash=dash))
    heading = {"text": name}
    if against.best_step is not None and against.best_step in steps:
        value, bounds = values[list(steps).index(against.best_step)], against.intervals.get(name)
        low, high = bounds or (value, value)
        best = alt.Chart({"values": [{"step": against.best_step, "value": value, "low": low, "high": high}]})
        layers += [
            best.mark_rule(color=SERIES[1]).encode(x=X, y=y("low:Q"), y2="high:Q"),
            best.mark_point(color=SERIES[1], size=160, strokeWidth=2.5).encode(x=X, y=y("value:Q")),
        ]
        interval = f", 95 % {low:.2f} to {high:.2f}" if bounds else ""
        heading |= {"subtitle": f"best: step {against.best_step}, {value:.2f}{interval}", "subtitleColor": SERIES[1]}
    return alt.layer(*layers).properties(width=620, height=300, title=heading)


def _small(run: Curves, name: str, width: int) -> alt.Chart:
    title = {"text": "learning rate" if name == RATE else name, "fontWeight": "normal", "limit": 240}
    return _curve(run, name).properties(width=width, height=150, title=title)


def _curve(run: Curves, name: str) -> alt.Chart:
    steps, values = round_line(run.lines[name], MAX_POINTS)
    points = [{"step": step, "value": value} for step, value in zip(steps, values, strict=True)]
    chart = alt.Chart({"values": points}).encode(x=X, y=Y("value:Q", scale=_scale(values)))
    return chart.mark_line(color=SERIES[0], strokeWidth=2, point={"size": 24} if len(points) < 30 else False)


def _scale(values: Sequence[float]) -> alt.Scale:
    """Return a logarithmic scale for positive values that exceed 100, such as perplexities, which start in the
    thousands; otherwise a linear scale.
    """
    return alt.Scale(type="log") if min(values) > 0 and max(values) > 100 else alt.Scale(zero=False)
