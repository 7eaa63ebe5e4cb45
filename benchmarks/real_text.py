"""DeCLUTR from random weights on real documents: STS-B test over minutes, for both losses and for each alone.

    python -m benchmarks.real_text --minutes 20 [--arms both mlm contrastive] [--folder DIR] [KEY=VALUE ...]
    python -m benchmarks.real_text --runs both=DIR mlm=DIR contrastive=DIR --picture FILE.png

The first form trains the arms one after the other by `python train.py experiment=declutr_tiny` on the long documents of
SHARED_DATA (further KEY=VALUE go to train.py); the second only draws runs that are there. Minutes are those of
metrics.csv, scoring included. Wanted of both losses: 5 points over the untrained network in 20 minutes on 2 cores.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.sides import Line, arguments, report
from benchmarks.texts import ROOT, shared_data
from files.metrics import read_rows

ARMS: dict[str, list[str]] = {
    "both": [],
    "mlm": ["model.contrastive_weight=0"],
    "contrastive": ["model.mlm_weight=0"],
}
SCORE, DEVELOPMENT = "stsb/cosine/spearman", "stsb-dev/cosine/spearman"
COLOURS = {"both": "tab:blue", "mlm": "tab:orange", "contrastive": "tab:green"}


class Curve(NamedTuple):
    minutes: list[float]
    scores: list[float]  # Spearman x 100, STS-B test
    chosen: float  # of the checkpoint that the development set picked; the last on the curve while a run goes on


def train_arm(arm: str, folder: Path, minutes: float, data: Path, more: Sequence[str]) -> None:
    """One run of train.py; a killed one continues, a finished one stays."""
    documents = sorted((data / "train" / "longdocs").glob("train-open-0*.jsonl.gz"))
    command = [
        sys.executable,
        "train.py",
        "experiment=declutr_tiny",
        f"data.path=[{','.join(map(str, documents))}]",
        f"evaluation.data_root={data / 'eval'}",
        "evaluation.suite=[stsb-dev,stsb]",
        "evaluation.during=[stsb-dev,stsb]",
        "evaluation.every_n_steps=100",
        "evaluation.at_start=true",
        f"monitor={DEVELOPMENT}",
        f"max_time='{lightning_time(minutes)}'",
        f"output_dir={folder / arm}",
        *ARMS[arm],
        *more,
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def lightning_time(minutes: float) -> str:
    """DD:HH:MM:SS."""
    whole, seconds = divmod(round(minutes * 60), 60)
    return f"{whole // 1440:02}:{whole // 60 % 24:02}:{whole % 60:02}:{seconds:02}"


def read_curve(run: Path) -> Curve:
    """Scores over the time that had passed; a score takes the time of its own row, or of the last one before."""
    minutes, scores, now = [], [], 0.0
    for row in read_rows(run / "metrics.csv"):
        now = float(row.get("time/elapsed_s", now))
        if SCORE in row:
            minutes.append(now / 60)
            scores.append(float(row[SCORE]))
    if not scores:
        raise SystemExit(f"{run / 'metrics.csv'} has no column {SCORE}: train with evaluation.during=[stsb-dev,stsb].")
    results = run / "results.json"
    chosen = json.loads(results.read_text(encoding="utf-8"))["scores"][SCORE] if results.is_file() else scores[-1]
    return Curve(minutes, scores, chosen)


def draw(curves: Mapping[str, Curve], picture: Path) -> None:
    import matplotlib.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = matplotlib.figure.Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for arm, curve in curves.items():
        axes.plot(curve.minutes, curve.scores, marker="o", markersize=3, color=COLOURS.get(arm), label=arm)
    untrained = next(iter(curves.values())).scores[0]
    axes.axhline(untrained, linestyle="--", color="dimgray", label="untrained")
    axes.axhline(untrained + 5, linestyle=":", color="dimgray", label="untrained + 5")
    axes.set(xlabel="minutes", ylabel="STS-B test, Spearman x 100", title="DeCLUTR from random weights")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, dpi=150)


def lines_of(curves: Mapping[str, Curve]) -> list[Line]:
    """Ours is the trained score, theirs the same network untrained."""
    return [
        Line(
            "real text",
            f"{arm}, {curve.minutes[-1]:.1f} minutes, {curve.chosen - curve.scores[0]:+.1f} points",
            "Spearman x 100",
            curve.chosen,
            curve.scores[0],
            None,
            ">= 5 points in 20 minutes" if arm == "both" else "",
        )
        for arm, curve in curves.items()
    ]


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "real_text")
    parser.add_argument("--runs", nargs="+", metavar="ARM=DIR", help="draw these instead of training")
    parser.add_argument("--picture", type=Path, help="default: real_text.png in the folder")
    options, options.more = parser.parse_known_args()
    if unknown := [word for word in options.more if word.startswith("-") or "=" not in word]:
        parser.error(f"{' '.join(unknown)}: train.py takes KEY=VALUE")
    if options.quick:
        options.more += ["max_steps=4", "batch_size=8", "evaluation.every_n_steps=2", "log_every_n_steps=2"]
    return options


def main() -> None:
    options = parse()
    if options.runs:
        runs = {arm: Path(folder) for arm, _, folder in (run.partition("=") for run in options.runs)}
    else:
        data = shared_data()
        if data is None:
            raise SystemExit("There is no real text; set SHARED_DATA to the folder that holds train/ and eval/.")
        options.folder = options.folder.resolve()  # train.py starts in the root of the project
        for arm in options.arms:
            train_arm(arm, options.folder, options.minutes, data, options.more)
        runs = {arm: options.folder / arm for arm in options.arms}
    curves = {arm: read_curve(run) for arm, run in runs.items()}
    picture = options.picture or options.folder / "real_text.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(curves, picture)
    report(f"DeCLUTR on real text; the picture is {picture}", lines_of(curves), options.output)


if __name__ == "__main__":
    main()
