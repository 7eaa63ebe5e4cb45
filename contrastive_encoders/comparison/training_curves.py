"""Draw the metrics logged during training, such as scores and losses, over steps, tokens, and seconds."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import altair as alt
import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.collect import CLOCK, FinishedRun, stage_costs
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.reports.curves import MAX_POINTS, STEP, Curves, add_scores, lines_of, thin
from contrastive_encoders.reports.encodings import FREE_SCALE, INTEGER_TICKS, color, legend_of, opacity, tooltip
from contrastive_encoders.reports.figure import SERIES, Control, Figure
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric

LOSS = "train/loss"
NO_SCORES = ("train/", "throughput/")


def curves_of(arms: Sequence[Arm]) -> list[Curves]:
    """Return the curves of every run that logged at least one metric."""
    curves = list[Curves]()
    for arm in arms:
        finals = [_final_scores(run) for run in arm.runs]
        # A point without values of all seeds would be read as the mean over seeds
        if len({tuple(step for step, _ in one) for one in finals}) > 1:
            finals = [[] for _ in arm.runs]
        curves += [_curves(arm.label, run, one) for run, one in zip(arm.runs, finals, strict=True)]
    return [one for one in curves if one.lines]


def _final_scores(run: FinishedRun) -> list[tuple[float, Mapping[str, float]]]:
    """Return, for each training stage, the step of its best checkpoint and the final scores."""
    start, finals = 0, list[tuple[float, Mapping[str, float]]]()
    for name, spent in stage_costs(run.results):
        results = run.results["stages"][name] if name else run.results
        finals.append((start + results["best_step"], results["scores"]))
        start += spent["steps"]
    return finals


def _curves(name: str, run: FinishedRun, finals: Sequence[tuple[float, Mapping[str, float]]]) -> Curves:
    spent = [one for _, one in stage_costs(run.results)]
    timed = [(row["step"], row[CLOCK]) for row in run.rows if CLOCK in row]
    steps, seconds = zip(*[(0.0, 0.0), *timed], strict=True)
    ends = [0.0, *accumulate(float(max(1, one["steps"])) for one in spent)]
    tokens = (ends, [0.0, *accumulate(float(one["real_tokens"]) for one in spent)])
    others = {"real tokens": tokens, "seconds of training": (steps, seconds)}
    lines = lines_of(run.rows)
    for step, scores in finals:
        lines = add_scores(lines, step, scores)
    return Curves(name, f"seed {run.seed}", lines, others)


def training(arms: Sequence[Arm], headline: RankingMetric) -> Figure | None:
    """Draw a figure that shows one logged metric at a time, at first the score that ranks the arms or, if it was not
    logged, the monitored score. Return None if nothing was logged.
    """
    runs, key = curves_of(arms), [arm.label for arm in arms]
    logged = {name for run in runs for name in run.lines}
    if not logged:
        return None
    monitored = [str(run.results["recipe"].get("monitor")) for arm in arms for run in arm.runs]
    scores = [name for name in logged if not name.startswith(NO_SCORES)]
    metric = ScoreName.parse(headline.scores[0]).metric
    order = sorted(
        scores,
        key=lambda name: (
            name not in (headline.name, *headline.scores),
            -monitored.count(name),
            ScoreName.parse(name).metric != metric,
            name,
        ),
    )
    first = [*order, *sorted(logged, key=lambda name: name != LOSS)][0]
    measures = [STEP, *dict.fromkeys(one for run in runs for one in run.others)]
    has_stages = any("stages" in run.results for arm in arms for run in arm.runs)
    caption = (
        "A broad line is the mean over an arm's seeds, its band the range from the lowest to the highest seed, and a "
        "thin line a run. Tokens are spread evenly over the steps"
        f"{' of a stage; stages are concatenated' if has_stages else ''}. Losses of different objectives are not "
        "comparable."
    )
    return Figure(
        "training-score",
        "Curves",
        caption,
        [_panel(_points(runs, first, STEP), key, {"expr": "metric + ' over ' + over"}, hover=True)],
        _progress(runs, first),
        signals={"metric": first, "over": STEP, "smoothing": 0},
        controls=[
            Control("metric", "Show", [first, *sorted(logged - {first})]),
            Control("over", "over", measures),
            Control("smoothing", "smoothing", most=0.99),
        ],
        picture_panels=[_panel(_points(runs, first, one), key, f"{first} over {one}", hover=False) for one in measures],
        width=300,
    )


def _points(runs: Sequence[Curves], metric: str, over: str) -> list[dict[str, Any]]:
    points = list[dict[str, Any]]()
    for run in runs:
        steps, values = thin(run.lines.get(metric, ([], [])), MAX_POINTS)
        x = np.interp(steps, *run.others[over]) if over in run.others else steps
        for step, at, value in zip(steps, x, values, strict=True):
            points.append({"arm": run.name, "run": run.run, "step": float(step), "x": float(at), "y": float(value)})
    return points


def _panel(points: list[dict[str, Any]], key: Sequence[str], title: Any, *, hover: bool) -> alt.TopLevelMixin:
    show_points = len({point["step"] for point in points}) < 30
    steps: dict[str, set[float]] = {}
    for point in points:
        steps.setdefault(point["arm"], set()).add(point["step"])
    drawn = [name for name, own in steps.items() if show_points or len(own) > 1]  # a line needs two points
    runs = alt.Chart().encode(
        x=alt.X("x:Q", title=None, axis=alt.Axis(tickCount=6, tickMinStep=INTEGER_TICKS, grid=False)),
        y=alt.Y("y:Q", title=None, scale=FREE_SCALE),
        color=color(key, legend=legend_of(key, drawn)),
    )
    means = runs.transform_aggregate(x="mean(x)", y="mean(y)", low="min(y)", high="max(y)", groupby=["arm", "step"])
    layers = [
        means.mark_area().encode(
            y=alt.Y("low:Q", title=None, scale=FREE_SCALE),
            y2="high:Q",
            opacity=opacity(0.18, 0.02) if len(key) <= len(SERIES) else opacity(0.05, 0),
        ),
        runs.mark_line(strokeWidth=0.8).encode(detail="run:N", opacity=opacity(0.45, 0.04)),
        means.mark_line(strokeWidth=2.2, point={"size": 28} if show_points else False).encode(opacity=opacity()),
    ]
    if hover:
        nearest = alt.selection_point(
            "nearest", fields=["arm", "step"], nearest=True, on="pointerover", clear="pointerout"
        )
        fields = tooltip(
            ("arm", "arm"),
            ("step", STEP, ",.0f"),
            ("y", "mean", ".4~r"),
            ("low", "lowest run", ".4~r"),
            ("high", "highest run", ".4~r"),
        )
        hidden = alt.condition(nearest, alt.value(1), alt.value(0), empty=False)
        points_of_means = means.mark_point(filled=True, size=90).encode(tooltip=fields, opacity=hidden)
        layers.append(points_of_means.add_params(nearest))
    return alt.layer(*layers, data={"values": points} | ({"name": "points"} if hover else {})).properties(
        height=300 if hover else 200,
        title={"text": title, "fontWeight": "normal", "limit": 600 if hover else 300},
    )


def _progress(runs: Sequence[Curves], name: str) -> Table:
    """Return a table with the first, highest, and last value of a metric in each run."""
    rows = []
    for run in runs:
        steps, values = run.lines.get(name, ([], []))
        if len(steps):
            best = max(range(len(values)), key=values.__getitem__)
            rows.append([run.name, run.run, values[0], values[best], steps[best], values[-1], steps[-1]])
    heads = [
        *columns("arm", "run"),
        Column("first", ".4g"),
        Column("highest", ".4g"),
        Column("at step", ",.0f"),
        Column("last", ".4g"),
        Column("steps", ",.0f"),
    ]
    return Table(heads, rows, f"{name} of each run", name="progress")
