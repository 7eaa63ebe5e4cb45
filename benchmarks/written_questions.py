"""Whether written questions judge encoders as people's queries do: Kendall's tau between two rankings of encoders.

    python -m benchmarks.written_questions --race DIR --people FOLDER [--quick]

DIR is the output of ``contrastive-encoders adapt``, FOLDER a BEIR folder with people's queries about the same
documents. Ranked are every run of DIR/runs (the untrained encoder is one) and DIR/choosing, BM25 and TF-IDF. Each is
scored on the questions of DIR/made/questions that were not trained on and on people's queries. Tau's 95 % interval
resamples the queries of both sides. People's queries choose nothing. Scores are kept in --kept, and continued there.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks import materials
from benchmarks.sides import Line, arguments, on_the_cpu, report
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.evaluation.custom_tasks.resolve import own_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks.retrieval import Retrieval
from contrastive_encoders.io.atomic import write_whole

MADE = Path("made") / "questions"  # in a race's folder
METRIC = "ndcg@10"
RESAMPLES = 1000
WORDS = 8  # of a query: below and from here on they are ranked apart, too


def tasks_of(race: Path, people: Path) -> dict[str, Retrieval]:
    """The written questions that nothing was trained on, and people's queries."""
    words = {"held_out": race / MADE / "held_out", "choice": race / MADE / "choice", "people": people}
    found = dict[str, Retrieval]()
    for name, folder in words.items():
        [own] = own_tasks({name: {"kind": "retrieval", "path": str(folder)}})
        [task] = own.read(EvaluateConfig())
        assert isinstance(task, Retrieval)
        found[name] = task
    return found


def encoders_in(race: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted([*(race / "runs").glob("*-seed*"), *(race / "choosing").glob("*")]):
        if (folder / "encoder").is_dir():
            yield folder.name, folder / "encoder"


def values_of(tasks: dict[str, Retrieval], name: str, encoder: Path | None) -> dict[str, list[float]]:
    """Return for each task the measure of every query. A text that stands in several tasks is encoded once."""
    if encoder is None:
        kind = name.lower().replace("-", "")
        found = {task: (one.bm25() if kind == "bm25" else one.tfidf()) for task, one in tasks.items()}
        return {task: scores[f"{task}/{kind}/{METRIC}"].values_N.tolist() for task, scores in found.items()}  # type: ignore[union-attr]
    scores = Suite(tasks.values()).run(load_encoder(str(encoder), device="cpu"), intervals=True)
    assert scores.items is not None
    return {task: scores.items.values[f"{task}/cosine/{METRIC}"].tolist() for task in tasks}


def scored(tasks: dict[str, Retrieval], race: Path, kept: Path, most: int | None) -> dict[str, dict[str, np.ndarray]]:
    """Return for each encoder and task the (Q,) measures of its queries."""
    found = dict[str, dict[str, np.ndarray]]()
    some = [*encoders_in(race)][:most]
    kept.mkdir(parents=True, exist_ok=True)
    for name, encoder in [("BM25", None), ("TF-IDF", None), *some]:
        path = kept / f"{name}.json"
        if not path.is_file():
            write_whole(path, json.dumps(values_of(tasks, name, encoder)))
        values = {task: np.array(each) for task, each in json.loads(path.read_text()).items()}
        # A run that chose is that of the first seed again, where its value was chosen: one encoder counts once
        if not any(all(np.array_equal(values[task], other[task]) for task in values) for other in found.values()):
            found[name] = values
    return found


def tau(written_AQ: np.ndarray, people_AQ: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Kendall's tau of A encoders' means by two sets of queries, and its 95 % interval."""
    value = kendalltau(written_AQ.mean(1), people_AQ.mean(1)).statistic
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        sides = [side[:, rng.integers(side.shape[1], size=side.shape[1])].mean(1) for side in (written_AQ, people_AQ)]
        drawn.append(kendalltau(*sides).statistic)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(value), float(low), float(high)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--race", type=Path, required=True)
    parser.add_argument("--people", type=Path, required=True)
    parser.add_argument("--kept", type=Path)
    asked = parser.parse_args()
    on_the_cpu()
    materials.hush()
    tasks = tasks_of(asked.race, asked.people)
    found = scored(tasks, asked.race, asked.kept or asked.race / "judged", 2 if asked.quick else None)
    names = sorted(found, key=lambda name: -found[name]["people"].mean())
    lines = [
        Line("E6", name, METRIC, found[name]["people"].mean(), _written(found[name]).mean(), None, "") for name in names
    ]
    written = np.array([_written(found[name]) for name in names])
    people = np.array([found[name]["people"] for name in names])
    lengths = np.array(
        [len(text.split()) for name in ("held_out", "choice") for text in tasks[name].texts_to_match.queries]
    )
    dense = np.array([name not in ("BM25", "TF-IDF") for name in names])
    for case, side, rows in (
        ("all written questions", written, slice(None)),
        ("encoders alone", written, dense),
        (f"written questions of fewer than {WORDS} words", written[:, lengths < WORDS], slice(None)),
        (f"of {WORDS} words or more", written[:, lengths >= WORDS], slice(None)),
    ):
        if side.shape[1]:
            value, low, high = tau(side[rows], people[rows])
            said = f"{case}: {side[rows].shape[0]} encoders, {side.shape[1]} questions, {low:.2f} to {high:.2f}"
            lines.append(Line("E6", said, "tau", value, None, None, ""))
    report("People's queries, and written questions (second column)", lines, asked.output)


def _written(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([values["held_out"], values["choice"]])


if __name__ == "__main__":
    main()
