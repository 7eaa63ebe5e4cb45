"""Create triplets from DINO's pairs: texts with one label become entailments, texts with another label
contradictions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import Direction
from contrastive_encoders.synthesis.recipe_configs import GenseDinoConfig
from contrastive_encoders.synthesis.shards.store import read_entries, read_finished
from contrastive_encoders.synthesis.triplet_recipe import Baseline, CandidateSource, Premises, SentenceCandidates


@dataclass(kw_only=True)
class GenseDino(GenseDinoConfig, Baseline):
    """Recipe ``gense_dino``: triplets from a finished dataset of DINO's pairs."""

    manifest: dict[str, Any] = field(init=False)  # of the pairs
    required: ClassVar[dict[str, str]] = {"input": "the directory of a finished data set of DINO's pairs"}

    @property
    def pairs(self) -> Path:
        return Path(str(self.input))

    def method(self) -> dict[str, Any]:
        self.manifest = read_finished(self.pairs, "x2", "recipe=dino_x2")
        if self.folder.resolve() == self.pairs.resolve():
            raise InputError(key="output", value=self.folder, expected="a directory other than the input")
        known = list(self.manifest["identity"]["spec"]["labels"])
        for direction, label in self.labels.by_direction().items():
            if label not in known:
                expected = f"one of the labels {', '.join(map(repr, known))} of {self.pairs}"
                raise InputError(key=f"labels.{direction}", value=label, expected=expected)
        shards = [one["sha256"] for one in self.manifest["shards"]]
        given = {"identity": self.manifest["identity"], "shards": shards}
        return {"input": given, "labels": self.labels.by_direction()}

    def premises(self) -> Premises:
        rows = read_candidates(self.pairs, self.labels.by_direction())
        number, inputs = len(rows), int(self.manifest["counts"]["inputs"])
        if not number:
            raise InputError(
                key="input",
                value=self.pairs,
                expected="a data set with at least one pair",
                hint="The report.html of the data set shows why its pairs were rejected.",
            )
        left_out = {"without any accepted text": inputs - number} if inputs > number else {}
        counts = {"texts": inputs, "sentences": inputs, "kept": number, "left_out": left_out}
        return Premises(number, counts, rows)

    def source(self, inputs: Iterable[SentenceCandidates]) -> Callable[[], CandidateSource]:
        return InputCandidates


def read_candidates(folder: Path, labels: dict[Direction, str]) -> list[SentenceCandidates]:
    """Read a finished dataset of DINO's pairs. Texts with the labels in ``labels`` are candidates for a direction."""
    direction_of = {label: direction for direction, label in labels.items()}
    rows: list[SentenceCandidates] = []
    for x1, entries in groupby(read_entries(folder), key=lambda entry: entry["text_a"]):
        row = SentenceCandidates(x1, {direction: [] for direction in labels})
        for entry in entries:
            if entry["label"] in direction_of and entry["text_b"] is not None:
                row.texts[direction_of[entry["label"]]].append((entry["text_b"], True))
        rows.append(row)
    return rows


class InputCandidates:
    """Source of candidates that returns its inputs, because they already contain the candidates."""

    def __call__(self, first: int, inputs: Sequence[SentenceCandidates]) -> list[SentenceCandidates]:
        return list(inputs)
