"""``curve.html``: a run while it trains, as a page that reloads itself until the run is finished.

Its figures are compiled once; a rewrite puts new numbers into them, so that it costs some hundredths of a second.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.neighbours import Neighbours
from files.curves import Curves, data_of, figure, script
from files.figure import Drawn, Figure, draw
from files.metrics import numbers, read_rows
from files.page import Section, page
from files.progress import clock
from files.tables import Cell, Column, Table, columns
from files.whole import write_whole
from training.curve import MOST_LOSSES, RATE, Reference, loss_names, others_of, score_names, score_panel, small_panel

PAGE = "curve.html"
SECONDS, CLOCK = "seconds of training", "time/elapsed_s"
SLOWEST, QUICKEST = 60, 5  # seconds between two reloads
CSS = """
progress { width: min(60rem, 100%); height: .8rem; accent-color: var(--link); }
#state { margin: .5rem 0; color: var(--ink); } #state label { white-space: nowrap; }
#nearest td { min-width: 11rem; } #nearest .cosine { color: var(--soft); } #nearest td.new { background: var(--mark); }
#moment { width: min(30rem, 60vw); }
"""


class State(NamedTuple):
    """Where a run is."""

    words: str
    step: int
    steps: int | None  # None: not known
    elapsed: float  # seconds
    left: float | None
    finished: bool = False


class LivePage:
    """Writes the page of one run; ``against`` is what its monitored score is read against."""

    def __init__(self, folder: Path, monitor: str | None, less_is_better: bool) -> None:
        self.folder, self.monitor, self.less_is_better = folder, monitor, less_is_better
        self._shape = ""  # of the figures that were drawn: all but their numbers
        self._drawn: dict[str, Drawn] = {}

    def write(self, state: State, against: Reference, neighbours: Neighbours | None, every: float) -> None:
        """
        Raises:
            OSError, NotDrawn: it cannot be written, or drawn.
        """
        path = self.folder / "metrics.csv"
        texts = read_rows(path) if path.exists() else []
        rows = numbers(texts)
        timed = [(0.0, 0.0)] + [(row["step"], row[CLOCK]) for row in rows if CLOCK in row]
        spent = {SECONDS: ([step for step, _ in timed], [seconds for _, seconds in timed])}
        name = self.folder.resolve().name
        run = Curves(name, name, against.curves(rows), spent)
        scores = [name for name in score_names(texts, self.monitor) if name in run.lines]
        losses = [name for name in loss_names(texts) if name in run.lines][:MOST_LOSSES]
        data = data_of([run])
        # figures cost a second, and a point alone is no curve
        figures = (
            self._figures(run, scores, losses, against) if any(len(at) > 1 for at, _ in run.lines.values()) else []
        )
        sections = [
            Section("Curves", [*figures] or ["None yet: a curve wants two points."]),
            *([Section("Scores", [self._table(run, scores, against)])] if scores or against.final else []),
        ]
        live = {"written": datetime.now(UTC).timestamp(), "finished": state.finished, "neighbours": {}}
        live["every"] = min(SLOWEST, max(QUICKEST, every))
        if neighbours and neighbours.history:
            sections.insert(1, Section("Nearest neighbours", [_about(neighbours), _markup(NEAREST_TABLE)]))
            live["neighbours"] = {"sentences": neighbours.sentences, "steps": sorted(neighbours.history.items())}
        scripts = [*([script()] if figures else []), Path(__file__).with_name("live.js").read_text(encoding="utf-8")]
        html = page(
            name,
            [Section("Now", [_state(state)]), *sections],
            [],
            style=CSS,
            scripts=scripts,
            drawn=self._with_numbers(figures),
            data={"curves": data, "live": live},
        )
        write_whole(self.folder / PAGE, html, sync=False)

    def _with_numbers(self, figures: Sequence[Figure]) -> dict[str, Drawn]:
        """What is drawn once serves until another curve begins: only the values of its data differ."""
        shape = json.dumps([[one.name, one.signals, [_emptied(panel) for panel in one.panels]] for one in figures])
        if shape != self._shape:
            self._drawn, self._shape = draw(figures, pictures=False), shape
        found = dict[str, Drawn]()
        for one in figures:
            filled = deepcopy(self._drawn[one.name].vega)
            for vega, panel in zip(filled, one.panels, strict=True):
                new = dict(_data_in(panel))
                for data in vega["data"]:
                    if data["name"] in new:
                        data["values"] = new[data["name"]]
            found[one.name] = Drawn(filled, b"", b"")
        return found

    def _figures(self, run: Curves, scores: Sequence[str], losses: Sequence[str], against: Reference) -> list[Figure]:
        figures = self._scores(run, scores, against) if scores else []
        if names := [*losses, *([RATE] if RATE in run.lines else [])]:
            caption = "Each on its own scale; a point is the mean over the steps since the last."
            figures.append(
                Figure("losses", "Losses and learning rate", caption, [small_panel(run, one) for one in names])
            )
        first = [*losses, *scores, *run.lines][0]
        caption = "Any of what was logged, over steps or seconds; smoothing is a mean that forgets."
        return [*figures, figure([run], first, [run.name], "logged", "Everything that was logged", caption)]

    def _scores(self, run: Curves, names: Sequence[str], against: Reference) -> list[Figure]:
        """The monitored one large, the others small beside each other."""
        main = names[0]
        steps, values = run.lines.get(main, ([], []))
        best: float | None = against.best_step if against.best_step in steps else None
        if best is None and values and main == self.monitor:
            best = steps[values.index((min if self.less_is_better else max)(values))]
        panel, bounds = score_panel(run, main, against, best, 300)
        about = "; ".join(f"{label} {value:.2f}" for label, value in against.lines(main).items())
        caption = f"Over optimizer steps; the ring is the best step so far.{f' Dashed: {about}.' if about else ''}"
        if bounds:
            caption += f" 95 % interval of the best step: {bounds[0]:.2f} to {bounds[1]:.2f}."
        found = [Figure("score", main, caption, [panel])]
        if panels := [small_panel(run, name) for name in others_of(run, names)]:
            found.append(Figure("others", "Other scores", "All are in the table below.", panels))
        return found

    def _table(self, run: Curves, names: Sequence[str], against: Reference) -> Table:
        final = against.final
        heads = [Column("score"), *columns("before", "latest", "best", number=".2f"), Column("at step", ",.0f")]
        if final:
            heads += [Column("best weights", ".2f"), Column("95 %", right=True)]
        rows = list[list[Any]]()
        for name in [*names, *(one for one in final if one not in names)]:
            steps, values = run.lines.get(name, ([], []))
            row: list[Any] = [
                Cell(name, mark="code"),
                against.before.get(name),
                values[-1] if values else None,
                None,
                None,
            ]
            if values and (name == self.monitor or "perplexity" not in name):
                place = values.index((min if name == self.monitor and self.less_is_better else max)(values))
                row[-2:] = [values[place], steps[place]]
            if final:
                row.append(final.get(name))
                row.append(" to ".join(f"{bound:.2f}" for bound in against.intervals.get(name, ())))
            rows.append(row)
        return Table(heads, rows, name="scores")


def _state(state: State) -> Any:
    from markupsafe import Markup

    of = share = left = bar = reload = ""
    if state.steps:
        of = f" of {state.steps:,} ({state.step / state.steps:.0%})"
        share = Markup(' value="{:.4f}"').format(state.step / state.steps)
    if not state.finished:
        left = " so far" + (f", about {clock(state.left)} left" if state.left is not None else "")
        bar = Markup('<progress aria-label="Steps"{}></progress>').format(share)
        reload = Markup('<label><input type="checkbox" id="reloads" checked> reload this page by itself</label>')
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('{}<p id="state"><strong>{}</strong> {}\n{} {} <span id="age" role="status"></span></p>').format(
        bar,
        state.words,
        f"Step {state.step:,}{of}, {clock(state.elapsed)}{left}.",
        f"Written {written}.",
        reload,
    )


NEAREST_TABLE = """
<div class="controls"><label>Training step <input type="range" id="moment" min="0" step="1"></label>
<output id="moment-says" for="moment"></output></div>
<div class="scroll" tabindex="0" role="region" aria-label="Nearest neighbours"><table id="nearest">
<thead><tr><th scope="col">sentence</th><th scope="col">nearest</th>
<th scope="col">second</th><th scope="col">third</th></tr></thead><tbody></tbody></table></div>
"""


def _about(neighbours: Neighbours) -> str:
    return (
        f"{len(neighbours.sentences)} sentences drawn from the texts that are scored while training, and what lies "
        f"nearest to each of {len(neighbours.pool):,} of those texts, with the cosine. Marked: what was not among the "
        "nearest at the step before."
    )


def _markup(source: str) -> Any:
    from markupsafe import Markup

    return Markup(source)


def _data_in(panel: Mapping[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Every set of values of a panel, by its name."""
    parts = [panel, *panel.get("layer", [])]
    return [(part["data"]["name"], part["data"]["values"]) for part in parts if "data" in part]


def _emptied(panel: Mapping[str, Any]) -> dict[str, Any]:
    empty = dict(panel)
    if "data" in empty:
        empty["data"] = {"name": empty["data"]["name"]}
    return empty | ({"layer": [_emptied(one) for one in empty["layer"]]} if "layer" in empty else {})
