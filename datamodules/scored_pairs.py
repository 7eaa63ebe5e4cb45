"""Data module of scored sentence pairs, which are post-processed once and may be partly held out (Schick and Schuetze
2021).
"""

import contextlib
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contrastive_encoders.core import InputError, Prompted, RatedPairs, ScoredPairBatch
from contrastive_encoders.datamodules.data_configs import DataConfig, ScoredPairDataConfig
from contrastive_encoders.datamodules.row_datamodules import StoredRows, TextRows
from contrastive_encoders.datamodules.sampling.dino_postprocess import (
    Pair,
    PostprocessSettings,
    StepReport,
    postprocess,
    split_dev,
)
from contrastive_encoders.datamodules.sources.hub_datasets import Rows
from contrastive_encoders.datamodules.sources.records import Record, RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore
from contrastive_encoders.datamodules.store.tokenization import describe_skipped
from contrastive_encoders.io.atomic import build_once
from contrastive_encoders.io.manifest import CorruptFileError, read_record

PREPARED_VERSION = 5  # part of the key: increase it when the same pairs would yield a different result
RAW_LABELS = {0.0, 0.5, 1.0}  # labels that the generator writes
MAX_LABELS_SHOWN = 6
GENERATED = ("text_a", "text_b", "label")  # columns of a generator's own format, whose labels are strings
VALID = "valid"  # the split that is used as development set if it exists

log = logging.getLogger(__name__)


class ScoredPairs(TextRows, StoredRows):
    """Data module of text pairs with a label from 0 to 1, such as DINO's pairs, raw or post-processed.

    ``postprocess="auto"`` runs ``steps`` if and only if a generator wrote the pairs. See `dino_postprocess` for the
    steps. ``dev_fraction`` of the pairs become the task "dino-dev". If some rows have the split "valid", they become
    the task instead, without post-processing: smoothing is linear and does not change correlations.
    """

    settings: ScoredPairDataConfig
    yields = ScoredPairBatch
    kind = PAIRS

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.rules = PostprocessSettings(
            tuple(self.settings.postprocess_steps),
            self.settings.ignore_case,
            float(self.settings.smoothing),
            self.settings.max_pairs_per_label,
            self.settings.random_pairs,
            self.settings.random_pair_source,
            self.settings.postprocess_seed,
        )
        self._announced = False

    def prepare_data(self) -> None:
        prepared = self._prepared()
        if not (self.settings.quiet or self._announced):
            prepared.announce()
        self._announced = True  # the trainer calls prepare_data again
        super().prepare_data()

    def source(self) -> RowSource:
        return self._prepared()

    def held_out(self) -> Sequence[Any]:
        pairs = self._prepared().dev()
        if len({pair.score for pair in pairs}) < 2:
            log.warning(
                "dino-dev is not scored, because its %d held-out pairs do not have at least two different labels",
                len(pairs),
            )
            return []
        left, right, scores = zip(*((pair.left, pair.right, pair.score) for pair in pairs), strict=True)
        sides = [Prompted(texts, prompt) for texts, prompt in zip((left, right), self.task_prompts(), strict=True)]
        return [RatedPairs("dino-dev", sides[0], sides[1], np.array(scores, np.float64), ["dino-dev"] * len(pairs))]

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> ScoredPairBatch:
        assert store.labels is not None
        scores = torch.from_numpy(store.labels[rows].astype(np.float32))
        return ScoredPairBatch(self.sequences(store, rows, 0), self.sequences(store, rows, 1), scores, rows)

    def _prepared(self) -> "PreparedPairs":
        """The pairs after post-processing and splitting. They are created if they do not exist."""
        key = {
            "version": PREPARED_VERSION,
            "source": self.records.fingerprint(),
            "postprocess": self.settings.postprocess,
            "settings": self.rules._asdict(),
            "dev": [self.settings.dev_fraction, self.settings.split_by, self.settings.seed],
        }
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        directory = self.cache / f"pairs-{digest}"
        build_once(directory, PreparedPairs.is_complete, self._prepare)
        return PreparedPairs(directory, digest)

    def _prepare(self, folder: Path) -> None:
        raw = read_pairs(self.records)
        labels = Counter(pair.score for pair in raw)
        if len(labels) == 1:
            raise InputError(
                location=self.records.name,
                expected="pairs with different labels, because a regression learns nothing from a single label",
                value=f"{next(iter(labels)):g} only",
            )
        generated = all(_is_generated(self.records, file) for file in self.records.files)
        run, why = decide(self.settings.postprocess, labels, self.rules.smoothing, generated)
        source = self.records.manifest()
        pairs, reports = postprocess(raw, self.rules if run else self.rules._replace(steps=()))
        train, dev = split_dev(pairs, self.settings.dev_fraction, self.settings.seed, self.settings.split_by)
        if self.records.other_splits.get(VALID):
            train, dev = pairs, read_pairs(self.records.of_split(VALID, PAIRS))
        check_trainable(train, self.records.name, reports)
        write_pairs(folder / "train.jsonl", train)
        write_pairs(folder / "dev.jsonl", dev)
        report = {
            "postprocess": "on" if run else "off",
            "why": why,
            "settings": self.rules._asdict() if run else {},
            "raw_labels": {f"{label:g}": number for label, number in labels.most_common(MAX_LABELS_SHOWN)},
            "raw": len(raw),
            "steps": [report._asdict() for report in reports],
            "train": len(train),
            "dev": len(dev),
            "source": source,
        }
        (folder / "report.json").write_text(json.dumps(report, indent=1))


class PreparedPairs:
    """Source of the training pairs in a folder that also contains the held-out pairs and the provenance."""

    width = 2

    def __init__(self, directory: Path, digest: str) -> None:
        self.directory, self.digest = directory, digest
        self.report: dict[str, Any] = json.loads((directory / "report.json").read_text())

    @staticmethod
    def is_complete(directory: Path) -> bool:
        return all((directory / name).is_file() for name in ("train.jsonl", "dev.jsonl", "report.json"))

    def __iter__(self) -> Iterator[Record]:
        made_as = "post-processed pair" if self.report["postprocess"] == "on" else ""
        for line, pair in enumerate(_read(self.directory / "train.jsonl"), start=1):
            yield Record((pair.left, pair.right), pair.score, f"{self.directory / 'train.jsonl'}:{line}", made_as)

    def dev(self) -> list[Pair]:
        return list(_read(self.directory / "dev.jsonl"))

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "scored pairs", "digest": self.digest}

    def manifest(self) -> dict[str, Any]:
        return {**self.report, "rows": self.report["train"]}

    def announce(self) -> None:
        """Log whether the pairs were post-processed, and how many pairs each step dropped or added."""
        found = self.report
        elsewhere = {name: rows for name, rows in found["source"]["other_splits"].items() if name != VALID}
        unused = describe_skipped({**found["source"], "other_splits": elsewhere})
        log.info("data.postprocess: %s, because %s%s", found["postprocess"], found["why"], unused)
        table = [("read", 0, 0, found["raw"])]
        table += [(one["step"], one["dropped"], one["added"], one["left"]) for one in found["steps"]]
        lines = [f"{'step':16}{'dropped':>9}{'added':>9}{'pairs':>9}"]
        lines += [f"{step:16}{dropped:9,}{added:9,}{left:9,}" for step, dropped, added, left in table]
        log.info("%s\n%d pairs to train on, %d held out as dino-dev", "\n".join(lines), found["train"], found["dev"])


def _is_generated(records: RecordSource, file: Rows) -> bool:
    """Return whether a file contains generated pairs, according to its manifest or its format."""
    if isinstance(file, Path):
        with contextlib.suppress(OSError, CorruptFileError):  # no manifest of this project
            identity = read_record(file.parent / "manifest.json").get("identity")
            if isinstance(identity, dict) and identity.get("kind") == "x2":
                return True
    return records.has_text_labels(file, GENERATED)


def decide(postprocess: str, labels: Iterable[float], smoothing: float, generated: bool) -> tuple[bool, str]:
    """Return whether the pairs should be post-processed, and the reason.

    Raises:
        InputError: The labels would be smoothed twice.
    """
    others = sorted(set(labels) - RAW_LABELS)
    shown = ", ".join(f"{label:g}" for label in others[:MAX_LABELS_SHOWN]) + (
        ", ..." if len(others) > MAX_LABELS_SHOWN else ""
    )
    if postprocess == "off":
        if generated and not others:
            log.warning(
                "data.postprocess=off, but these are the raw pairs of a generator. Training on them is much "
                "worse. Set "
                "data.postprocess=auto."
            )
        return False, "it was set"
    if postprocess == "on" and others and smoothing:
        raise InputError(
            key="data.postprocess",
            value="on",
            expected=f"only the labels 0, 0.5, and 1, to which smoothing applies, but the data also has {shown} "
            "(published files named "
            "-postprocessed have smoothed labels)",
            hint="Set data.postprocess=off, or data.smoothing=0 to run only the other steps.",
        )
    if postprocess == "on":
        return True, "it was set"
    if not generated:
        return False, "no generator wrote these pairs, so they are used unchanged"
    if others:
        return False, f"not all labels are 0, 0.5, or 1 ({shown}), so the pairs are used unchanged"
    return True, "these are the raw pairs of a generator"


def read_pairs(records: Iterable[Record]) -> list[Pair]:
    scores: Any = ((record.texts, record.label) for record in records)  # one number per record
    return [Pair(left, right, float(score or 0)) for (left, right), score in scores]


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as JSON lines with the keys text_a, text_b, and label."""
    with path.open("w", encoding="utf-8") as file:
        for pair in pairs:
            row = {"text_a": pair.left, "text_b": pair.right, "label": pair.score}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _read(path: Path) -> Iterator[Pair]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            record = json.loads(line)
            yield Pair(record["text_a"], record["text_b"], record["label"])


def check_trainable(train: Sequence[Pair], name: str, reports: Sequence[StepReport]) -> None:
    """Raise `InputError` unless the pairs have at least two different labels."""
    steps = "; ".join(f"{one.step} dropped {one.dropped} and added {one.added}" for one in reports) or "no step ran"
    if not train:
        raise InputError(
            location=name,
            expected=f"at least one pair to train on after the post-processing ({steps})",
            hint="Add pairs, or use fewer data.postprocess_steps.",
        )
    if len({pair.score for pair in train}) == 1:
        raise InputError(
            location=name,
            expected=f"pairs with different labels to train on after the post-processing ({steps})",
            value=f"{train[0].score:g} only",
            hint="Add pairs with other labels, or use fewer data.postprocess_steps.",
        )
