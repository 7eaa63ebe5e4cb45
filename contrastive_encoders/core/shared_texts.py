"""Counts of test texts that are in the training data, and warnings about them."""

from collections.abc import Iterable, Mapping
from typing import Any

LEAST_SHARE = 0.01  # minimum fraction of a task's texts for a warning
MIN_CHARACTERS = 12  # minimum length of a text, because shorter ones occur in any data


def normal_form(text: str) -> str:
    return " ".join(text.casefold().split())


def is_checked(text: str) -> bool:
    """Return whether a test text is long enough to be searched for in training data."""
    return len(normal_form(text)) >= MIN_CHARACTERS


def is_notable(counts: Mapping[str, int]) -> bool:
    """Return whether at least 1 % of the checked texts were found in the training data."""
    return counts["found"] > 0 and counts["found"] >= LEAST_SHARE * counts["checked"]


def learns(model: Mapping[str, Any]) -> bool:
    """Return whether a run with these keys of the model changes any weights: not if all learning rates are 0, as in the
    run of a race that scores the untrained encoder.
    """
    return any(model.get(name) for name in ("lr", "head_lr", "classifier_lr")) or model.get("lr") is None


def overlap_warnings(overlap: Mapping[str, Mapping[str, int]], files: str = "") -> list[str]:
    """Return a warning for each task that has at least 1 % of its checked texts in the training data.

    Args:
        overlap: task -> number of texts checked and found in the training data.
        files: names of the training files.
    """
    return [
        f"{counts['found']:,} of {counts['checked']:,} texts of {task} are in the encoder's training data"
        f"{f' ({files})' if files else ''}. Evaluate on texts that the encoder was not trained on."
        for task, counts in overlap.items()
        if is_notable(counts)
    ]


def sum_overlaps(overlaps: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Return, for each task, an upper bound of its overlap with the training texts of several runs or stages together.
    A text that two of them were trained on counts twice.
    """
    found = dict[str, dict[str, int]]()
    for overlap in overlaps:
        for task, counts in overlap.items():
            sums = found.setdefault(task, {"checked": counts["checked"], "found": 0})
            sums["found"] = min(sums["checked"], sums["found"] + counts["found"])
    return found
