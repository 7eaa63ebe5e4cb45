"""Figures of training curves over steps, tokens or seconds, with a band over runs of the same name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.reports.figure import COLOURS, Control, Figure, coloured, faded, quantity, tooltip

STEP = "optimizer step"
POINTS = 200  # of a curve on a page, at most; beyond, means of neighbours
HEIGHT = 300
LEFT_OUT = ("step", "time/")
Line = tuple[Sequence[float], Sequence[float]]  # steps, and values at them


class Curves(NamedTuple):
    """The curves of a run. ``others`` are measures of what was spent, by the step: tokens, seconds."""

    name: str  # what its colour stands for; runs of one name make a band
    run: str
    lines: Mapping[str, Line]
    others: Mapping[str, Line]


def script() -> str:
    """Return the script of a page with such a figure; its lines are those of ``data_of`` in ``report.data.curves``."""
    return Path(__file__).with_name("curves.js").read_text(encoding="utf-8")


def lines_of(rows: Sequence[Mapping[str, float]]) -> dict[str, Line]:
    """Return the lines of the rows of a ``metrics.csv``."""
    names = dict.fromkeys(name for row in rows for name in row if not name.startswith(LEFT_OUT))
    found = {name: [row for row in rows if name in row and np.isfinite(row[name])] for name in names}
    return {name: ([row["step"] for row in held], [row[name] for row in held]) for name, held in found.items() if held}


def completed(lines: Mapping[str, Line], step: float, scores: Mapping[str, float]) -> dict[str, Line]:
    """Each line with the score of that step besides, unless it has one there; a score without a line stays without."""
    found = dict(lines)
    for name in (name for name in scores if name in lines and np.isfinite(scores[name])):
        points = dict(zip(*lines[name], strict=True))
        points.setdefault(step, scores[name])
        at = sorted(points)
        found[name] = (at, [points[one] for one in at])
    return found


def data_of(runs: Sequence[Curves]) -> dict[str, Any]:
    """Return the data of the page's script: every line, thinned; steps that several lines share are written once."""
    most = max(30, min(POINTS, 6000 // max(1, len(runs))))
    written = list[dict[str, Any]]()
    for run in runs:
        steps = list[list[float]]()
        lines = dict[str, Any]()
        for name, line in run.lines.items():
            at, values = (_short(numbers) for numbers in _thinned(line, most))
            if at not in steps:
                steps.append(at)
            lines[name] = [steps.index(at), values]
        others = {name: [_short(numbers) for numbers in _thinned(line, most)] for name, line in run.others.items()}
        written.append({"name": run.name, "run": run.run, "steps": steps, "lines": lines, "others": others})
    return {"runs": written, "step": STEP}


def figure(runs: Sequence[Curves], metric: str, key: Sequence[str], name: str, title: str, caption: str) -> Figure:
    """Return a figure of all lines to choose from, ``metric`` first. ``key``: the names in the key of the page."""
    over, metrics = _over(runs), sorted({one for run in runs for one in run.lines} - {metric})
    controls = [
        Control("metric", "Show", [metric, *metrics]),
        Control("over", "over", over),
        Control("smoothing", "smoothing", most=0.99),
    ]
    panels = [_panel(_points(runs, metric, STEP), key, {"expr": "metric + ' over ' + over"}, hover=True)]
    signals = {"metric": metric, "over": STEP, "smoothing": 0}
    pictures = picture(runs, metric, key, name, caption).on_paper
    return Figure(name, title, caption, panels, signals=signals, controls=controls, on_paper=pictures, width=300)


def picture(runs: Sequence[Curves], metric: str, key: Sequence[str], name: str, caption: str) -> Figure:
    """Return a picture of a metric over steps, tokens and seconds, for papers and not for a page."""
    panels = [_panel(_points(runs, metric, one), key, f"{metric} over {one}", hover=False) for one in _over(runs)]
    return Figure(name, metric, caption, [], on_paper=panels, width=300)


def _over(runs: Sequence[Curves]) -> list[str]:
    return [STEP, *dict.fromkeys(one for run in runs for one in run.others)]


def _panel(points: list[dict[str, Any]], key: Sequence[str], title: Any, *, hover: bool) -> dict[str, Any]:
    x = quantity("x", title=None, axis={"tickCount": 6, "grid": False})
    y = quantity("y", title=None, scale={"zero": False})
    summaries = (("mean", "x", "x"), ("mean", "y", "y"), ("min", "y", "low"), ("max", "y", "high"))
    together = {
        "aggregate": [dict(zip(("op", "field", "as"), one, strict=True)) for one in summaries],
        "groupby": ["arm", "step"],
    }
    colour = coloured(key)
    said = tooltip(
        ("arm", "arm"),
        ("step", STEP, ",.0f"),
        ("y", "mean", ".4~r"),
        ("low", "lowest run", ".4~r"),
        ("high", "highest run", ".4~r"),
    )
    select = {"type": "point", "fields": ["arm", "step"], "nearest": True, "on": "pointerover", "clear": "pointerout"}
    shown = {"condition": {"param": "nearest", "empty": False, "value": 1}, "value": 0}
    layers: list[dict[str, Any]] = [
        {
            "transform": [together],
            "mark": {"type": "area"},
            "encoding": {
                "x": x,
                "y": {**y, "field": "low"},
                "y2": {"field": "high"},
                "color": colour,
                "opacity": faded(0.18, 0.02) if len(key) <= len(COLOURS) else faded(0.05, 0),
            },
        },
        {
            "mark": {"type": "line", "strokeWidth": 0.8},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "run"}, "opacity": faded(0.45, 0.04)},
        },
        {
            "transform": [together],
            "mark": {"type": "line", "strokeWidth": 2.2, "point": _few(points)},
            "encoding": {"x": x, "y": y, "color": colour, "opacity": faded()},
        },
    ]
    if hover:
        layers.append(
            {
                "transform": [together],
                "params": [{"name": "nearest", "select": select}],
                "mark": {"type": "point", "filled": True, "size": 90},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": said, "opacity": shown},
            }
        )
    return {
        "height": HEIGHT if hover else 200,
        "layer": layers,
        "data": {"values": points} | ({"name": "points"} if hover else {}),
        "title": {"text": title, "fontWeight": "normal", "limit": 600 if hover else 300},
    }


def _few(points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | bool:
    return {"size": 28} if len({one["step"] for one in points}) < 30 else False


def _points(runs: Sequence[Curves], metric: str, over: str) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for run in runs:
        steps, values = _thinned(run.lines.get(metric, ([], [])), POINTS)
        x = steps if over == STEP or over not in run.others else np.interp(steps, *run.others[over])
        for step, at, value in zip(steps, x, values, strict=True):
            found.append({"arm": run.name, "run": run.run, "step": float(step), "x": float(at), "y": float(value)})
    return found


def _thinned(line: Line, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points, each the mean of its neighbours."""
    steps, values = (np.asarray(numbers, np.float64) for numbers in line)
    if len(steps) <= most:
        return steps, values
    pieces = np.array_split(np.arange(len(steps)), most)
    return np.array([steps[piece].mean() for piece in pieces]), np.array([values[piece].mean() for piece in pieces])


def _short(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers]
