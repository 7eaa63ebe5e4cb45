"""Families of tasks: the tasks of one kind, such as STS or retrieval, whose scores can be averaged."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.contrasts import is_standard_score, members_of_averages, shared_scores
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.statistics.headline import PAIR_MEASURES, RETRIEVAL_METRICS, RankingMetric

# Kind -> metrics or measures of its scores, the preferred ones first. A task belongs to the first kind that matches.
KINDS = {
    "retrieval": RETRIEVAL_METRICS,
    "transfer": ("default/accuracy", "fast/accuracy", "sklearn/accuracy"),
    "paraphrases": ("cosine/ap",),
    "STS": PAIR_MEASURES,
    "reranking": ("cosine/map",),
    "clustering": ("kmeans/v-measure",),
    "triplets": ("cosine/accuracy",),
}
OTHER = "other"


class Family(NamedTuple):
    """Tasks of one kind, such as STS or retrieval. ``score`` is the average of their scores, or the score of the only
    task.
    """

    kind: str
    score: RankingMetric

    @property
    def heading(self) -> str:
        """Return a short heading: ``STS, 7 tasks``, or the name of the score if the family has only one task."""
        tasks = self.score.scores
        return self.score.name if len(tasks) == 1 else f"{self.kind}, {len(tasks)} tasks"

    @property
    def scores(self) -> list[RankingMetric]:
        """Return the score of each task, preceded by their average if the family contains several tasks."""
        single = [RankingMetric.mean_of([score]) for score in self.score.scores if score != self.score.name]
        return [self.score, *single]


def families_of(arms: Sequence[Arm], headline: RankingMetric) -> list[Family]:
    """Group the tasks on which all arms were scored into families. The family of the headline is first."""
    shared, members = shared_scores(arms), members_of_averages(arms)
    counted = {_task(name) for name in headline.scores}
    tasks = [name for name in shared if name not in members and is_standard_score(name) and _task(name) not in counted]
    kind = next((kind for kind, known in KINDS.items() if _matches(headline.scores[0], known)), OTHER)
    families = [Family(kind, headline)]
    for kind, names in _by_kind(tasks):
        average = next((name for name, parts in members.items() if name in shared and set(parts) == set(names)), None)
        mean = RankingMetric.mean_of(names)
        name = mean.name if len(names) == 1 else average or f"{kind}: {mean.name}"
        families.append(Family(kind, RankingMetric(name, names)))
    return families


def _by_kind(scores: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (kind, scores) for each kind of task, where ``scores`` are the preferred scores of the tasks of this
    kind.
    """
    counted = set[str]()
    for kind, known in KINDS.items():
        names = dict[str, str]()  # names of the tasks
        for measure in known:
            for name in scores:
                if _matches(name, [measure]) and _task(name) not in counted:
                    names.setdefault(_task(name), name)
        counted |= names.keys()
        if names:
            yield kind, list(names.values())


def _matches(score: str, known: Sequence[str]) -> bool:
    """Return whether ``known`` contains the metric of a score, such as ``ap``, or its protocol and metric, such as
    ``cosine/ap``.
    """
    name = ScoreName.parse(score)
    return name.metric in known or name.measure in known


def _task(score: str) -> str:
    """Return the task of a score name: ``cisi`` for ``cisi/cosine/ndcg@10``, but ``cisi/reranked`` for
    ``cisi/reranked/ndcg@10``.
    """
    name = ScoreName.parse(score)
    return f"{name.full_task}/reranked" if name.protocol == "reranked" else name.full_task
