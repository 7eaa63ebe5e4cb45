"""Metrics logged during training: scores and losses over steps, tokens and seconds."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.collect import CLOCK, Run, in_turn
from contrastive_encoders.reports.curves import Curves, completed, figure, lines_of, picture
from contrastive_encoders.reports.figure import Figure
from contrastive_encoders.reports.tables import Column, Table, columns

LOSS = "train/loss"
NO_SCORES = ("train/", "throughput/")


def curves_of(arms: Sequence[Arm]) -> list[Curves]:
    """Return the curves of every run that logged something."""
    found = list[Curves]()
    for arm in arms:
        finals = [_finals(run) for run in arm.runs]
        # at different steps each would stand there as the mean over seeds
        together = len({tuple(step for step, _ in one) for one in finals}) == 1
        found += [_curves(arm.label, run, one if together else []) for run, one in zip(arm.runs, finals, strict=True)]
    return [one for one in found if one.lines]


def _finals(run: Run) -> list[tuple[float, Mapping[str, float]]]:
    """Return the final scores of each stage, and the step of those weights."""
    begins, found = 0, list[tuple[float, Mapping[str, float]]]()
    for name, spent in in_turn(run.results):
        of = run.results["stages"][name] if name else run.results
        found.append((begins + of["best_step"], of["scores"]))
        begins += spent["steps"]
    return found


def _curves(name: str, run: Run, finals: Sequence[tuple[float, Mapping[str, float]]]) -> Curves:
    spent = [one for _, one in in_turn(run.results)]
    timed = [(row["step"], row[CLOCK]) for row in run.rows if CLOCK in row]
    steps, seconds = zip(*[(0.0, 0.0), *timed], strict=True)
    ends = [0.0, *accumulate(float(max(1, one["steps"])) for one in spent)]
    tokens = (ends, [0.0, *accumulate(float(one["real_tokens"]) for one in spent)])
    others = {"real tokens": tokens, "seconds of training": (steps, seconds)}
    lines = lines_of(run.rows)
    for step, scores in finals:
        lines = completed(lines, step, scores)
    return Curves(name, f"seed {run.seed}", lines, others)


def training(arms: Sequence[Arm]) -> list[Figure]:
    """Return the figure of all that was logged, the monitored score first, and a picture of the loss."""
    runs, key = curves_of(arms), [arm.label for arm in arms]
    logged = {name for run in runs for name in run.lines}
    monitored = [str(run.results["recipe"].get("monitor")) for arm in arms for run in arm.runs]
    scores = [name for name in logged if not name.startswith(NO_SCORES)]
    order = sorted(scores, key=lambda name: (-monitored.count(name), not name.endswith("cosine/spearman"), name))
    if not logged:
        return []
    first = [*order, *sorted(logged, key=lambda name: name != LOSS)][0]
    staged = any("stages" in run.results for arm in arms for run in arm.runs)
    caption = (
        "A broad line is the mean over an arm's seeds, its band the lowest and the highest, a thin line a run. Tokens "
        f"are spread evenly over the steps{' of a stage; stages stand one after another' if staged else ''}. Losses of "
        "different objectives are not comparable."
    )
    shown = figure(runs, first, key, "training-score", "Curves", caption)._replace(table=_progress(runs, first))
    lost = picture(
        runs, LOSS, key, "training-loss", "Training loss; losses of different objectives are not comparable."
    )
    return [shown, lost] if LOSS in logged and first != LOSS else [shown]


def _progress(runs: Sequence[Curves], name: str) -> Table:
    """The curve in a few numbers a run."""
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
