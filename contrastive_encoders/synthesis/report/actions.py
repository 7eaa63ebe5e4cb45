"""Actions on a finished dataset: add an encoder's similarities to the report, write an annotation sheet, and evaluate a
completed sheet.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.synthesis.report.annotate import TABLE, Item, agreement_table, read_agreement, write_sheet
from contrastive_encoders.synthesis.report.report import Encoder, write_report
from contrastive_encoders.synthesis.shards.store import read_manifest

log = logging.getLogger(__name__)


class DatasetActions(NamedTuple):
    """Requested actions on a finished dataset. ``None`` means that an action is not requested."""

    encoder: str | None  # encoder for the text similarities of the report
    annotation_sample: int | None  # number of texts on the sheet
    annotation_sheet: str | None  # file

    def for_labels(self) -> list[str]:
        """Return the names of the requested actions that require labeled texts."""
        return [name for name in self.asked() if name != "encoder"]

    def asked(self) -> list[str]:
        return [name for name, value in self._asdict().items() if value is not None]

    def check(self) -> None:
        """Raise `InputError` if actions are requested that exclude each other. Call this before anything is written."""
        if self.annotation_sample is not None and self.annotation_sheet is not None:
            raise InputError(
                key="annotation_sheet",
                value=self.annotation_sheet,
                expected="null if annotation_sample is set",
                hint="annotation_sample writes a sheet, and annotation_sheet reads a completed one.",
            )

    def check_encoder(self, folder: Path, *, has_pairs: bool) -> None:
        """Check that the encoder can be loaded, before the potentially long generation starts.

        Raises:
            InputError: The encoder does not exist, or ``folder`` will not contain pairs.
        """
        if self.encoder is not None:
            from contrastive_encoders.encoders.loading.load import load_encoder

            _check_pairs(has_pairs, folder, self.encoder)
            load_encoder(self.encoder, device="cpu")

    def do(self, folder: Path, *, seed: int, device: str, as_trained: Callable[[Path], Sequence[Item]]) -> str:
        """Perform the requested actions, and return the agreement table to print, or an empty string.

        ``as_trained`` reads pairs as they are post-processed for training.
        """
        table = ""
        if self.encoder is not None:
            regenerate_report(folder, self.encoder, device)
        if self.annotation_sheet is not None:
            table = read_annotation_sheet(folder, Path(self.annotation_sheet))
        elif self.annotation_sample is not None:
            write_annotation_sheet(folder, self.annotation_sample, seed, as_trained)
        return table


def regenerate_report(folder: Path, encoder: str, device: str) -> None:
    """Write the report again, with the similarities that an encoder computes for the pairs of texts.

    Raises:
        InputError: The folder contains no dataset, or a dataset without pairs.
    """
    manifest = read_manifest(folder)
    kind = manifest["identity"]["kind"]
    _check_pairs(kind in ("x2", "triplets"), folder, encoder)
    if not manifest["complete"]:
        raise InputError(
            key="output",
            value=folder,
            expected="a finished data set",
            hint="Rerun the command that wrote the data set to finish it. Then set encoder.",
        )
    from contrastive_encoders.encoders.loading.load import load_encoder

    loaded = load_encoder(encoder, device=device_of(device))
    name = Path(encoder).resolve().name if Path(encoder).exists() else encoder
    write_report(folder, manifest, Encoder(name, lambda texts: loaded.embed(texts, convert_to_numpy=True)))
    log.info("%s: added the similarities of the texts under %s", folder / "report.html", name)


def _check_pairs(has_pairs: bool, folder: Path, encoder: str) -> None:
    if not has_pairs:
        raise InputError(
            key="encoder", value=encoder, expected=f"null, because {folder} contains no pairs of texts to compare"
        )


def write_annotation_sheet(folder: Path, number: int, seed: int, as_trained: Callable[[Path], Sequence[Item]]) -> None:
    sheet, allowed = write_sheet(folder, number, labels_of(folder), seed, as_trained)
    log.info(
        "wrote %s: fill in the column label with one of %s, then set annotation_sheet=%s.",
        sheet,
        ", ".join(allowed),
        sheet,
    )


def read_annotation_sheet(folder: Path, sheet: Path) -> str:
    """Evaluate a completed annotation sheet. The returned table is also written to the folder of the dataset."""
    if read_manifest(folder)["identity"]["kind"] == "queries":
        from contrastive_encoders.synthesis.questions.answers import answers_table

        table = answers_table(folder, sheet)
    else:
        labels_of(folder)
        table = agreement_table(read_agreement(folder, sheet))
    atomic_write(folder / TABLE, table.encode())
    return table


def labels_of(folder: Path) -> Sequence[str]:
    """Return the names of the labels of a dataset.

    Raises:
        InputError: The folder contains no dataset, or a dataset without labels.
    """
    identity = read_manifest(folder)["identity"]
    if "spec" not in identity:
        kind = "questions, which already have a sheet" if identity["kind"] == "queries" else "triplets"
        expected = f"a data set of texts that were written for labels, not of {kind}"
        raise InputError(key="output", value=folder, expected=expected)
    return list(identity["spec"]["labels"])
