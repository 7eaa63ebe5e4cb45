"""Reuse questions of an earlier dataset for passages that both datasets contain."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.io.output_directory import differences
from contrastive_encoders.synthesis.questions.generation import QuestionCandidate
from contrastive_encoders.synthesis.questions.output import CANDIDATES, HELD_OUT, read_rows
from contrastive_encoders.synthesis.shards.store import MANIFEST, read_manifest

DATASET_KEYS = ("sha256", "known", "shard_size")  # parts of the identity in which the datasets may differ

Known = dict[tuple[str, str], list[QuestionCandidate]]


def read_known(folder: Path, identity: Mapping[str, Any]) -> Known:
    """Read the judged questions of an earlier dataset. Return a mapping from (heading, text) of a passage to questions.

    Raises:
        InputError: The folder contains no finished dataset of ``recipe=queries``, or its questions were written or
            judged by another model or with other settings.
    """
    expected = "the finished output of this recipe"
    if not (folder / MANIFEST).is_file():
        raise InputError(key="reuse_from", value=folder, expected=f"{expected}, with its {MANIFEST}")
    manifest = read_manifest(folder, "reuse_from")
    before = manifest["identity"]
    if before.get("kind") != "queries" or not manifest.get("complete"):
        raise InputError(key="reuse_from", value=folder, expected=expected)
    if found := differences(_comparable(before["scored"]), _comparable(json.loads(json.dumps(identity)))):
        expected = f"questions that were written with the same config, but {found}"
        raise InputError(key="reuse_from", value=folder, expected=expected, hint="Leave reuse_from out.")
    try:
        passages = {
            one["_id"]: (one["title"], one["text"]) for one in read_rows(folder / HELD_OUT["dev"] / "corpus.jsonl")
        }
        known: Known = {key: [] for key in passages.values()}
        for row in read_rows(folder / CANDIDATES):
            fields = {name: row[name] for name in QuestionCandidate.__annotations__ if name != "passage"}
            known[passages[row["passage"]]].append(QuestionCandidate(passage=0, **fields))  # type: ignore[typeddict-item]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputError(
            key="reuse_from",
            value=error,
            expected="an intact data set of questions",
            location=str(folder),
            hint="Generate the data set again, or leave reuse_from out.",
        ) from error
    return known


def _comparable(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``identity`` that affect the questions of a passage or their scores."""
    return {
        name: _comparable(value) if isinstance(value, Mapping) else value
        for name, value in identity.items()
        if name not in DATASET_KEYS
    }
