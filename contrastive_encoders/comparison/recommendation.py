"""Recommend an arm of a race if it is better than the initial encoder, and show what training changed.

The arm with the best score on the tasks for selection is tested on the headline, which was not used for the selection.
If the arm is not better than the initial encoder, no arm is recommended.
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.baselines import BASELINES, UNTRAINED
from contrastive_encoders.comparison.contrasts import PairwiseComparison, contrasts, values_of
from contrastive_encoders.comparison.tables import p_value
from contrastive_encoders.core import RetrievalData
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.io.atomic import atomic_directory, remove
from contrastive_encoders.reports.tables import Cell, Table, columns, shorten
from contrastive_encoders.statistics.headline import RankingMetric

ENCODER = "encoder"  # folder of the recommended encoder
FEW_QUERIES = 100  # a small number of questions
FEW_SELECTION_QUERIES = 50  # fewer are too few to choose an arm by
SAMPLE_QUERIES = 5  # queries for which a report shows the results before and after training


class Recommendation(NamedTuple):
    """The recommended arm of a race. ``arm`` is None if no arm is better than the initial encoder."""

    arm: Arm | None
    best: Arm  # best arm on the tasks for selection, even if it is not better
    untrained: Arm
    sentence: str


def recommend(
    arms: Sequence[Arm],
    headline: RankingMetric,
    comparisons: Sequence[PairwiseComparison],
    score: str,
    output: Path,
    labels: Collection[str] = (),
) -> Recommendation | None:
    """Select the trained arm with the highest mean of ``score``, and recommend it if its headline score is better than
    that of the untrained encoder.

    ``score`` is a score of the tasks for selection. Return None if no trained arm has this score or if the untrained
    encoder was not scored. The arm is selected before the headline is read. So this is a single comparison, and its
    p-value is not corrected.

    The kept encoder is that of the arm's first run, so this run must be better than the untrained encoder, too. The
    sentence names the arms among ``labels`` that could not be compared.
    """
    trained = [arm for arm in arms if arm.label not in (UNTRAINED, *BASELINES) and arm.has(score)]
    untrained = next((arm for arm in arms if arm.label == UNTRAINED), None)
    if not trained or untrained is None:
        return None
    best = max(trained, key=lambda arm: float(arm.values(score).mean()))
    places = {arm.label: place for place, arm in enumerate(arms)}
    pair = {places[best.label], places[UNTRAINED]}
    one = next(one for one in comparisons if one.score == headline.name and {one.first, one.second} == pair)
    one = one._replace(p_holm=one.p)
    sign = 1 if one.first == places[best.label] else -1
    before, after = (float(values_of(arm, headline).mean()) for arm in (untrained, best))
    facts = [_change(sign, one)]
    if one.p is not None:
        facts.append(f"p {p_value(one.p).text}" if one.p < 0.001 else f"p = {p_value(one.p).text}")
    queries, selection = _queries(best, headline.name), _queries(best, score)
    if queries:
        facts.append(f"{queries:,} queries")
    evidence = f"{headline.name} {before:.1f} -> {after:.1f} ({', '.join(facts)})"
    others = [f"{arm.label} {float(values_of(arm, headline).mean()):.1f}" for arm in arms if arm.label in BASELINES]
    baselines = f" {', '.join(others)}." if others else ""
    few = ", too few for a reliable choice: use more documents, or hold out more of them for the selection"
    note = few if selection < FEW_SELECTION_QUERIES else ""
    choice = f" The selection was based on {count_of(selection, 'query')}{note}." if selection else ""
    failed = [label for label in labels if label not in {arm.label for arm in trained}]
    missing = f" Not compared: {', '.join(failed)}." if failed else ""
    kept = f"Encoder: {output / ENCODER}"
    is_better = one.distinguishable and after > before
    outcome = "is worse" if one.distinguishable else "is not distinguishable from it"
    if len(best.runs) > 1:
        run = best.runs[0]
        baseline = next((other for other in untrained.runs if other.seed == run.seed), untrained.runs[0])
        first = best._replace(runs=[run])
        change, *_ = contrasts([first, untrained._replace(runs=[baseline])], headline)
        score_of_seed = f"seed {run.seed}: {float(values_of(first, headline)[0]):.1f} ({_change(1, change)})"
        kept += f", from {score_of_seed}"
        if is_better and change.difference <= 0:
            is_better, outcome = False, f"is better, but its encoder is not, from {score_of_seed}"
    if is_better:
        sentence = f"Better: {best.label}, {evidence}.{baselines}{choice} {kept}.{missing}"
        return Recommendation(best, best, untrained, sentence)
    advice = (
        f" {queries} queries are few: more documents may give a clear result."
        if 0 < queries < FEW_QUERIES and not one.distinguishable
        else ""
    )
    return Recommendation(
        None,
        best,
        untrained,
        f"Nothing is recommended: keep the encoder that you have. {best.label}, the best of {len(trained)} ways to "
        f"train by the selection queries, {outcome}: {evidence}.{baselines}{choice}{advice}{missing}",
    )


def _queries(arm: Arm, score: str) -> int:
    """Return the number of queries of a score, or 0 if its per-query scores are not stored."""
    items = arm.runs[0].items
    return len(items.values[score]) if items is not None and score in items.values else 0


def _change(sign: int, one: PairwiseComparison) -> str:
    """Format a difference and its interval; ``sign`` is -1 if the second arm is the trained one."""
    bounds = sorted(sign * bound for bound in one.over_items or ())
    change = f"{sign * one.difference:+.1f}"
    return f"{change}, 95 % interval {bounds[0]:z.1f} to {bounds[1]:z.1f}" if bounds else change


def keep_encoder(recommendation: Recommendation | None, output: Path) -> None:
    """Copy the encoder of the recommended arm's first run to ``output``/encoder.

    If no arm is recommended, an earlier copy is removed.
    """
    if recommendation is None or recommendation.arm is None:
        remove(output / ENCODER)
        return
    with atomic_directory(output / ENCODER) as part:
        shutil.copytree(recommendation.arm.runs[0].path / ENCODER, part, dirs_exist_ok=True)


def before_and_after(
    recommendation: Recommendation, task: RetrievalData, vectors: Callable[[Arm, list[str]], np.ndarray | None]
) -> Table | None:
    """Return a table of the top documents that the untrained encoder and the best arm retrieve for five queries.

    The queries are evenly spaced in the list of all queries, independent of the results.

    Args:
        recommendation: its best arm is shown.
        task: task that the queries are taken from.
        vectors: function that returns an arm's embeddings (N, D) of N texts, or None if the arm has no encoder.
    """
    step = max(1, len(task.queries) // SAMPLE_QUERIES)
    places = list(range(0, len(task.queries), step))[:SAMPLE_QUERIES]
    first_results = list[list[int]]()
    for arm in (recommendation.untrained, recommendation.best):
        rows = vectors(arm, [*task.documents, *(task.queries[place] for place in places)])
        if rows is None:
            return None
        unit = unit_rows(rows)
        first_results.append((unit[len(task.documents) :] @ unit[: len(task.documents)].T).argmax(1).tolist())
    cells = list[list[Any]]()
    for place, *results in zip(places, *first_results, strict=True):
        gains = task.relevant[place] if task.relevant is not None else {place: 1.0}
        answer = next((document for document, gain in gains.items() if gain > 0 and document >= 0), None)
        cells.append(
            [
                shorten(task.queries[place]),
                *(
                    Cell(
                        shorten(task.documents[document]),
                        mark="best" if gains.get(document, 0) > 0 else "",
                    )
                    for document in results
                ),
                "" if answer is None else shorten(task.documents[answer]),
            ]
        )
    names = [f"found first by {arm.label}" for arm in (recommendation.untrained, recommendation.best)]
    note = "Held-out queries at even steps, independent of the results. Relevant documents are bold."
    heads = columns("query", *names, "relevant document")
    return Table(heads, cells, "Five queries before and after training", note, "five-questions")


def values_tried(record: Mapping[str, Any]) -> Table:
    """Return a table with the score of each hyperparameter value that was tried for each arm.

    ``record`` is written by `hyperparameter_selection.choose`.
    """
    rows = [
        [arm, value, Cell(f"{score:.2f}", score, "best" if score == max(scores.values()) else "")]
        for arm, scores in record["values"].items()
        for value, score in scores.items()
    ]
    note = (
        f"One run with the first seed for each value. {record['score']} is measured on queries that are not reported."
    )
    heads = [*columns("arm", str(record["key"])), *columns(str(record["score"]), right=True)]
    return Table(heads, rows, f"Selection of {record['key']}", note, "chosen", folded=True)
