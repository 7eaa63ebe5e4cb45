"""Find test texts on which an encoder was trained, if the results of its runs record the training data."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError, Results
from contrastive_encoders.core.shared_texts import is_checked, learns, normal_form, sum_overlaps
from contrastive_encoders.io.file_formats import FORMS, form_of
from contrastive_encoders.io.manifest import DataFile, files_in, numbers_in
from contrastive_encoders.io.results import read_results
from contrastive_encoders.io.rows import read_rows
from contrastive_encoders.io.text_files import BadRow

# Bytes of training files, and of those among them that are converted, such as PDF; of more the run's count is taken
MAX_BYTES, MAX_CONVERTED = 200 * 2**20, 10 * 2**20
WINDOW = 8  # number of first words of a text that are searched in longer texts
MAX_RUNS = 8  # in which an encoder was trained, each from the weights of another


class TrainedTexts(NamedTuple):
    """Overlap between the texts of tasks and an encoder's training data."""

    overlap: dict[str, dict[str, int]]  # task -> number of texts checked and found; empty if the data are unknown
    files: list[str]  # names of the training files


def trained_texts(encoder: str, sentences: Mapping[str, Sequence[str]]) -> TrainedTexts:
    """Return the overlap of each task with the training data of the runs that trained an encoder.

    Args:
        encoder: the run's folder, a path in it, or any other encoder, for which the training data are unknown.
        sentences: task -> its texts.
    """
    runs = list(_runs_of(encoder))
    files = list(dict.fromkeys(file for run in runs for file in files_in(run["data"])))
    overlap = sum_overlaps([run.get("overlap", {}) for run in runs])
    overlap = {task: counts for task, counts in overlap.items() if task in sentences}
    if files and _are_soon_read(files):
        checked = {task: [normal_form(text) for text in texts if is_checked(text)] for task, texts in sentences.items()}
        matches = _texts_in(files, {text for texts in checked.values() for text in texts})
        overlap = {
            task: {"checked": len(texts), "found": sum(text in matches for text in texts)}
            for task, texts in checked.items()
        }
    return TrainedTexts(overlap, list(dict.fromkeys(file.path.name for file in files)))


def _runs_of(encoder: str) -> Iterator[Results]:
    """Yield the run that trained an encoder, then the runs that trained its initial weights."""
    for _ in range(MAX_RUNS):
        path = Path(encoder).expanduser()
        folders = (
            [path, *list(path.parents)[:2]] if path.exists() else []
        )  # RUN, RUN/encoder, RUN/checkpoints/best.ckpt
        results = next((folder / "results.json" for folder in folders if (folder / "results.json").is_file()), None)
        if results is None:
            return
        try:
            run = read_results(results)
        except InputError:
            return
        if "stages" in run or learns(run["recipe"]["model"]):
            yield run
        if run["backbone"] == encoder:
            return
        encoder = run["backbone"]


def _are_soon_read(files: Sequence[DataFile]) -> bool:
    """Return whether all files still have the recorded sizes, and are small enough to be read."""
    if not all(file.path.is_file() and file.path.stat().st_size == file.bytes for file in files):
        return False
    converted = sum(file.bytes for file in files if form_of(file.path) not in FORMS)
    return sum(file.bytes for file in files) <= MAX_BYTES and converted <= MAX_CONVERTED


def _texts_in(files: Sequence[DataFile], texts: set[str]) -> set[str]:
    """Return the texts that are equal to a value in the trained rows of the files or, for texts of at least `WINDOW`
    words, contained in a value.
    """
    beginnings: dict[tuple[str, ...], list[str]] = {}
    for text in texts:
        words = text.split()
        if len(words) >= WINDOW:
            beginnings.setdefault(tuple(words[:WINDOW]), []).append(text)
    matches = set[str]()
    for value in (value for file in files for value in _values_in(file)):
        text = normal_form(value)
        if text in texts:
            matches.add(text)
        words = text.split()
        for place in range(len(words) - WINDOW + 1):
            for other in beginnings.get(tuple(words[place : place + WINDOW]), ()):
                if other not in matches and f"{other} " in f"{' '.join(words[place:])} ":
                    matches.add(other)
    return matches


def _values_in(file: DataFile) -> Iterator[str]:
    """Yield the texts of the rows that were used: rows of the split that were not held out."""
    held_out = set(numbers_in(file.held_out))
    try:
        for row in read_rows(file.path):
            if isinstance(row, BadRow) or row.line in held_out:
                continue
            if file.split is None or row.values.get("split") in (None, file.split):
                yield from _strings(row.values)
    except (InputError, OSError):  # the file is of another kind than when it was read for training
        return


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(one)
