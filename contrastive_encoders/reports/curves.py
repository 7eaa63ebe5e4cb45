"""Training curves: the metrics of a run at each step, thinned for an HTML page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEP = "optimizer step"
MAX_POINTS = 200  # of a curve on a page; above it, neighbors are averaged
UNPLOTTED = ("step", "time/")
Line = tuple[Sequence[float], Sequence[float]]  # steps, and values at them


class Curves(NamedTuple):
    """Training curves of a run. ``others`` are measures of cost (tokens, seconds) by step."""

    name: str  # determines the color; runs with the same name form a band
    run: str
    lines: Mapping[str, Line]
    others: Mapping[str, Line]


def script() -> str:
    """Return the JavaScript that draws training curves on a page.

    Its lines are those of ``data_of`` in ``report.data.curves``.
    """
    return Path(__file__).with_name("curves.js").read_text(encoding="utf-8")


def lines_of(rows: Sequence[Mapping[str, float]]) -> dict[str, Line]:
    """Return a mapping from each metric in the rows of a ``metrics.csv`` to its line: the steps and the values at
    them.
    """
    names = dict.fromkeys(name for row in rows for name in row if not name.startswith(UNPLOTTED))
    rows_of = {name: [row for row in rows if name in row and np.isfinite(row[name])] for name in names}
    return {
        name: ([row["step"] for row in points], [row[name] for row in points])
        for name, points in rows_of.items()
        if points
    }


def add_scores(lines: Mapping[str, Line], step: float, scores: Mapping[str, float]) -> dict[str, Line]:
    """Add the scores of a step to the lines of the same names, unless a line already contains a value for this step.

    A score without a line is ignored.
    """
    extended = dict(lines)
    for name in (name for name in scores if name in lines and np.isfinite(scores[name])):
        points = dict(zip(*lines[name], strict=True))
        points.setdefault(step, scores[name])
        steps = sorted(points)
        extended[name] = (steps, [points[one] for one in steps])
    return extended


def data_of(runs: Sequence[Curves]) -> dict[str, Any]:
    """Return the thinned lines of all runs, as the data of the page's script. Lines with the same steps share one list
    of steps.
    """
    number = max(30, min(MAX_POINTS, 6000 // max(1, len(runs))))
    curves = list[dict[str, Any]]()
    for run in runs:
        steps = list[list[float]]()
        lines = dict[str, Any]()
        for name, line in run.lines.items():
            line_steps, values = round_line(line, number)
            if line_steps not in steps:
                steps.append(line_steps)
            lines[name] = [steps.index(line_steps), values]
        others = {name: round_line(line, number) for name, line in run.others.items()}
        curves.append({"name": run.name, "run": run.run, "steps": steps, "lines": lines, "others": others})
    return {"runs": curves, "step": STEP}


def thin(line: Line, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Thin a line to at most ``number`` points, each of which is the mean of neighboring points."""
    steps, values = (np.asarray(numbers, np.float64) for numbers in line)
    if len(steps) <= number:
        return steps, values
    pieces = np.array_split(np.arange(len(steps)), number)
    return np.array([steps[piece].mean() for piece in pieces]), np.array([values[piece].mean() for piece in pieces])


def round_line(line: Line, number: int) -> tuple[list[float], list[float]]:
    """Thin a line to at most ``number`` points, rounded to five significant digits."""
    steps, values = ([float(f"{one:.5g}") for one in numbers] for numbers in thin(line, number))
    return steps, values
