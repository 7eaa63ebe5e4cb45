"""The Python API: ``train([("question", "answer"), ...], model="simcse").encoder``.

Rows in memory become a file in the cache, named by its content. It does not lie in the run's folder, whose name is made
of what the run is trained on. So the same call goes on with its run or finds it finished, as a command line does.
"""

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_encoders.composition.config_keys import GROUPS
from contrastive_encoders.composition.override_checks import check_words
from contrastive_encoders.core import InputError, OutputError, Results, Verdict
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.io.cached_rows import cache_folder, keep_rows
from contrastive_encoders.io.output_directory import LOCK, let_go
from contrastive_encoders.runtime.exit_codes import judged
from contrastive_encoders.runtime.log_output import logs_shown
from contrastive_encoders.runtime.process_group import launched
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.in_memory_rows import keys_of_rows
from contrastive_encoders.training.run_config import RunConfig
from contrastive_encoders.training.stages import finished_before, folder_of, stages_of

if TYPE_CHECKING:  # torch takes seconds to import
    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder

# Keys whose value is a mapping of names that are free
AS_GIVEN = re.compile(r"data\.(parts|prompts|weights)|callbacks|evaluation\.tasks|prompts|stages|.*_options")

_at_work = threading.Lock()  # Hydra knows one config a process


@dataclass(frozen=True)
class TrainResult:
    """What a finished run leaves.

    Attributes:
        encoder: the trained encoder; None if the run trained a generator or a reranker.
        directory: directory of the run, with ``encoder/``, ``results.json``, and the checkpoints.
        results: content of ``results.json``.
    """

    encoder: "LoadedEncoder | None"
    directory: Path
    results: Results = field(repr=False)

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the trained encoder by name, 0 to 100; empty if nothing was scored."""
        return self.results["scores"]

    @property
    def verdict(self) -> Verdict | None:
        """Comparison with the encoder before training; None if that was not scored."""
        return self.results.get("verdict")


def run(asked: RunConfig) -> Results:
    """Train what ``asked`` says in this process, or go on with what was begun; a finished run is only read.

    Raises:
        InputError: what status 2 of the command line is, with the same sentence.
        OutputError, TrainingError: there is no room, or the training failed: status 1.
        KeyboardInterrupt, SystemExit: SIGINT or SIGTERM came, and the state is saved.
    """
    _, results = _trained(asked)
    return results


def train(rows: Iterable[Any] | None = None, *, overrides: Sequence[str] = (), **keys: Any) -> TrainResult:
    """Train as ``contrastive-encoders train`` does, or resume what the same call began; a finished run is only loaded.

    ``rows``, or ``data`` in its place, are texts, pairs or tuples of texts (an anchor, a positive, negatives), pairs
    with a score from 0 to 1, or mappings of column names to these: a list of mappings, a ``datasets.Dataset``, a pandas
    DataFrame. Rows with an empty cell (``None``, NaN, whitespace) are left out and counted. Where ``data`` is not given
    it follows from the first row, and so does ``model``; columns then count in order, or those that ``data__columns``
    names, and a third must be called a negative. ``keys`` are those of ``configs/``, whose dots are written as
    two underscores: ``model__lr=5e-5``; a mapping gives several: ``evaluation={"every_n_steps": 20}``. ``overrides``
    are added as they are written on a command line.

    The run has one process.

    Raises:
        InputError, OutputError, TrainingError, KeyboardInterrupt, SystemExit: see `run`.
    """
    if isinstance(overrides, str):
        raise InputError(f"overrides={overrides!r}: wanted a list of overrides, such as {[overrides]}.")
    if "data" in keys and not isinstance(keys["data"], str | Mapping):
        if rows is not None:
            raise InputError(
                key="data", value=type(keys["data"]).__name__, expected="a name if rows are passed as well"
            )
        rows = keys.pop("data")
    chosen, dotted = _chosen(keys)
    said = [*overrides, *(f"{group}={name}" for group, name in chosen.items())]
    with _as_exceptions(said), logs_shown(quiet=bool(keys.get("quiet"))):
        check_words("train", overrides)
        if rows is not None:
            of_words = {word.lstrip("+").partition("=")[0]: word.partition("=")[2] for word in overrides}
            folder = cache_folder(dotted.get("data.cache_dir"))
            given = {**chosen, **dotted, **of_words}
            of_rows, of_file = keys_of_rows(rows, given, lambda plain: keep_rows(plain, folder))
            chosen, dotted = {**of_rows, **chosen}, {**of_file, **dotted}
        asked = compose(overrides, chosen, {"devices": 1, **dotted})
    folder, results = _trained(asked)
    from contrastive_encoders.encoders import load_encoder

    with _undrawn():
        encoder = load_encoder(folder) if (folder / "encoder").is_dir() else None
    return TrainResult(encoder, folder, results)


def _chosen(keys: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Choices of files, and dotted keys; a mapping stands for several keys but where its keys are free."""
    chosen: dict[str, str] = {}
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if name in GROUPS["train"] and isinstance(value, str):
            chosen[name] = value
        elif isinstance(value, Mapping) and not AS_GIVEN.fullmatch(name):
            for key, entry in value.items():
                put(f"{name}.{key}", entry)
        else:
            found[name] = _plain(value)

    for key, value in keys.items():
        put(key.replace("__", "."), value)
    return chosen, found


def _plain(value: Any) -> Any:
    """As JSON has it: paths are texts, NumPy's numbers are numbers."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if hasattr(value, "item") else value


def _trained(asked: RunConfig) -> tuple[Path, Results]:
    if launched() or str(asked.devices) not in ("1", "auto") or asked.num_nodes != 1:
        raise InputError(
            f"devices={asked.devices}: from Python a run has one process. "
            "Leave it out, or use contrastive-encoders train."
        )
    if not _at_work.acquire(blocking=False):
        raise InputError("train: another run is under way in this process. Wait until it has ended.")
    try:
        asked = replace(asked, devices=1)  # of "auto" Lightning would start a process for each GPU
        stages = stages_of(asked)
        folder = folder_of(asked, stages)
        with _as_exceptions(()), logs_shown(quiet=asked.quiet):
            if not finished_before(asked):
                try:
                    with _undrawn():
                        from contrastive_encoders.training.stage_loop import (
                            run_stages,  # with torch and Lightning, which take seconds
                        )

                        run_stages(asked)
                finally:
                    for one in {folder, *(stage.folder for stage in stages)}:
                        let_go(one / LOCK)
        from contrastive_encoders.io.results import read_results

        return folder, read_results(folder / "results.json")
    finally:
        _at_work.release()


@contextlib.contextmanager
def _undrawn() -> Iterator[None]:
    """The caller's random numbers go on as if nothing had been drawn."""
    import torch

    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        yield


@contextlib.contextmanager
def _as_exceptions(words: Sequence[str]) -> Iterator[None]:
    """What a command line would say before it ends is raised."""
    try:
        yield
    except (InputError, OutputError, TrainingError):
        raise
    except Exception as error:
        if (found := judged(error, hydra=True, config="train", words=list(words))) is None:
            raise
        status, sentence = found
        raise (InputError if status == 2 else OutputError)(" ".join(sentence.split())) from error
