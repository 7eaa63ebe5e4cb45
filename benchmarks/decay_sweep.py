"""Lambda of self-debiasing, the sweep of DINO's table 2: what 0, 100 and 200 change in a data set of one generator.

    python -m benchmarks.decay_sweep [--quick] [--decays 0 100 200] [--inputs 500] [--minutes 8] [--generator FOLDER]
                                     [--folder DIR] [--train] [--backbone tiny] [--steps 200] [KEY=VALUE ...]

Without ``--generator`` a small model is made that follows the instructions half of the time (`instructed_model`). Each
lambda is one ``python -m synthesis recipe=dino_x2`` with the same seed (further KEY=VALUE go to it); the table is what
their manifests say. ``--train`` trains S-RoBERTa on each by train.py and scores it on STS-B. What is there already
stays: a killed sweep goes on. Real pairs and captions come from SHARED_DATA; no first sentence was trained on.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.instructed_model import make, other_captions
from benchmarks.materials import packaged_minilm
from benchmarks.sides import arguments
from benchmarks.texts import ROOT, shared_data
from files.metrics import read_rows

SCORE = "stsb/cosine/spearman"
COLUMNS = (
    "lambda", "y", "sampled", "accepted", "words", "distinct-1", "distinct-2", "copies", "folded copies", "overlap"
)  # fmt: skip


def synthesise(generator: Path, inputs: Path, output: Path, decay: float, more: Sequence[str]) -> dict[str, Any]:
    """One data set; its manifest."""
    words = ["recipe=dino_x2", f"generator={generator}", f"input={inputs}", f"output={output}", f"decay={decay:g}"]
    subprocess.run([sys.executable, "-m", "synthesis", *words, *more], cwd=ROOT, check=True)
    return json.loads((output / "manifest.json").read_text(encoding="utf-8"))


def rows_of(decay: float, manifest: dict[str, Any]) -> Iterator[Sequence[str]]:
    for label, one in manifest["measures"].items():
        counts = manifest["counts"]["labels"][label]
        yield (
            f"{decay:g}",
            label,
            f"{counts['samples']:,}",
            f"{counts['yield']:.1%}",
            f"{one['mean_words']:.1f}",
            f"{one['distinct_1']:.3f}",
            f"{one['distinct_2']:.3f}",
            f"{one['copies']:.1%}",
            f"{one['folded_copies']:.1%}",
            f"{one['overlap']:.3f}",
        )


def train(pairs: Path, run: Path, backbone: str, steps: int, data: Path) -> dict[str, Any]:
    """S-RoBERTa on one data set; STS-B test before, after, and of the checkpoint that its development set chose."""
    if not (run / "results.json").is_file():
        every = max(1, steps // 5)
        words = [
            "experiment=dino_x2",
            f"backbone={packaged_minilm() if backbone == 'minilm' else backbone}",
            f"data.path={pairs}",
            "model.pooling=mean",
            f"model.lr={3e-4 if backbone == 'tiny' else 2e-5}",
            f"max_steps={steps}",
            "max_epochs=null",
            f"log_every_n_steps={every}",
            f"evaluation.data_root={data / 'eval'}",
            "evaluation.suite=[stsb-dev,stsb]",
            "evaluation.during=[stsb-dev,stsb]",
            f"evaluation.every_n_steps={every}",
            "evaluation.at_start=true",
            "monitor=stsb-dev/cosine/spearman",
            f"output_dir={run}",
        ]
        subprocess.run([sys.executable, "train.py", *words], cwd=ROOT, check=True)
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    scores = [float(row[SCORE]) for row in read_rows(run / "metrics.csv") if SCORE in row]
    return {
        "untrained": scores[0],
        "last": scores[-1],
        "chosen": results["scores"][SCORE],
        "step": results["best_step"],
    }


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--decays", nargs="+", type=float, default=[0, 100, 200])
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=8, help="of the generator's training")
    parser.add_argument("--generator", type=Path, help="a folder with a causal language model")
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "decay_sweep")
    parser.add_argument("--train", action="store_true", help="also train S-RoBERTa on each data set")
    parser.add_argument("--backbone", default="tiny", help="tiny, minilm, or a folder")
    parser.add_argument("--steps", type=int, default=200, help="of S-RoBERTa")
    options, options.more = parser.parse_known_args()
    if unknown := [word for word in options.more if word.startswith("-") or "=" not in word]:
        parser.error(f"{' '.join(unknown)}: the synthesis takes KEY=VALUE")
    options.folder = options.folder.resolve()
    return options


def main() -> None:
    options = parse()
    data = shared_data()
    if data is None:
        raise SystemExit("There are no real pairs; set SHARED_DATA to the folder that holds train/ and eval/.")
    size = {"layers": 1, "width": 64, "most": 3} if options.quick else {}
    generator = options.generator or options.folder / "generator"
    options.folder.mkdir(parents=True, exist_ok=True)
    if not (generator / "config.json").is_file():
        print(make(generator, data, minutes=options.minutes, **size), flush=True)
    inputs = options.folder / "x1.txt"
    texts = other_captions(data, 4 if options.quick else options.inputs)
    inputs.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    rows, found = list[Sequence[str]](), []
    for decay in options.decays:
        manifest = synthesise(generator, inputs, options.folder / f"decay-{decay:g}", decay, options.more)
        rows += rows_of(decay, manifest)
        found.append({"decay": decay, "counts": manifest["counts"], "measures": manifest["measures"]})
    print(f"{len(texts)} inputs\n\n{as_table(COLUMNS, rows)}\n", flush=True)
    if options.train:
        for one in found:
            pairs = options.folder / f"decay-{one['decay']:g}"
            run = options.folder / f"{options.backbone}-decay-{one['decay']:g}"
            one["stsb"] = train(pairs, run, options.backbone, options.steps, data)
        columns = ("untrained", "last", "chosen")
        scores = [(f"{one['decay']:g}", *(f"{one['stsb'][key]:.2f}" for key in columns)) for one in found]
        print(f"STS-B test, Spearman x 100\n\n{as_table(('lambda', *columns), scores)}")
    if options.output is not None:
        with options.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": "Lambda of self-debiasing", "sweep": found}) + "\n")


if __name__ == "__main__":
    main()
