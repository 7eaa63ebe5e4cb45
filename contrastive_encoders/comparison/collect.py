"""Read the runs of a comparison from their output folders."""

import glob
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.comparison.outputs import REFUSED_FILE
from contrastive_encoders.core import InputError, ItemScores, Results, RunCost
from contrastive_encoders.io.manifest import CorruptFileError, is_finished, read_record
from contrastive_encoders.io.metrics import numbers, read_rows

MAX_REASONS = 3  # maximum number of reasons in a message
log = logging.getLogger(__name__)

Row = dict[str, float]
CLOCK = "time/elapsed_s"
TRAINING_FILES = ("metrics.csv", "checkpoints")
STOPPED_FILE = "stopped_early.json"  # in the folder of a trial that its sweep stopped early


class FinishedRun(NamedTuple):
    """The results of a finished training run or of an evaluation."""

    path: Path  # the run's folder, or the FILE.json of an evaluation
    results: Results
    rows: list[Row]  # rows of metrics.csv (step and all metrics logged at it), over all stages in order
    items: ItemScores | None  # scores of single test items, if they were stored
    label: str | None = None  # given name of its arm
    earlier: tuple[Mapping[str, Any], ...] = ()  # recipes of the stages before the last

    @property
    def seed(self) -> int:
        return self.results["seeds"][0] if self.results["seeds"] else 0

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent


class SkippedRun(NamedTuple):
    """A path that matches ``runs`` but is left out of the comparison, and the reason."""

    path: Path
    reason: str


def collect(patterns: Sequence[str] | Mapping[str, str]) -> tuple[list[FinishedRun], list[SkippedRun]]:
    """Read the runs that match the patterns, and return these runs and the skipped runs.

    A pattern is a run directory, the FILE.json of an evaluation, a directory of runs, or a glob pattern of such paths.
    In a mapping, keys are names of arms and values are patterns.

    Raises:
        InputError: a pattern matches nothing, two names have the same run, or no run can be read.
    """
    runs, skipped = list[FinishedRun](), list[SkippedRun]()
    paths = dict[Path, tuple[Path, str | None]]()  # the same folder may be given in several spellings
    labeled = patterns.items() if isinstance(patterns, Mapping) else [(None, pattern) for pattern in patterns]
    for label, pattern in labeled:
        for match in _matches(pattern):
            path, other = paths.setdefault(match.resolve(), (match, label))
            if other != label:
                raise InputError(key=f"runs.{label}", value=pattern, expected=f"another run than that of runs.{other}")
    for path, label in paths.values():
        try:
            runs.append(read_run(path)._replace(label=label))
        except InputError as error:
            skipped.append(SkippedRun(path, str(error)))
    if not runs and not skipped:
        raise InputError(
            key="runs", value="[]", expected="at least one directory of a run", hint="Set runs='[outputs/*]'."
        )
    if not runs:
        reasons = " ".join(one.reason for one in skipped[:MAX_REASONS])
        raise InputError(key="runs", expected="at least one directory of a finished run", hint=reasons)
    return runs, skipped


def read_run(path: Path) -> FinishedRun:
    """Read the results of a finished run or of an evaluation.

    Raises:
        InputError: the results are missing, incomplete, damaged, or of another release.
    """
    from contrastive_encoders.io.item_scores import items_path, read_items
    from contrastive_encoders.io.results import read_results

    if path.is_dir() and not (path / "results.json").exists():
        if (path / STOPPED_FILE).exists():
            hint = f"The sweep stopped this run early: {_read_json(path / STOPPED_FILE).get('reason')}."
        elif (path / REFUSED_FILE).exists():
            hint = f"The config of this run was refused. {_read_json(path / REFUSED_FILE).get('reason')}"
        elif _has_trained(path):
            hint = "The run is not finished. Rerun its command to resume it."
        else:
            hint = "Nothing was trained in it." if _has_started(path) else "Choose another directory."
        raise InputError(
            location=str(path), expected="the directory of a finished run, which contains results.json", hint=hint
        )
    file = path / "results.json" if path.is_dir() else path
    results = read_results(file)
    rows = list[Row]()
    is_a_run = file.name == "results.json"  # an evaluation may have written its file next to the metrics.csv of a run
    steps = seconds = 0.0
    stages = stage_costs(results)
    folders = [file.parent / f"stage-{name}" if name else file.parent for name, _ in stages]
    for folder, (_, spent) in zip(folders, stages, strict=True):
        for row in _read_rows(folder) if is_a_run else []:
            if row["step"] or not steps:  # the first row of a stage repeats the end of the previous stage
                elapsed = {CLOCK: row[CLOCK] + seconds} if CLOCK in row else {}
                rows.append(row | {"step": row["step"] + steps} | elapsed)
        steps, seconds = steps + spent["steps"], seconds + spent["wall_seconds"]
    items = items_path(folder / file.name)  # the scores of a run are those of its last stage
    if results.get("intervals") and not items.exists():
        log.warning("%s: there is no paired test, because the scores of its test items are missing: %s", path, items)
    earlier = tuple(read_results(one / "results.json")["recipe"] for one in folders[:-1] if is_finished(one))
    return FinishedRun(path, results, rows, read_items(items) if items.exists() else None, earlier=earlier)


def stage_costs(results: Results) -> list[tuple[str, RunCost]]:
    """Return the name and cost of each training stage of a run. A run without stages counts as one stage with an empty
    name.
    """
    stages = results.get("stages", {})
    names = sorted(stages, key=lambda name: stages[name]["place"])
    return [(name, stages[name]["cost"]) for name in names] or [("", results["cost"])]


def _read_rows(folder: Path) -> list[Row]:
    path = folder / "metrics.csv"
    if not path.exists():
        return []
    try:
        return numbers(read_rows(path))
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            location=str(path), value=error, expected="a header and rows of numbers", hint="Train the run again."
        ) from error


def _matches(pattern: str) -> Iterator[Path]:
    pattern = str(Path(pattern).expanduser())
    # Path.glob does not accept absolute patterns
    paths = [Path(name) for name in sorted(glob.glob(pattern)) if Path(name).name != "labels.json"]  # noqa: PTH207
    if not paths:
        raise InputError(key="runs", value=pattern, expected="an existing path or a pattern such as 'outputs/*'")
    for path in paths:
        if str(path) != pattern and (path / "comparison.json").exists():
            continue  # an earlier report that is among its own runs
        run_folders = sorted(one for one in path.iterdir() if _is_run(one)) if _holds_runs(path) else []
        folder = path / "runs"  # folder of a race or a sweep
        if not run_folders and _holds_runs(path) and folder.is_dir():
            run_folders = sorted(one for one in folder.iterdir() if one.is_dir())
        yield from run_folders or [path]


def _is_run(path: Path) -> bool:
    return (path / "results.json").exists() or _has_started(path)


def _has_started(path: Path) -> bool:
    return any((path / name).exists() for name in ("metrics.csv", "checkpoints", ".hydra"))


def _has_trained(path: Path) -> bool:
    """Return whether a run or one of its stages has started to train, in which case the run can be resumed."""
    return any((folder / name).exists() for folder in (path, *path.glob("stage-*")) for name in TRAINING_FILES)


def _holds_runs(path: Path) -> bool:
    return path.is_dir() and not _is_run(path)


def labels_of(folder: Path) -> dict[str, str]:
    """Read ``labels.json``, which a race writes next to its runs. It maps the folder name of each run to the name of
    its arm.
    """
    return {name: str(label) for name, label in _read_json(folder / "labels.json").items()}


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON record of a sweep or a race. Return an empty mapping if the file does not exist."""
    try:
        return read_record(path) if path.exists() else {}
    except (OSError, CorruptFileError) as error:
        raise InputError(
            location=str(path),
            value=error,
            expected="an intact JSON record of a race or a sweep",
            hint="Remove the file and rerun the command that wrote it.",
        ) from error
