"""``curve.png``: the monitored score, the losses and the learning rate over steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.metrics import Row, read_rows
from contrastive_encoders.reports.curves import Curves, Line, add_scores, lines_of
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.statistics.score_names import ScoreName

LOSSES = ("train/loss", "train/contrastive", "train/mlm")  # and whatever else calls itself a loss
PROTOCOLS = {"tfidf": "TF-IDF"}  # in labels
NO_CURVES = ("train/", "throughput/", "time/", "step")
MAX_OTHERS = 5


class Reference(NamedTuple):
    """What the curve of a score is read against: all of it is in ``results.json``."""

    best_step: int | None = None
    final: Mapping[str, float] = {}  # scores of the weights of that step, once there are some
    intervals: Mapping[str, Sequence[float]] = {}
    before: Mapping[str, float] = {}  # of the encoder that training began from
    baselines: Mapping[str, float] = {}

    def curves(self, rows: Sequence[Mapping[str, float]]) -> dict[str, Line]:
        """Return what was logged, and the final scores where it does not have them."""
        logged = lines_of(rows)
        return logged if self.best_step is None else add_scores(logged, float(self.best_step), self.final)

    def lines(self, name: str) -> dict[str, float]:
        """Return what stays the same over the steps, by its label."""
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
    from contrastive_encoders.training.curve_figure import curve_figure  # it imports Altair

    figure = curve_figure(read_rows(metrics_csv), monitor, against, title)
    atomic_write(Path(picture), draw([figure])[figure.name].png)


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
    return sorted(since, key=lambda name: len(run.lines[name][0]) < 3)[:MAX_OTHERS]


def is_alike(baseline: str, name: str) -> bool:
    """Return whether two scores are of the same task and metric, each by a protocol."""
    one, other = ScoreName.parse(baseline), ScoreName.parse(name)
    return bool(one.protocol and other.protocol) and one.with_protocol("") == other.with_protocol("")
