"""Recommend an arm of a race: select it, test whether it is better than the initial encoder, and show what changed.

The arm is the best one on the tasks for selection. The headline, which was not used for the selection, shows whether
it is better. If it is not better, no arm is recommended.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.baselines import BASELINES, UNTRAINED
from contrastive_encoders.comparison.contrasts import PairwiseComparison, values_of
from contrastive_encoders.comparison.tables import p_value
from contrastive_encoders.core import RetrievalTask
from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.io.atomic import atomic_directory, remove
from contrastive_encoders.reports.tables import Cell, Table, beginning, columns
from contrastive_encoders.statistics.headline import RankingMetric

ENCODER = "encoder"  # folder of the recommended encoder
FEW = 100  # a small number of questions
ASKED = 5  # queries for which a report shows the results before and after training


class Recommendation(NamedTuple):
    """A recommendation. ``arm`` is None if no arm is better than the initial encoder of all arms."""

    arm: Arm | None
    best: Arm  # best arm on the tasks for selection, even if it is not better
    untrained: Arm
    sentence: str


def recommend(
    arms: Sequence[Arm], headline: RankingMetric, found: Sequence[PairwiseComparison], score: str, output: Path
) -> Recommendation | None:
    """Test whether the arm with the best mean of ``score``, a score of the tasks for selection, is better.

    Return None if no trained arm has the score or if the untrained encoder was not scored. The arm is selected before
    the headline is read. So this is a single comparison, and its p-value is not corrected.
    """
    trained = [arm for arm in arms if arm.label not in (UNTRAINED, *BASELINES) and arm.has(score)]
    untrained = next((arm for arm in arms if arm.label == UNTRAINED), None)
    if not trained or untrained is None:
        return None
    best = max(trained, key=lambda arm: float(arm.values(score).mean()))
    places = {arm.label: place for place, arm in enumerate(arms)}
    pair = {places[best.label], places[UNTRAINED]}
    one = next(one for one in found if one.score == headline.name and {one.first, one.second} == pair)
    one = one._replace(p_holm=one.p)
    sign = 1 if one.first == places[best.label] else -1
    before, after = (float(values_of(arm, headline).mean()) for arm in (untrained, best))
    facts = [f"{before:.1f} -> {after:.1f}"]
    if one.over_items is not None:
        low, high = sorted(sign * bound for bound in one.over_items)
        facts.append(f"{after - before:+.1f}, 95 % interval {low:z.1f} to {high:z.1f}")
    if one.p is not None:
        facts.append(f"p {p_value(one.p).text}" if one.p < 0.001 else f"p = {p_value(one.p).text}")
    items = best.runs[0].items
    asked = len(items.values[headline.name]) if items is not None and headline.name in items.values else 0
    if asked:
        facts.append(f"{asked:,} questions")
    said = f"{headline.name} {facts[0]} ({', '.join(facts[1:])})" if facts[1:] else f"{headline.name} {facts[0]}"
    others = [f"{arm.label} {float(values_of(arm, headline).mean()):.1f}" for arm in arms if arm.label in BASELINES]
    beside = f" {', '.join(others)}." if others else ""
    if one.distinguishable and after > before:
        from_seed = f", the one of seed {best.runs[0].results['seeds'][0]}" if len(best.runs) > 1 else ""
        return Recommendation(
            best, best, untrained, f"Better: {best.label}, {said}.{beside} It lies in {output / ENCODER}{from_seed}."
        )
    outcome = "is worse" if one.distinguishable else "cannot be told apart from it"
    few = f" {asked} questions are few: more documents may tell." if 0 < asked < FEW and not one.distinguishable else ""
    return Recommendation(
        None,
        best,
        untrained,
        f"Nothing is recommended: keep the encoder that you have. Of {len(trained)} ways to train {best.label}, the "
        f"best on the questions for choosing, {outcome}: {said}.{beside}{few}",
    )


def keep_encoder(one: Recommendation | None, output: Path) -> None:
    """Copy the encoder of the recommended arm's first run to ``output``/encoder.

    If no arm is recommended, an earlier copy is removed.
    """
    if one is None or one.arm is None:
        remove(output / ENCODER)
        return
    with atomic_directory(output / ENCODER) as part:
        shutil.copytree(one.arm.runs[0].path / ENCODER, part, dirs_exist_ok=True)


def before_and_after(
    one: Recommendation, task: RetrievalTask, vectors: Callable[[Arm, list[str]], np.ndarray | None]
) -> Table | None:
    """Show what the untrained encoder and the best arm find first for five queries of the task.

    The queries are taken at even steps through all queries, independent of the results.

    Args:
        one: the recommendation, whose best arm is shown.
        task: task that the queries are taken from.
        vectors: function that returns an arm's embeddings (N, D) of N texts, or None if the arm has no encoder.
    """
    step = max(1, len(task.queries) // ASKED)
    places = list(range(0, len(task.queries), step))[:ASKED]
    found = list[list[int]]()
    for arm in (one.untrained, one.best):
        rows = vectors(arm, [*task.documents, *(task.queries[place] for place in places)])
        if rows is None:
            return None
        unit = unit_rows(rows)
        found.append((unit[len(task.documents) :] @ unit[: len(task.documents)].T).argmax(1).tolist())
    cells = list[list[Any]]()
    for place, *firsts in zip(places, *found, strict=True):
        gains = task.relevant[place] if task.relevant is not None else {place: 1.0}
        right = next((document for document, gain in gains.items() if gain > 0 and document >= 0), None)
        cells.append(
            [
                beginning(task.queries[place]),
                *(Cell(beginning(task.documents[one]), mark="best" if gains.get(one, 0) > 0 else "") for one in firsts),
                "" if right is None else beginning(task.documents[right]),
            ]
        )
    names = [f"found first by {arm.label}" for arm in (one.untrained, one.best)]
    note = "At even steps through the held-out questions, not chosen by what they find. What is right is bold."
    heads = columns("question", *names, "what it was written for")
    return Table(heads, cells, "Five questions, before and after", note, "five-questions")


def values_tried(record: Mapping[str, Any]) -> Table:
    """Show how the values of a key were selected, from the record that `hyperparameter_selection.choose` writes."""
    rows = [
        [arm, value, Cell(f"{score:.2f}", score, "best" if score == max(tried.values()) else "")]
        for arm, tried in record["values"].items()
        for value, score in tried.items()
    ]
    note = f"One run each, by the first seed. {record['score']} is of questions that are not reported."
    heads = [*columns("arm", str(record["key"])), *columns(str(record["score"]), right=True)]
    return Table(heads, rows, f"How {record['key']} was chosen", note, "chosen", folded=True)
