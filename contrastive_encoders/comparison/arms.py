"""Select the runs to compare, and group them into arms; an arm consists of the runs whose settings differ only in the
seed.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.comparison.collect import FinishedRun, SkippedRun, labels_of
from contrastive_encoders.core.key_effects import effect_of
from contrastive_encoders.core.nested_keys import flatten

MAX_LABEL = 40  # maximum characters of a label with settings; a longer label is replaced by the name of the directory
MAX_SETTINGS = 3  # in addition to the name of an arm: runs of another release or kind have other keys
NOT_IN_A_LABEL = {"output"}  # path of the result file of an evaluation
# Short names of settings in the labels of every table and figure
SHORT = {"data.anchors_per_document": "A", "data.positives_per_anchor": "P", "model.temperature": "tau"}


class Arm(NamedTuple):
    """A group of runs that differ only in their seed.

    ``settings`` maps the dotted keys of the recipe to their values: "model.temperature" -> 0.05.
    """

    label: str
    runs: list[FinishedRun]  # sorted by seed
    settings: dict[str, Any]

    def values(self, score: str) -> np.ndarray:
        """Return the values of a score as an array, one for each run that reports the score."""
        return np.array([run.results["scores"][score] for run in self.runs if score in run.results["scores"]])

    def has(self, score: str) -> bool:
        return all(score in run.results["scores"] for run in self.runs)


def select_runs(runs: Sequence[FinishedRun], headline: str | None) -> tuple[list[FinishedRun], list[SkippedRun]]:
    """Return the runs to compare, in their given order, and the skipped runs with the reason for skipping each.

    A copy of a run is skipped, since it would count as another seed. If no run has the headline, all runs are kept, and
    `contrasts.choose_ranking_metric` raises the error.
    """
    skipped = list[SkippedRun]()
    scored = list[FinishedRun]()
    for run in runs:
        if run.results["scores"]:
            scored.append(run)
        else:
            skipped.append(SkippedRun(run.path, f"{run.path}: the run has no scores. Run {_evaluation(run)}."))
    if headline is not None and any(headline in run.results["scores"] for run in scored):
        others = [run for run in scored if headline not in run.results["scores"]]
        skipped += [SkippedRun(run.path, f"{run.path}: the run has no score {headline}.") for run in others]
        scored = [run for run in scored if headline in run.results["scores"]]
    longest = dict[tuple[str, int], FinishedRun]()
    for run in scored:
        key = (recipe_key(run), run.seed)
        if key not in longest or _steps(run) > _steps(longest[key]):
            longest[key] = run
    selected = list[FinishedRun]()
    for run in scored:
        other = longest[recipe_key(run), run.seed]
        if other is run:
            selected.append(run)
        else:
            reason = f"{run.path}: the run has the same recipe and seed {run.seed} as {other.path}, which is used."
            skipped.append(SkippedRun(run.path, reason))
    return selected, skipped


def _steps(run: FinishedRun) -> float:
    return run.results["cost"]["steps"]


def _evaluation(run: FinishedRun) -> str:
    overrides = shlex.join([f"encoder={run.path}", "suite=sts", "data_root=EVAL", "output=FILE.json"])
    return f"contrastive-encoders evaluate {overrides}, and add FILE.json to runs"


def arms_of(runs: Sequence[FinishedRun]) -> list[Arm]:
    """Group runs into arms. The arms are in the order in which their first runs are given."""
    groups = dict[str, list[FinishedRun]]()
    for run in runs:
        groups.setdefault(recipe_key(run), []).append(run._replace(label=label_of(run)))
    arms = [
        Arm(group[0].label or "", sorted(group, key=lambda run: run.seed), settings_in(group[0].results["recipe"]))
        for group in groups.values()
    ]
    return [arm._replace(label=label) for arm, label in zip(arms, _labels(arms), strict=True)]


def label_of(run: FinishedRun) -> str | None:
    """Return the name of a run's arm, or None if the arm has no name.

    The name is the first of these that exists: the name in the comparison's ``runs``, the name in the race that trained
    the run, and ``name`` in the run's recipe.
    """
    return run.label or labels_of(run.folder.parent).get(run.folder.name) or run.results["recipe"].get("name")


def recipe_key(run: FinishedRun) -> str:
    """Return a string that identifies the arm of a run: it is equal for runs that have the same name, if any,
    and differ only in the seed or in keys that do not affect results.
    """
    stages = [settings_in(recipe) for recipe in (*run.earlier, run.results["recipe"])]
    return json.dumps([label_of(run), run.results["objective"], stages], sort_keys=True, default=str)


def settings_in(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe that distinguish arms, as a mapping from dotted keys to values.

    A stage starts from the encoder of the previous stage, which is in a folder of the same run. Such a path is replaced
    by its part that begins with the folder of the stage, so that it is equal in all runs of an arm.
    """
    values = {key: value for key, value in flatten(recipe).items() if effect_of(key).in_arm}
    last = Path(str(recipe.get("output_dir") or ""))
    if not last.name.startswith("stage-"):
        return values
    run = f"{last.parent}/"
    stage_paths = [key for key, value in values.items() if isinstance(value, str) and value.startswith(f"{run}stage-")]
    return values | {key: values[key].removeprefix(run) for key in stage_paths}


def differing(arms: Sequence[Arm]) -> list[str]:
    """Return the keys of the settings in which the arms differ. A missing setting counts as None."""
    keys = dict.fromkeys(key for arm in arms for key in arm.settings)
    return [key for key in keys if len({json.dumps(arm.settings.get(key), default=str) for arm in arms}) > 1]


def distinguishing_settings(arms: Sequence[Arm], *, by_name: bool = False) -> list[str]:
    """Return the keys of the settings in which the arms differ, without redundant keys.

    A setting is redundant if its values equal the values of another setting, such as ``data.batch_size``, which follows
    ``batch_size``. If ``by_name``, a setting is redundant only if both settings also have the same short name.
    """
    chosen = dict[tuple[str, str], str]()
    for key in sorted(differing(arms), key=lambda key: (key.count("."), key)):
        values = json.dumps([arm.settings.get(key) for arm in arms], default=str)
        chosen.setdefault((short_key(key) if by_name else "", values), key)
    return list(chosen.values())


def _labels(arms: Sequence[Arm]) -> list[str]:
    """Return the label of each arm: the name of the arm if it has one, otherwise its objective.

    If several arms have the same label, the settings in which they differ are appended. If the result is too long, the
    label is the name or the directory of the arm.
    """
    labels = []
    for arm in arms:
        objective = arm.runs[0].results["objective"]
        rivals = [
            other
            for other in arms
            if other.label == arm.label and (arm.label or other.runs[0].results["objective"] == objective)
        ]
        settings = _setting_labels(rivals, arm)
        label = " ".join([arm.label or objective or directory(arm), *settings])
        if settings and (len(label) > MAX_LABEL or (arm.label and len(settings) > MAX_SETTINGS)):
            label = arm.label or directory(arm)
        labels.append(label)
    for name in (directory, lambda arm: arm.runs[0].path):
        repeated = {label for label in labels if labels.count(label) > 1}
        labels = [
            f"{label} ({name(arm)})" if label in repeated and label != name(arm) else label
            for arm, label in zip(arms, labels, strict=True)
        ]
    return labels


def directory(arm: Arm) -> str:
    """Return the name of an arm's run directory or file. The seed is left out if the names of its runs differ only in
    the seed.
    """
    names = [run.path.stem if run.path.suffix == ".json" else run.path.name for run in arm.runs]
    bare = {re.sub(r"[-_. ]*(seed|s)?[-_. ]*\d+$", "", name, flags=re.IGNORECASE) for name in names}
    return bare.pop() if len(names) > 1 and len(bare) == 1 and all(bare) else names[0]


def _setting_labels(rivals: Sequence[Arm], arm: Arm) -> list[str]:
    """Return the settings that distinguish an arm from arms with the same label, such as ``tau=0.05``.

    A setting implied by another setting (``data.batch_size``) is left out.
    """
    chosen = [key for key in distinguishing_settings(rivals, by_name=True) if key not in NOT_IN_A_LABEL]
    names = [short_key(key) for key in chosen]
    return [
        _setting_label(key, arm, key if names.count(name) > 1 else name)
        for key, name in zip(chosen, names, strict=True)
    ]


def _setting_label(key: str, arm: Arm, name: str) -> str:
    """Format a setting for a label: ``tau=0.05``. Only the last part of a path and the name of a class are shown."""
    value = str(arm.settings.get(key)).rstrip("/").rpartition("/")[2]
    return value.rpartition(".")[2] if key.endswith("_target_") else f"{name}={value}"


def short_key(key: str) -> str:
    """Return the short name of a setting: ``tau`` for ``model.temperature``, ``lr`` for ``model.lr``."""
    return SHORT.get(key, key.rpartition(".")[2])
