"""The Python API: ``train([("question", "answer"), ...], model="simcse").encoder``.

Rows in memory are saved to a file in the cache that is named by a hash of its content. The file is not in the run
directory, whose name depends on the training data. So the same call resumes its run, or loads it if it is finished.
"""

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_encoders.core import InputError, Results, Verdict
from contrastive_encoders.core.config_schema import changed_fields, plain_value
from contrastive_encoders.core.runtime.exit_codes import as_exceptions
from contrastive_encoders.core.runtime.log_output import logs_shown
from contrastive_encoders.core.runtime.process_group import launcher_info
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS, DataConfig, MixtureDataConfig
from contrastive_encoders.encoders.model_configs import TrainableConfig
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.io.cached_rows import cache_folder
from contrastive_encoders.io.output_directory import LOCK, release_lock
from contrastive_encoders.training.compose import check_overrides, compose
from contrastive_encoders.training.composition.config_errors import explain_errors
from contrastive_encoders.training.composition.config_keys import COMMAND_GROUPS
from contrastive_encoders.training.composition.config_store import dotted
from contrastive_encoders.training.composition.override_checks import check_override_syntax
from contrastive_encoders.training.in_memory_rows import ACCEPTED, CachedRows, overrides_for_rows
from contrastive_encoders.training.resolve import finished_before, resolve
from contrastive_encoders.training.run_config import RunConfig

if TYPE_CHECKING:  # torch takes seconds to import
    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder

# Keys whose value is a mapping with arbitrary names
FREE_FORM_KEYS = re.compile(
    r"data\.(parts|prompts|weights)|callbacks|evaluation\.custom_tasks|prompts|stages|.*_options"
)

CONFIGS: Mapping[str, Mapping[str, type[Any]]] = {"model": MODEL_CONFIGS, "data": DATA_CONFIGS}

_run_lock = threading.Lock()  # Hydra supports one config per process


@dataclass(frozen=True)
class TrainResult:
    """Result of `train`: the encoder, the run directory, and the scores.

    Attributes:
        encoder: the trained encoder; None if the run trained a generator or a reranker.
        directory: directory of the run, with ``encoder/``, ``results.json``, and the checkpoints.
        results: content of ``results.json``.

    Example:
        >>> from contrastive_encoders import train
        >>> rows = [(f"What is thing {n}?", f"Thing {n} is a boat.") for n in range(16)]
        >>> result = train(rows, backbone="tiny", batch_size=8, max_steps=2, quiet=True)
        >>> sorted(path.name for path in result.directory.iterdir() if path.name in ("encoder", "results.json"))
        ['encoder', 'results.json']
        >>> result.scores, result.verdict  # no tasks were scored
        ({}, None)
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
        """Verdict that compares the scores before and after training; None if the encoder was not scored before
        training.
        """
        return self.results.get("verdict")


def run(config: RunConfig) -> Results:
    """Train a run in this process, or resume an interrupted run. If the run is finished, its results are only read.

    Args:
        config: configuration of the run. Fields of its model and data that are not set, such as the seed, the batch
            size, or the backbone, are taken from the run.

    Returns:
        The content of ``results.json``: ``scores``, ``cost``, ``verdict``, and more.

    Raises:
        InputError: the config or the data are invalid.
        OutputError: the disk is full or cannot be written to.
        TrainingError: training failed, for example because the loss is not finite.
        KeyboardInterrupt, SystemExit: the process got SIGINT or SIGTERM; the state is saved.

    Example:
        >>> from contrastive_encoders import QuestionDataConfig, RunConfig, SimCSEConfig, run
        >>> config = RunConfig(
        ...     model=SimCSEConfig(mlp=False),
        ...     data=QuestionDataConfig(path="faq.csv"),
        ...     backbone="tiny",
        ...     batch_size=16,
        ...     max_steps=2,
        ...     quiet=True,
        ... )
        >>> results = run(config)
        >>> results["cost"]["steps"]
        2
    """
    _, results = _train(_checked(config))
    return results


def train(
    rows: Iterable[Any] | None = None,
    *,
    model: str | TrainableConfig | Mapping[str, Any] | None = None,
    data: str | DataConfig | MixtureDataConfig | Mapping[str, Any] | Iterable[Any] | None = None,
    overrides: Sequence[str] = (),
    **keys: Any,
) -> TrainResult:
    """Train an encoder in this process, or resume an interrupted call. If the run is finished, it is only loaded.

    Args:
        rows: texts, tuples of texts (anchor, positive, negatives), pairs with a score from 0 to 1, or mappings from
            column names to these; as a list, a ``datasets.Dataset``, or a pandas DataFrame. Rows with an empty cell
            (``None``, NaN, whitespace) are left out with a warning. Columns with known names are used by name, others
            in their order; the name of a third text column must mark it as a negative.
        model: a config, ``SimCSEConfig(lr=2e-5)``, or its name, ``"simcse"``. The default depends on the first row.
        data: a config, ``TripletDataConfig(path="faq.csv")``, or its name, ``"triplets"``. The default depends on the
            first row. You can also pass rows here.
        overrides: overrides as on the command line, ``["model.lr=2e-5"]``.
        **keys: keys of the command line, with two underscores instead of a dot, ``model__lr=2e-5``, or a mapping for
            several, ``evaluation={"every_n_steps": 20}``. They take precedence over fields of a config.

    Returns:
        The trained encoder, the directory of the run, and its scores.

    Raises:
        InputError: a key, a value, or a row is invalid; see ``key``, ``value``, and ``expected`` of the error.
        OutputError, TrainingError, KeyboardInterrupt, SystemExit: see `run`.

    Example:
        >>> from contrastive_encoders import SimCSEConfig, train
        >>> rows = [(f"What is thing {n}?", f"Thing {n} is a boat.") for n in range(16)]
        >>> result = train(rows, model=SimCSEConfig(lr=2e-5), backbone="tiny", batch_size=8, max_steps=2, quiet=True)
        >>> result.encoder.encode(["a boat", "a thing"]).shape
        (2, 256)
    """
    check_overrides(overrides)
    if data is not None and not isinstance(data, str | Mapping) and not is_dataclass(data):
        if rows is not None:
            raise InputError(
                key="data",
                value=type(data).__name__,
                expected="the name of a choice or a config object, because rows are passed separately",
            )
        rows, data = data, None
    keys |= {name: value for name, value in {"model": model, "data": data}.items() if value is not None}
    settings_from_overrides = {
        override.lstrip("+").partition("=")[0]: override.partition("=")[2] for override in overrides
    }
    chosen, values = _chosen(keys, experiment=keys.get("experiment", settings_from_overrides.get("experiment")))
    cached: CachedRows | None = None
    try:
        with as_exceptions(explain_errors("train")), logs_shown(quiet=bool(keys.get("quiet"))):
            check_override_syntax("train", overrides)
            if rows is not None:
                settings = {**chosen, **values, **settings_from_overrides}
                if "data.path" in settings:
                    raise InputError(
                        key="data.path",
                        value=settings["data.path"],
                        expected="null if rows are passed",
                        hint="Pass either rows or a path.",
                    )
                folder = cache_folder(values.get("data.cache_dir"))
                groups, keys_of_file, cached = overrides_for_rows(rows, settings, folder)
                chosen, values = {**groups, **chosen}, {**keys_of_file, **values}
            config = compose(overrides, chosen, {"devices": 1, **values})
            if rows is None and config.model is None and config.data is None and not config.stages:
                raise InputError(key="rows", value=None, expected=ACCEPTED)
        folder, results = _train(config)
    except InputError as error:
        if cached is None:
            raise
        raise cached.error(error) from error
    from contrastive_encoders.encoders.loading.load import load_encoder

    with _preserve_rng_state():
        encoder = load_encoder(folder) if (folder / "encoder").is_dir() else None
    return TrainResult(encoder, folder, results)


def _chosen(keys: Mapping[str, Any], experiment: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Split the keyword arguments of `train` into a mapping of config groups to choices, and a mapping of dotted keys
    to plain values.

    A mapping is split into several keys, unless its names are arbitrary. A config is split into the choice of its
    class and the fields that differ from the defaults; keys that are set explicitly take precedence.

    Raises:
        InputError: a config belongs to another group, or is combined with an experiment.
    """
    chosen: dict[str, str] = {}
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if name in CONFIGS and not isinstance(value, str | Mapping):
            choice, changed = _choice_of(name, value)
            if experiment is not None:
                raise _config_with_experiment(name, value, experiment, dotted(changed, f"{name}."))
            chosen[name], value = choice, changed
        if name in COMMAND_GROUPS["train"] and isinstance(value, str):
            chosen[name] = value
        elif (isinstance(value, Mapping) or _is_config(value)) and not FREE_FORM_KEYS.fullmatch(name):
            for key, entry in (value if isinstance(value, Mapping) else changed_fields(value)).items():
                put(f"{name}.{key}", entry)
        else:
            found[name] = plain_value(_parts(value) if name == "data.parts" else value)

    for key, value in sorted(keys.items(), key=lambda item: item[0] not in CONFIGS):
        put(key.replace("__", "."), value)
    return chosen, found


def _checked(run: Any, key: str = "run") -> RunConfig:
    """Check a run that was created in Python, and return it with its paths converted to strings.

    Raises:
        InputError: the value is not a run, its model or data is not a config, or a stage is not a run.
    """
    if not isinstance(run, RunConfig):
        hint = "Create a RunConfig from overrides: compose(OVERRIDES)." if isinstance(run, str | list | tuple) else None
        raise InputError(key=key, value=type(run).__name__, expected="a RunConfig", hint=hint)
    for group, kinds in CONFIGS.items():
        config = getattr(run, group)
        if config is not None and not _is_config(config):
            names = ", ".join(sorted({kind.__name__ for kind in kinds.values()}))
            shown = config if isinstance(config, str) else _name_of(config)
            raise InputError(key=group, value=shown, expected=f"a config object such as {names}")
    if not isinstance(run.stages, Mapping):
        raise InputError(
            key="stages", value=type(run.stages).__name__, expected="a mapping of stage names to RunConfig objects"
        )
    values = {one.name: getattr(run, one.name) for one in fields(run)}
    paths: dict[str, Any] = {name: str(value) for name, value in values.items() if isinstance(value, Path)}
    stages = {name: _checked(stage, f"stages.{name}") for name, stage in run.stages.items()}
    return replace(run, **paths, stages=stages)


def _choice_of(group: str, config: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of the choice in the config group ``group`` whose config class is that of ``config``, and the
    fields of ``config`` that differ from their defaults.

    Raises:
        InputError: the value is not a config of this group.
    """
    name = next((name for name, kind in CONFIGS[group].items() if type(config) is kind), None)
    if name is not None:
        return name, changed_fields(config)
    kinds = sorted({kind.__name__ for kind in CONFIGS[group].values()})
    hint = "docs/custom-objective.md shows how to train with a custom class."
    if config in CONFIGS[group].values():
        hint = f"Pass a value of the class: {group}={config.__name__}()."
    expected = f"the name of a choice or one of {', '.join(kinds)}"
    raise InputError(key=group, value=_name_of(config), expected=expected, hint=hint)


def _parts(parts: Any) -> Any:
    """Return the data sources of a mixture, with each config object replaced by a mapping of its choice and its changed
    fields, such as ``{"data": "qa", "path": FILE}``.
    """
    if not isinstance(parts, Mapping):
        return parts
    found = {}
    for name, part in parts.items():
        choice, changed = _choice_of("data", part) if _is_config(part) else (None, part)
        found[name] = changed if choice is None else {"data": choice, **changed}
    return found


def _config_with_experiment(group: str, config: Any, experiment: Any, changed: Mapping[str, Any]) -> InputError:
    """Return the error for a config object that is combined with an experiment. The object's default values would
    override settings of the experiment.
    """
    keys = ", ".join(f"{key.replace('.', '__')}={plain_value(value)!r}" for key, value in changed.items())
    return InputError(
        key=group,
        value=type(config).__name__,
        expected=f"single keys with experiment={experiment}, since a config object would replace all keys of the "
        "experiment",
        hint=f"Set {keys}." if keys else f"Remove {group}.",
    )


def _name_of(config: Any) -> str:
    return config.__name__ if isinstance(config, type) else type(config).__name__


def _is_config(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _train(config: RunConfig) -> tuple[Path, Results]:
    if launcher_info() or str(config.devices) not in ("1", "auto") or config.num_nodes != 1:
        raise InputError(
            key="devices",
            value=config.devices,
            expected="1 or auto on one node if train is called from Python, since only the command train "
            "starts several processes",
        )
    if not _run_lock.acquire(blocking=False):
        raise InputError("Another run is in progress in this process. Wait until it ends.")
    try:
        run = resolve(replace(config, devices=1))  # of "auto" Lightning would start a process for each GPU
        with as_exceptions(explain_errors("train", composing=True)), logs_shown(quiet=run.quiet):
            if not finished_before(run):
                try:
                    with _preserve_rng_state():
                        from contrastive_encoders.training.stage_loop import (
                            run_stages,  # with torch and Lightning, which take seconds
                        )

                        run_stages(run)
                finally:
                    for one in (run, *run.all_stages):
                        release_lock(one.folder / LOCK)
        from contrastive_encoders.io.results import read_results

        return run.folder, read_results(run.folder / "results.json")
    finally:
        _run_lock.release()


@contextlib.contextmanager
def _preserve_rng_state() -> Iterator[None]:
    """Context manager that restores the state of torch's random number generators on exit."""
    import torch

    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        yield
