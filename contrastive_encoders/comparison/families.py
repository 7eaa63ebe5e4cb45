"""Families of tasks: scores of one kind, such as STS or retrieval, which may be averaged."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import OF_PAIRS, OF_QUERIES, OUR_MEAN, Headline, is_dev

# Kind -> endings of its scores, the preferred ones first. The first kind that a task belongs to counts.
KINDS = {
    "retrieval": OF_QUERIES,
    "transfer": ("/default/accuracy", "/fast/accuracy", "/sklearn/accuracy"),
    "paraphrases": ("/cosine/ap",),
    "STS": OF_PAIRS,
    "reranking": ("/cosine/map",),
    "clustering": ("/kmeans/v-measure",),
    "triplets": ("/cosine/accuracy",),
}
OTHER = "other"


class Family(NamedTuple):
    """Tasks of one kind. ``score`` is their average, or the score of the only one."""

    kind: str
    score: Headline

    @property
    def heading(self) -> str:
        """Return a short name: ``STS, 7 tasks``, or the score of the only task."""
        tasks = self.score.tasks
        return self.score.name if len(tasks) == 1 else f"{self.kind}, {len(tasks)} tasks"

    @property
    def scores(self) -> list[str]:
        """Return the average, if there is one, and the score of each task."""
        return list(dict.fromkeys([self.score.name, *self.score.tasks]))


def families_of(arms: Sequence[Arm], headline: Headline) -> list[Family]:
    """Return the families of the tasks that all arms have been scored on; that of the headline is the first."""
    members = {name: held for arm in arms for run in arm.runs for name, held in run.results.get("averages", {}).items()}
    shared = [name for name in arms[0].runs[0].results["scores"] if all(arm.has(name) for arm in arms)]
    counted = {_task(name) for name in headline.tasks}
    tasks = [name for name in shared if name not in members and not is_dev(name) and _task(name) not in counted]
    found = [Family(_kind(headline.tasks[0]), headline)]
    for kind, names in _by_kind(tasks):
        if len(names) == 1:
            found.append(Family(kind, Headline(names[0], names)))
            continue
        average = next((name for name, held in members.items() if name in shared and set(held) == set(names)), None)
        found.append(Family(kind, Headline(average or f"{kind}: {OUR_MEAN.format(n=len(names))}", names)))
    return found


def _by_kind(scores: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """One score for each task, by the kind of task."""
    counted = set[str]()
    for kind, endings in KINDS.items():
        names = dict[str, str]()  # of the tasks
        for ending in endings:
            for name in scores:
                if name.endswith(ending) and _task(name) not in counted:
                    names.setdefault(_task(name), name)
        counted |= names.keys()
        if names:
            yield kind, list(names.values())


def _task(name: str) -> str:
    """``cisi/reranked`` of ``cisi/reranked/ndcg@10``; of other protocols than reranking the task alone."""
    task, _, rest = name.partition("/")
    return f"{task}/reranked" if rest.startswith("reranked/") else task


def _kind(name: str) -> str:
    return next((kind for kind, endings in KINDS.items() if name.endswith(endings)), OTHER)
