"""Warnings about test texts that are in the training data."""

from collections.abc import Mapping

LEAST_SHARE = 0.01  # minimum fraction of a task's texts for a warning


def is_notable(counts: Mapping[str, int]) -> bool:
    """Return whether at least 1 % of the checked texts were found in the training data."""
    return counts["found"] > 0 and counts["found"] >= LEAST_SHARE * counts["checked"]


def overlap_warnings(overlap: Mapping[str, Mapping[str, int]], files: str = "") -> list[str]:
    """Return a warning for each task with a notable overlap.

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
