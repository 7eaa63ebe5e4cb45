"""``curve.png``: the monitored score, the losses and the learning rate over steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.io.atomic import write_whole
from contrastive_encoders.io.metrics import Row, numbers, read_rows
from contrastive_encoders.reports.curves import Curves, Line, completed, data_of, lines_of
from contrastive_encoders.reports.figure import Figure, draw
from contrastive_encoders.statistics.score_names import ScoreName

LOSSES = ("train/loss", "train/contrastive", "train/mlm")  # and whatever else calls itself a loss
RATE = "train/lr"
PROTOCOLS = {"tfidf": "TF-IDF"}  # in labels
NO_CURVES = ("train/", "throughput/", "time/", "step")
MOST_OTHERS = MOST_LOSSES = 5
# of an axis, as Vega says it; a learning rate as 2.5e-5
NUMBER = "format(datum.value, datum.value && abs(datum.value) < 0.001 ? '~e' : '.4~g')"


class Reference(NamedTuple):
    """What the curve of a score is read against: all of it is in ``results.json``."""

    best_step: int | None = None
    final: Mapping[str, float] = {}  # scores of the weights of that step, once there are some
    intervals: Mapping[str, Sequence[float]] = {}
    before: Mapping[str, float] = {}  # of the encoder that training began from
    baselines: Mapping[str, float] = {}

    def curves(self, rows: Sequence[Mapping[str, float]]) -> dict[str, Line]:
        """What was logged, and the final scores where it does not have them."""
        logged = lines_of(rows)
        return logged if self.best_step is None else completed(logged, float(self.best_step), self.final)

    def lines(self, name: str) -> dict[str, float]:
        """What stays the same over the steps, by its label."""
        found = {"before": self.before[name]} if name in self.before else {}
        alike = {other: value for other, value in self.baselines.items() if is_alike(other, name)}
        for other, value in alike.items():
            protocol = ScoreName.parse(other).protocol
            found[PROTOCOLS.get(protocol, protocol)] = value
        return found


def draw_curve(
    metrics_csv: str | Path, picture: str | Path, *, monitor: str | None, against: Reference, title: str
) -> None:
    """Draw ``metrics.csv`` into a PNG.

    Raises:
        NotDrawn: it could not be drawn.
        ValueError: a value is no number, as after an edit by hand.
    """
    figure = curve_figure(read_rows(metrics_csv), monitor, against, title)
    write_whole(Path(picture), draw([figure])[figure.name].png)


def curve_figure(rows: Sequence[Row], monitor: str | None, against: Reference, title: str) -> Figure:
    """Scores on the left, the monitored one alone and large; losses and rate on the right."""
    run = Curves("", "", against.curves(numbers(rows)), {})
    scores = [name for name in score_names(rows, monitor) if name in run.lines]
    left, right = list[dict[str, Any]](), list[dict[str, Any]]()
    if scores:
        main, bounds = score_panel(run, scores[0], against, against.best_step, 300)
        best = [one["value"] for one in main["layer"][-1]["data"]["values"]]
        subtitle = f"best: step {against.best_step}, {best[0]:.2f}" if best else ""
        subtitle += f", 95 % {bounds[0]:.2f} to {bounds[1]:.2f}" if best and bounds else ""
        under = {"subtitle": subtitle, "subtitleColor": "@c2"} if subtitle else {}
        left.append(main | {"width": 620, "title": {"text": scores[0]} | under})
        small = [small_panel(run, name) | {"width": 260} for name in others_of(run, scores)]
        left += [{"concat": small, "columns": 2}] * bool(small)
    losses = [name for name in loss_names(rows) if name in run.lines][:MOST_LOSSES]
    for name in [*losses, *([RATE] if RATE in run.lines else [])]:
        right.append(small_panel(run, name) | {"width": 320})
    if not left and not right:
        right.append({"data": {"values": []}, "mark": "point", "width": 320, "title": "nothing was logged"})
    whole = {"hconcat": [{"vconcat": column} for column in (left, right) if column], "title": {"text": title}}
    return Figure("curve", title, "", [], on_paper=[whole])


def score_panel(
    run: Curves, name: str, against: Reference, best: float | None, height: int, *, hover: bool = True
) -> tuple[dict[str, Any], Sequence[float] | None]:
    """A curve, what it is read against as lines, its best step with the interval; and that interval."""
    steps, values = run.lines.get(name, ([], []))
    lines, bounds = against.lines(name), against.intervals.get(name)
    marked = [{"step": at, "value": value} for at, value in zip(steps, values, strict=True) if at == best]
    marked = [one | dict(zip(("low", "high"), bounds or [one["value"]] * 2, strict=True)) for one in marked]
    x, y = _axes([*values, *lines.values()])
    rules = [
        {"name": f"{label} {value:.2f}", "value": value, "place": place}
        for place, (label, value) in enumerate(lines.items())
    ]
    panel = curve_panel(run, name, height)
    panel["encoding"] = {"x": x, "y": y}
    panel["layer"] += [
        {
            "data": {"name": "lines", "values": rules},
            "mark": {"type": "rule", "strokeDash": [6, 4], "color": "@soft"},
            "encoding": {"x": None, "y": y},
        },
        {
            "data": {"name": "lines", "values": rules},
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "color": "@soft"},
            "encoding": {
                "x": {"value": 4},
                "xOffset": {"field": "place", "type": "nominal", "scale": {"range": [0, 260]}},
                "y": y,
                "text": {"field": "name"},
            },
        },
        {
            "data": {"name": "best", "values": marked},
            "mark": {"type": "rule", "color": "@c2"},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"name": "best", "values": marked},
            "mark": {"type": "point", "color": "@c2", "size": 160, "strokeWidth": 2.5},
            "encoding": {"x": x, "y": y},
        },
    ]
    return panel, bounds


def curve_panel(run: Curves, name: str, height: int) -> dict[str, Any]:
    steps, values = run.lines.get(name, ([], []))
    x, y = _axes(values)
    short = data_of([run._replace(lines={name: (steps, values)}, others={})])["runs"][0]
    points = [
        {"step": at, "value": value} for at, value in zip(short["steps"][0], short["lines"][name][1], strict=True)
    ]
    dots = {"size": 24} if len(points) < 30 else False
    layers: list[dict[str, Any]] = [{"mark": {"type": "line", "color": "@c1", "strokeWidth": 2, "point": dots}}]
    return {"height": height, "data": {"values": points}, "encoding": {"x": x, "y": y}, "layer": layers}


def small_panel(run: Curves, name: str) -> dict[str, Any]:
    title = "learning rate" if name == RATE else name
    return curve_panel(run, name, 150) | {"title": {"text": title, "fontWeight": "normal", "limit": 240}}


def loss_names(rows: Sequence[Row]) -> list[str]:
    """``train/loss`` first, then its parts."""
    names = {name for row in rows for name in row if name in LOSSES or (name.startswith("train/") and "loss" in name)}
    return sorted(names, key=lambda name: (name != LOSSES[0], name))


def score_names(rows: Sequence[Row], monitor: str | None) -> list[str]:
    """The monitored score first, then development and retrieval scores, of these nDCG@10, then others; Pearson last."""
    names = {name for row in rows for name in row if not name.startswith(NO_CURVES)}

    def rank(name: str) -> tuple[bool, bool, bool, bool, str]:
        score = ScoreName.parse(name)
        is_early = bool(score.split) or score.metric.partition("@")[0] in ("mrr", "recall", "ndcg")
        return name != monitor, not is_early, score.metric != "ndcg@10", score.metric == "pearson", name

    return sorted(names, key=rank)


def others_of(run: Curves, scores: Sequence[str]) -> list[str]:
    """What is drawn small beside the first: scores while training, before those of the start and the end alone."""
    since = [name for name in scores[1:] if run.lines[name][0][-1] > 0]
    return sorted(since, key=lambda name: len(run.lines[name][0]) < 3)[:MOST_OTHERS]


def spans_decades(values: Sequence[float]) -> bool:
    """Return whether the values need a logarithmic axis, as perplexities do, which start in the thousands."""
    return bool(values) and min(values) > 0 and max(values) > 100


def _axes(values: Sequence[float]) -> tuple[dict[str, Any], dict[str, Any]]:
    number = {"type": "quantitative", "title": None}
    scale = {"type": "log"} if spans_decades(values) else {"zero": False}
    return {**number, "field": "step", "axis": {"grid": False, "tickCount": 5}}, {
        **number,
        "field": "value",
        "scale": scale,
        "axis": {"tickCount": 5, "labelExpr": NUMBER},
    }


def is_alike(baseline: str, name: str) -> bool:
    """Whether two scores are of the same task and metric, each by a protocol."""
    one, other = ScoreName.parse(baseline), ScoreName.parse(name)
    return bool(one.protocol and other.protocol) and one.with_protocol("") == other.with_protocol("")
