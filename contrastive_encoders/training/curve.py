"""The learning curve ``curve.png``: the monitored score, the losses, and the learning rate over the steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.metrics import Row, read_rows
from contrastive_encoders.reports.curves import Curves, Line, add_scores, lines_of
from contrastive_encoders.reports.figure import draw

LOSSES = ("train/loss", "train/contrastive", "train/mlm")  # and other names below train/ that contain "loss"
PROTOCOLS = {"tfidf": "TF-IDF"}  # in labels
NO_CURVES = ("train/", "throughput/", "time/", "step")
MAX_OTHERS = 5


class Reference(NamedTuple):
    """Values from ``results.json`` that are shown in the learning curve for comparison."""

    best_step: int | None = None
    final: Mapping[str, float] = {}  # scores of the weights of that step, if available
    intervals: Mapping[str, Sequence[float]] = {}
    before: Mapping[str, float] = {}  # of the initial encoder
    baselines: Mapping[str, float] = {}

    def curves(self, rows: Sequence[Mapping[str, float]]) -> dict[str, Line]:
        """Return the curve of each logged score, and add each final score that was not logged as a point at the best
        step.
        """
        logged = lines_of(rows)
        return logged if self.best_step is None else add_scores(logged, float(self.best_step), self.final)

    def lines(self, name: str) -> dict[str, float]:
        """Return the values that are drawn as horizontal lines in the chart of a score, as a mapping of labels to
        values.
        """
        found = {"before": self.before[name]} if name in self.before else {}
        alike = {other: value for other, value in self.baselines.items() if is_alike(other, name)}
        for other, value in alike.items():
            protocol = ScoreName.parse(other).protocol
            found[PROTOCOLS.get(protocol, protocol)] = value
        return found


def draw_curve(
    metrics_csv: str | Path, picture: str | Path, *, monitor: str | None, against: Reference, title: str
) -> None:
    """Draw the learning curve from ``metrics.csv``, and write it as a PNG.

    Raises:
        RenderError: the figure could not be drawn.
        ValueError: a value is not a number, for example after an edit by hand.
    """
    from contrastive_encoders.training.curve_figure import curve_figure  # it imports Altair

    figure = curve_figure(read_rows(metrics_csv), monitor, against, title)
    atomic_write(Path(picture), draw([figure])[figure.name].png)


def loss_names(rows: Sequence[Row]) -> list[str]:
    """Return the names of the logged losses: ``train/loss`` first, then the losses of individual loss terms or data
    sources.
    """
    names = {name for row in rows for name in row if name in LOSSES or (name.startswith("train/") and "loss" in name)}
    return sorted(names, key=lambda name: (name != LOSSES[0], name))


def score_names(rows: Sequence[Row], monitor: str | None) -> list[str]:
    """Return the names of the logged scores, sorted: first the monitored score, then development and retrieval scores
    (nDCG@10 first), then all others. Pearson correlations come last within a group.
    """
    names = {name for row in rows for name in row if not name.startswith(NO_CURVES)}

    def rank(name: str) -> tuple[bool, bool, bool, bool, str]:
        score = ScoreName.parse(name)
        is_early = bool(score.split) or score.metric.partition("@")[0] in ("mrr", "recall", "ndcg")
        return name != monitor, not is_early, score.metric != "ndcg@10", score.metric == "pearson", name

    return sorted(names, key=rank)


def others_of(run: Curves, scores: Sequence[str]) -> list[str]:
    """Return the scores for the small charts: first the scores with values during training, then the scores with only
    initial and final values.
    """
    since = [name for name in scores[1:] if run.lines[name][0][-1] > 0]
    return sorted(since, key=lambda name: len(run.lines[name][0]) < 3)[:MAX_OTHERS]


def is_alike(baseline: str, name: str) -> bool:
    """Return whether two scores have the same task and metric but different protocols."""
    one, other = ScoreName.parse(baseline), ScoreName.parse(name)
    return bool(one.protocol and other.protocol) and one.with_protocol("") == other.with_protocol("")
