"""E5: what experiment=improve makes of all-MiniLM-L6-v2, in nDCG@10, against the same encoder before it.

    SHARED_DATA=FOLDER python -m benchmarks.improve [--quick] [--seeds 3] [--sets cisi cranfield qa]

Documents: the texts of a collection alone, scored on its queries (FOLDER/eval/retrieval, as BEIR has them). Pairs:
3,000 of the shared questions and answers, scored on the validation part. TF-IDF is of the same run. Settings are the
defaults of the recipe. Each run is one command, in a folder of its own under --runs, where it goes on if it is there.
"""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.sides import Line, arguments, report
from benchmarks.texts import ROOT
from contrastive_encoders.io.results import read_results

SCORE = "ndcg@10"
TARGETS = {"cisi": ">= 44.0", "cranfield": ">= 37.4", "qa": ">= +2.5"}
PAIRS = 3_000


def pairs_in(folder: Path, data: Path) -> list[str]:
    """The words for questions and answers: a sample to train on, the validation part to be scored on."""
    with gzip.open(data / "train" / "qa_pairs.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    trained = random.Random(0).sample([row for row in rows if row["split"] == "train"], PAIRS)
    parts = {"train.jsonl": trained, "valid.jsonl": [row for row in rows if row["split"] == "valid"]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        if not (folder / name).is_file():
            kept = ({key: row[key] for key in ("question", "answer")} for row in part)
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return [f"data.path={folder / 'train.jsonl'}", f"evaluation.tasks=[{folder / 'valid.jsonl'}]"]


def documents_in(folder: Path) -> list[str]:
    return ["data=text", f"data.path={folder / 'corpus.jsonl'}", f"evaluation.tasks=[{folder}]"]


def trained(words: list[str], output: Path, quick: bool) -> dict[str, float]:
    """Scores and minutes of one command."""
    few = ["max_steps=2"] if quick else []
    command = [sys.executable, "train.py", "experiment=improve", *words, *few, "quiet=true", f"output_dir={output}"]
    subprocess.run(command, cwd=ROOT, check=True)
    results = read_results(output / "results.json")

    def score(scores: dict[str, float], kind: str) -> float:
        return next(value for name, value in scores.items() if name.endswith(f"/{kind}/{SCORE}"))

    return {
        "before": score(results["scores_before"], "cosine"),
        "after": score(results["scores"], "cosine"),
        "tfidf": score(results["baselines"], "tfidf"),
        "minutes": results["spent"]["wall_seconds"] / 60,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--runs", type=Path, default=ROOT / "outputs" / "benchmarks" / "improve")
    asked = parser.parse_args()
    if not (data := os.environ.get("SHARED_DATA")):
        raise SystemExit("SHARED_DATA is not set: wanted the folder with eval/retrieval and train/qa_pairs.jsonl.gz.")
    runs, lines = asked.runs / ("quick" if asked.quick else "whole"), list[Line]()
    for name in asked.sets:
        of_set = Path(data) / "eval" / "retrieval" / name
        words = pairs_in(runs / "qa", Path(data)) if name == "qa" else documents_in(of_set)
        for seed in range(1, 2 if asked.quick else asked.seeds + 1):
            found = trained([*words, f"seed={seed}"], runs / f"{name}-{seed}", asked.quick)
            case = f"{name}, seed {seed}: TF-IDF {found['tfidf']:.1f}, {found['minutes']:.1f} minutes"
            lines.append(Line("E5", case, SCORE, found["after"], found["before"], None, TARGETS[name]))
    report("experiment=improve, after and before", lines, asked.output)


if __name__ == "__main__":
    main()
