"""Supervised SimCSE, SBERT on NLI and S-RoBERTa on real pairs: STS-B test over steps, beside the untrained encoder.

    python -m benchmarks.real_pairs [--backbones tiny minilm] [--arms simcse sbert_nli sroberta] [--folder DIR]
                                    [--minutes 4] [--draw] [--picture FILE.png] [KEY=VALUE ...]

Every run is one `python train.py experiment=...` on the pairs of SHARED_DATA: NLI triplets, NLI pairs, and STS-B's
training pairs written as a DINO file (further KEY=VALUE go to train.py). A killed run continues, a finished one stays;
``--draw`` trains nothing. All pool by the mean; a tiny backbone's vocabulary, and so its first score, is the arm's own.
Wanted: each beats its untrained encoder. all-MiniLM-L6-v2 has learned from NLI already; that alone hardly improves it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.materials import packaged_minilm
from benchmarks.real_text import DEVELOPMENT, SCORE, lightning_time
from benchmarks.sides import Line, arguments, report
from benchmarks.texts import ROOT, shared_data
from evaluation.tasks.sts import Layout, read_pairs
from files.metrics import read_rows


class Arm(NamedTuple):
    title: str
    options: list[str]
    steps: dict[str, int]  # by backbone
    rates: dict[str, float]


# Steps are worth more than size to a classifier of relations
SMALLER = [f"tiny.{size}" for size in ("layers=1", "hidden_size=128", "heads=2", "intermediate_size=256", "dropout=0")]
ARMS = {
    "simcse": Arm(
        "supervised SimCSE, NLI triplets",
        ["experiment=simcse_sup", "model.mlp_only_train=true", "batch_size=64"],
        {"tiny": 460, "minilm": 120},
        {"tiny": 5e-4, "minilm": 2e-5},
    ),
    "sbert_nli": Arm(
        "SBERT, NLI pairs",
        ["experiment=sbert_nli", "batch_size=128", "model.classifier_lr=0.01", *SMALLER],
        {"tiny": 2500, "minilm": 120},
        {"tiny": 3e-4, "minilm": 2e-5},
    ),
    "sroberta": Arm(
        "S-RoBERTa, STS-B train as a DINO file",
        ["experiment=dino_x2", "batch_size=32"],
        {"tiny": 400, "minilm": 160},
        {"tiny": 3e-4, "minilm": 2e-5},
    ),
}
TITLES = {"tiny": "tiny, random weights", "minilm": "all-MiniLM-L6-v2"}
COLOURS = {"simcse": "tab:blue", "sbert_nli": "tab:green", "sroberta": "tab:orange"}
SCORED_TIMES = 10  # along a run


class Curve(NamedTuple):
    steps: list[int]
    scores: list[float]  # Spearman x 100, STS-B test; the first is the untrained encoder's
    chosen: float  # of the checkpoint that the development set picked
    best_step: int


def write_dino_file(tables: Path, path: Path) -> Path:
    """STS-B's training pairs in DINO's columns, ratings of 0..5 as labels of 0..1."""
    pairs = read_pairs(tables, "stsb-train", Layout({"STSBenchmark/train": 5749}, 0, 5, has_subsets=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for left, right, score in zip(pairs.left, pairs.right, (pairs.gold / 5).tolist(), strict=True):
            file.write(json.dumps({"text_a": left, "text_b": right, "label": round(score, 4)}) + "\n")
    return path


def train(arm: str, backbone: str, data: Path, folder: Path, minutes: float, more: Sequence[str]) -> None:
    """One run of train.py."""
    dino_file, nli = folder / "stsb_train.jsonl", data / "train"
    sources = {
        "simcse": str(nli / "triplets.jsonl.gz"),
        "sbert_nli": f"[{nli / 'nli_pairs.jsonl.gz'},{nli / 'nli_pairs_sick.jsonl.gz'}]",
        "sroberta": str(dino_file),
    }
    if arm == "sroberta":
        write_dino_file(data / "eval", dino_file)
    steps = ARMS[arm].steps[backbone]
    command = [
        sys.executable,
        "train.py",
        *ARMS[arm].options,
        f"backbone={backbone if backbone == 'tiny' else packaged_minilm()}",
        f"data.path={sources[arm]}",
        "model.pooling=mean",
        f"model.lr={ARMS[arm].rates[backbone]}",
        "precision=bf16",
        f"max_steps={steps}",
        "max_epochs=null",
        f"max_time='{lightning_time(minutes)}'",
        f"log_every_n_steps={max(1, steps // SCORED_TIMES)}",
        f"evaluation.data_root={data / 'eval'}",
        "evaluation.suite=[stsb-dev,stsb]",
        "evaluation.during=[stsb-dev,stsb]",
        f"evaluation.every_n_steps={max(1, steps // SCORED_TIMES)}",
        "evaluation.at_start=true",
        f"monitor={DEVELOPMENT}",
        f"output_dir={folder / f'{backbone}-{arm}'}",
        *more,
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def read_curve(run: Path) -> Curve:
    rows = [row for row in read_rows(run / "metrics.csv") if SCORE in row]
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    steps, scores = [int(row["step"]) for row in rows], [float(row[SCORE]) for row in rows]
    return Curve(steps, scores, results["scores"][SCORE], results["best_step"])


def draw(curves: Mapping[tuple[str, str], Curve], picture: Path) -> None:
    """A panel per backbone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    backbones = list(dict.fromkeys(backbone for backbone, _ in curves))
    figure = Figure(figsize=(5.5 * len(backbones), 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, backbone in zip(figure.subplots(1, len(backbones), squeeze=False)[0], backbones, strict=True):
        for (_, arm), curve in ((key, curve) for key, curve in curves.items() if key[0] == backbone):
            axes.plot(curve.steps, curve.scores, marker="o", markersize=3, color=COLOURS[arm], label=ARMS[arm].title)
            axes.plot(curve.best_step, curve.chosen, marker="*", markersize=11, color=COLOURS[arm])
            axes.axhline(curve.scores[0], linestyle="--", linewidth=0.8, color=COLOURS[arm])
        axes.set(xlabel="steps", ylabel="STS-B test, Spearman x 100", title=TITLES[backbone])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)


def lines_of(curves: Mapping[tuple[str, str], Curve]) -> list[Line]:
    """Ours is the score of the chosen checkpoint, theirs the same encoder untrained."""
    return [
        Line(
            "real pairs",
            f"{backbone}, {ARMS[arm].title}, step {curve.best_step} of {curve.steps[-1]}, "
            f"{curve.chosen - curve.scores[0]:+.1f} points",
            "Spearman x 100",
            curve.chosen,
            curve.scores[0],
            None,
            "> untrained",
        )
        for (backbone, arm), curve in curves.items()
    ]


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--backbones", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--minutes", type=float, default=4, help="of a run, at most")
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "real_pairs")
    parser.add_argument("--draw", action="store_true", help="only draw the runs of the folder")
    parser.add_argument("--picture", type=Path, help="default: real_pairs.png in the folder")
    options, more = parser.parse_known_args()
    options.more = more
    if unknown := [word for word in options.more if word.startswith("-") or "=" not in word]:
        parser.error(f"{' '.join(unknown)}: train.py takes KEY=VALUE")
    if options.quick:
        options.backbones = ["tiny"]
        options.more += ["max_steps=2", "evaluation.every_n_steps=2", "log_every_n_steps=2"]
    options.folder = options.folder.resolve()  # train.py starts in the root of the project
    return options


def runs_of(options: argparse.Namespace) -> Sequence[tuple[str, str]]:
    """Those to draw: of ``--draw`` the ones that are finished."""
    wanted = [(backbone, arm) for backbone in options.backbones for arm in options.arms]
    if not options.draw:
        return wanted
    return [run for run in wanted if (options.folder / "-".join(run) / "results.json").is_file()]


def main() -> None:
    options = parse()
    data = shared_data()
    if data is None and not options.draw:
        raise SystemExit("There are no real pairs; set SHARED_DATA to the folder that holds train/ and eval/.")
    runs = runs_of(options)
    if not runs:
        raise SystemExit(f"{options.folder} holds no finished run to draw; leave --draw out to train.")
    if data is not None and not options.draw:
        for backbone, arm in runs:
            train(arm, backbone, data, options.folder, options.minutes, options.more)
    curves = {(backbone, arm): read_curve(options.folder / f"{backbone}-{arm}") for backbone, arm in runs}
    picture = options.picture or options.folder / "real_pairs.png"
    draw(curves, picture)
    report(f"Real pairs; the picture is {picture}", lines_of(curves), options.output)


if __name__ == "__main__":
    main()
