"""Training from Python: ``encoder, folder, results = train([("question", "answer"), ...], model="simcse")``.

What is told becomes the words of a command line, and goes the way of these: config, checks, claim, resume, results.
Rows in memory become a file in the cache, named by its content. Not in the run's folder, which is known by what it
is trained on; so the same call goes on, or finds itself finished, and the command line can do so too.
"""

import contextlib
import copy
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from command.config_files import CONFIGS
from command.keys import GROUPS, check_numbers
from command.line import logs_shown
from command.processes import launched
from command.settings import node
from command.signals import INTERRUPTED, TERMINATED
from command.statuses import judged
from command.words import check_paths, check_words
from contracts import InputError, NotWritten, Results
from files.kept_rows import cache_folder, keep_rows
from files.ownership import LOCK, let_go
from training.failures import TrainingFailed
from training.given_rows import words_of_rows
from training.settings import Run
from training.stages import as_value, finished_before, forced

if TYPE_CHECKING:  # torch takes seconds to import
    from encoders.embedding import LoadedEncoder

PARTS = re.compile(r"data\.parts(\.[^.]+)?")  # of a mixture

_at_work = threading.Lock()  # Hydra knows one config a process


class Trained(NamedTuple):
    """What a run has left; no encoder where it trained a model that writes."""

    encoder: "LoadedEncoder | None"
    folder: Path
    results: Results


def train(
    rows: Iterable[Any] | None = None,
    *,
    config: DictConfig | None = None,
    words: Sequence[str] = (),
    **keys: Any,
) -> Trained:
    """Train as ``python train.py`` does, or go on with what the same call began; a finished run is only loaded.

    ``rows`` are texts, pairs or tuples of texts (an anchor, what belongs to it, what does not), pairs with a score
    from 0 to 1, or mappings of column names to these, as a ``datasets.Dataset`` has them. Where ``data`` is not given
    it follows from the first row, and so does ``model``; columns then count in order, or those that ``data__columns``
    names, and a third must be called a negative. ``keys`` are those of ``configs/``, whose dots are written as
    two underscores: ``model__lr=5e-5``; a mapping gives several: ``evaluation={"every_n_steps": 20}``. ``words`` are
    added as they stand on a command line. ``config`` is what `compose` returned, in the place of all these.

    The run has one process.

    Raises:
        InputError: what status 2 of the command line is, with the same sentence; NotWritten, TrainingFailed: status 1.
        KeyboardInterrupt: it was interrupted, and its state is saved.
    """
    if not _at_work.acquire(blocking=False):
        raise InputError("train: another run is under way in this process. Wait until it has ended.")
    try:
        if config is None:
            with _as_exceptions([]), logs_shown(quiet=bool(keys.get("quiet"))):
                given = _words(rows, keys, words)
            config = compose(given)
        elif rows is not None or words or keys:
            raise InputError("train: a config says all. Give what else there is to compose().")
        elif not isinstance(config, DictConfig) or "hydra" not in config:
            raise InputError(
                f"config: wanted what compose() has returned, got a {type(config).__name__} of other origin."
            )
        with _as_exceptions(config), _initialised(config) as cfg:
            folder = Path(cfg.output_dir)
            _check(config, cfg)
            with logs_shown(quiet=bool(cfg.quiet)), _undrawn():
                _run(cfg, folder)
                return _loaded(folder)
    finally:
        _at_work.release()


def compose(words: Sequence[str] = ()) -> DictConfig:
    """The config of these words of a command line, ``["model=declutr", "data=text", "data.path=FILE"]``, for `train`.

    ``devices`` is 1 in it. It may be changed, but for that of a run in stages, which are composed anew. Hydra's own
    part is under ``hydra``.

    Raises:
        InputError: they cannot be composed.
    """
    words = _one_process(_listed(words))
    with _as_exceptions(words), _configs():
        check_words("train", words)
        return hydra.compose("train", forced(words), return_hydra_config=True)


def _words(rows: Iterable[Any] | None, keys: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    own = [*_as_words({key.replace("__", "."): value for key, value in keys.items()}), *_listed(words)]
    said = {word.lstrip("+").partition("=")[0]: word.partition("=")[2].strip("'") for word in own}
    if rows is None:
        return own
    of_data = keys.get("data")
    among = {"data__cache_dir": of_data.get("cache_dir")} if isinstance(of_data, Mapping) else {}
    folder = cache_folder({**among, **keys}.get("data__cache_dir"))
    return [*words_of_rows(rows, said, lambda plain: keep_rows(plain, folder)), *own]


def _listed(words: Sequence[str]) -> list[str]:
    if isinstance(words, str):
        raise InputError(f"words={words!r}: wanted a list of words, such as {[words]}.")
    return list(words)


def _one_process(words: list[str]) -> list[str]:
    """Where the number is left open, Lightning would start a process for each GPU."""
    said = [word.lstrip("+").partition("=")[0] for word in words]
    return words if "devices" in said else ["devices=1", *words]


def _as_words(keys: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A mapping stands for several keys where the config has a group of them, else for itself."""
    plain = OmegaConf.create(node(Run))
    for key, value in keys.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and (
            name in GROUPS["train"] or PARTS.fullmatch(name) or OmegaConf.select(plain, name)
        ):
            yield from _as_words(value, f"{name}.")
        else:
            yield f"{name}={as_value(_plain(value))}"


def _plain(value: Any) -> Any:
    """As JSON has it: paths are texts, NumPy's numbers are numbers."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if hasattr(value, "item") else value


def _check(config: DictConfig, cfg: DictConfig) -> None:
    """What a command line refuses before it begins, and what is not to be had from Python."""
    check_numbers(cfg)
    check_paths(cfg)
    if launched() or str(cfg.devices) != "1" or cfg.num_nodes != 1:
        raise InputError(
            f"devices={cfg.devices}: from Python a run has one process. Leave it out, or use python train.py."
        )
    words = list(HydraConfig.get().overrides.task)
    if cfg.stages and _contents(hydra.compose("train", words, return_hydra_config=True)) != _contents(config):
        raise InputError(
            "config: a run in stages is composed anew for each of them, so its config cannot be changed. Give "
            "compose() words instead, such as stages.NAME.KEY=VALUE."
        )


def _contents(config: DictConfig) -> Any:
    found: Any = OmegaConf.to_container(config, resolve=False)
    return {key: value for key, value in found.items() if key != "hydra"}


def _run(cfg: DictConfig, folder: Path) -> None:
    """Until it is finished, or cut short by what is raised."""
    if finished_before(cfg):
        return
    from training.folder import STAGES
    from training.run import run

    Path(HydraConfig.get().run.dir).mkdir(parents=True, exist_ok=True)
    try:
        status = run(cfg)
    finally:
        for one in (folder, *folder.glob(STAGES)):
            let_go(one / LOCK)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status == TERMINATED:
        os.kill(os.getpid(), signal.SIGTERM)  # what it does here is not ours to say
    if status:
        raise TrainingFailed(f"{folder}: the run ended with status {status}; what was wrong is said above.")


@contextlib.contextmanager
def _undrawn() -> Iterator[None]:
    """The caller's random numbers go on as if nothing had been drawn."""
    import torch

    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        yield


def _loaded(folder: Path) -> Trained:
    from encoders import load_encoder
    from files.results import read_results

    encoder = load_encoder(folder) if (folder / "encoder").is_dir() else None
    return Trained(encoder, folder, read_results(folder / "results.json"))


@contextlib.contextmanager
def _configs() -> Iterator[None]:
    """Hydra composes from ``configs/``; afterwards from what it did before."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield


@contextlib.contextmanager
def _initialised(config: DictConfig) -> Iterator[DictConfig]:
    """A config as a command's body gets it, with Hydra's part where Hydra has it."""
    own = HydraConfig.instance()
    before = own.cfg
    with _configs():
        own.set_config(config)
        try:
            cfg = copy.deepcopy(config)
            with read_write(cfg), open_dict(cfg):
                del cfg["hydra"]
            yield cfg
        finally:
            own.cfg = before


@contextlib.contextmanager
def _as_exceptions(words: Sequence[str] | DictConfig) -> Iterator[None]:
    """What a command line would say before it ends is raised."""
    if isinstance(words, DictConfig):
        words = list(words.hydra.overrides.task)
    try:
        yield
    except (InputError, NotWritten, TrainingFailed):
        raise
    except Exception as error:
        if (found := judged(error, hydra=True, config="train", words=words)) is None:
            raise
        status, sentence = found
        raise (InputError if status == 2 else NotWritten)(" ".join(sentence.split())) from error
