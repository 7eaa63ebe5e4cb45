"""Resolve a run's config: determine the value of each key of model, data, and trainer, the run's identity (hash of its
settings), and its directory.

This module does not import torch.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException

from contrastive_encoders.core import InputError, is_address, without_secrets
from contrastive_encoders.core.config_schema import NOT_A_KEY, UNSET, as_mapping, check, inherit, unset_keys
from contrastive_encoders.core.errors import input_error
from contrastive_encoders.core.runtime.process_group import launcher_info
from contrastive_encoders.core.shared_texts import overlap_warnings
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS, DocumentDataConfig
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.io.installed_models import expand_user
from contrastive_encoders.io.manifest import (
    MAX_LISTED_FILES,
    CorruptFileError,
    DataFile,
    files_in,
    is_finished,
    read_record,
    sha256_of,
)
from contrastive_encoders.io.output_directory import FINISHED
from contrastive_encoders.training.compose import error_in_stage, unknown_stage
from contrastive_encoders.training.identity import identity_in, identity_of, stage_identity
from contrastive_encoders.training.run_config import RunConfig, Trainer

TRIPLETS = "triplets"  # directory of the triplets that are generated for a domain
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ResolvedRun(RunConfig):
    """Config of a run or a stage in which each key of model, data, and trainer has a value, except those in `missing`.

    `training.prepare` sets values that depend on the data or on the weights: the batch size and the steps for few rows
    in the config; the length of training texts and the prompts in the data module and the encoder.

    Attributes:
        output_dir: the run directory; for a stage, a subdirectory of the run directory.
        stage_name: name of the stage; empty for the run itself.
        own_identity: identity of the keys of this run or stage.
        identity: like `own_identity`, but for a stage it also covers the previous stages.
        all_stages: the stages in their order; empty for a run without stages.
        inherited: dotted names of keys that the user has not set, and that inherit the values of other keys of the run.
        missing: required keys without a value -> their types. `check_run` raises an error if there are any.
    """

    output_dir: str
    stage_name: str = field(default="", metadata=NOT_A_KEY)
    own_identity: str = field(default="", metadata=NOT_A_KEY)
    identity: str = field(default="", metadata=NOT_A_KEY)
    all_stages: tuple["ResolvedRun", ...] = field(default=(), metadata=NOT_A_KEY)
    inherited: frozenset[str] = field(default=frozenset(), metadata=NOT_A_KEY)
    missing: Mapping[str, Any] = field(default_factory=dict, metadata=NOT_A_KEY)

    @property
    def folder(self) -> Path:
        return Path(self.output_dir)

    @property
    def is_finished(self) -> bool:
        return is_finished(self.folder)

    @property
    def trainings(self) -> list["ResolvedRun"]:
        """The stages to train: all stages, or only the stage ``only_stage``. A run without stages contains only
        itself.
        """
        return [one for one in self.all_stages if self.only_stage in (None, one.stage_name)] or [self]

    @property
    def datasets(self) -> dict[str, Any]:
        """Mapping of dotted keys to data configs: ``data``, or ``data.parts.NAME`` for each data source of a
        mixture.
        """
        parts = getattr(self.data, "parts", None)
        return {f"data.parts.{name}": part for name, part in parts.items()} if parts else {"data": self.data}

    @property
    def is_sharded(self) -> bool:
        """Whether the trainer shards the weights."""
        strategy = self.trainer["strategy"]
        return isinstance(strategy, Mapping) and str(strategy.get("_target_", "")).endswith(".ShardedStrategy")

    @property
    def own_arguments(self) -> dict[str, Any]:
        """Arguments of Lightning's trainer that the run's own keys set."""
        one_epoch = -1 if self.max_steps > 0 else 1  # with only a number of steps, as many epochs as they take
        return {
            "devices": self.devices,
            "num_nodes": self.num_nodes,
            "precision": PRECISIONS[self.precision],
            "max_steps": self.max_steps,
            "max_epochs": one_epoch if self.max_epochs is None else self.max_epochs,
            "max_time": self.max_time,
            "log_every_n_steps": self.log_every_n_steps,
            "default_root_dir": self.output_dir,
        }

    @property
    def trainer_arguments(self) -> dict[str, Any]:
        """Arguments of Lightning's trainer: `own_arguments` and the keys of ``trainer``.

        If a launcher (torchrun, srun, or `run_setup.start_processes`) has started the processes, Lightning is given
        their number.
        """
        arguments = {**self.own_arguments, **self.trainer}
        if found := launcher_info():
            arguments["devices"], arguments["num_nodes"] = found.per_node, found.processes // found.per_node
            if arguments["strategy"] == "auto":
                arguments["strategy"] = "ddp"
        return arguments

    @property
    def device(self) -> str | None:
        """Device for other encoders that the run loads, such as a teacher: "cpu" if the run trains on the CPU,
        otherwise None (a GPU if there is one).
        """
        return "cpu" if self.trainer["accelerator"] == "cpu" else None

    def keys(self) -> dict[str, Any]:
        """Return all keys of the run with their values."""
        names = [one.name for one in fields(RunConfig) if one.name != "explicit_keys"]
        return {name: as_mapping(getattr(self, name)) for name in names} | {
            "trainer": as_mapping(self.trainer_arguments)
        }

    def recorded_keys(self) -> dict[str, Any]:
        """Return `keys` as they are written to ``results.json`` and ``.hydra/config.yaml``, with passwords removed from
        URLs.
        """
        keys: dict[str, Any] = without_secrets(self.keys())
        return keys

    def with_values(self, **values: Any) -> "ResolvedRun":
        """Return the run with new values of top-level keys. The keys in `inherited` are updated with them."""
        run = replace(self, **values)
        run = replace(run, model=run.model and inherit(run.model, run, run.inherited, "model"))
        return replace(run, data=run.data and inherit(run.data, run, run.inherited, "data"))

    def starting_from(self, before: str) -> "ResolvedRun":
        """Return a copy of the stage with its identity (settings hash), given ``before``, the identity of the stage
        whose weights this stage starts from. ``before`` is empty if the stage starts from the backbone.
        """
        return replace(self, identity=stage_identity(before, self.stage_name, self.own_identity))

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Context manager that adds the name of the stage to the messages of errors."""
        try:
            yield
        except (InputError, HydraException) as error:  # HydraException: wraps an error of a constructor
            cause = input_error(error)
            if cause is None or not self.stage_name:
                raise
            raise error_in_stage(cause, self.stage_name) from error


def resolve(config: RunConfig) -> ResolvedRun:
    """Determine the value of each key of a run and of its stages, and the identity and the directory of the run.

    Raises:
        InputError: a top-level value has the wrong type, or there is no stage of the name ``only_stage``. The values
            of model, data, and trainer are checked by `checks.check_values`.
    """
    run = _resolved(config)
    stages = list[ResolvedRun]()
    for name, one in config.stages.items():
        stage = _resolved(_with_triplets(one, config) if name == "domain" else one, name)
        stages.append(stage.starting_from(stages[-1].identity if stages else ""))
    if config.only_stage is not None and config.only_stage not in config.stages:
        raise unknown_stage("only_stage", config.only_stage, config.only_stage, list(config.stages))
    last = stages[-1] if stages else run
    folder = config.output_dir or _default_directory(last, list(config.stages))
    overwrite = config.overwrite and config.only_stage is not None
    all_stages = tuple(
        stage.with_values(
            output_dir=str(Path(folder, f"stage-{stage.stage_name}")), overwrite=overwrite, next_steps=None
        )
        for stage in stages
    )
    return replace(run.with_values(output_dir=folder), identity=last.identity, all_stages=all_stages)


def _resolved(config: RunConfig, stage: str = "") -> ResolvedRun:
    """Return the resolved run or stage with its identity. The caller sets ``output_dir``."""
    check(config)
    values = {one.name: getattr(config, one.name) for one in fields(RunConfig)}
    trainer, stages = as_mapping(Trainer()) | dict(config.trainer), as_mapping(config.stages)
    if config.backbone is not None:
        values["backbone"] = expand_user(config.backbone)
    if isinstance(teacher := getattr(config.model, "teacher", None), str):
        values["model"] = replace(config.model, teacher=expand_user(teacher))
    values |= {"output_dir": "", "trainer": trainer, "stages": stages}
    unset = {
        name: key
        for place in ("model", "data")
        if values[place] is not None
        for name, key in unset_keys(values[place], place).items()
    }
    missing = {name: key.type for name, key in unset.items() if not key.inherits_from}
    run = ResolvedRun(**values, stage_name=stage, inherited=frozenset(unset), missing=missing).with_values()
    # with few rows, these two are used as they are if they are set, and fitted to the data otherwise
    kept = sorted({"batch_size", "max_steps"} & set(run.explicit_keys)) if run.few_rows_epochs is not None else []
    identity = identity_of({**run.keys(), "kept_for_few_rows": kept or None})
    return replace(run, own_identity=identity, identity=identity)


def _default_directory(run: ResolvedRun, stages: Sequence[str]) -> str:
    """Return the default run directory: outputs/MODEL-DATA-HASH8, or outputs/MODEL-STAGE-STAGE-HASH8 for a run with
    stages.
    """
    known = {kind.target: name for kinds in (MODEL_CONFIGS, DATA_CONFIGS) for name, kind in kinds.items()}
    targets = [one.target for one in (run.model, run.data) if one is not None]
    model, *data = [known.get(target, target.rpartition(".")[2].lower()) for target in targets] or ["run"]
    return str(Path("outputs", "-".join([model, *(stages or data), run.identity])))


def _with_triplets(stage: RunConfig, run: RunConfig) -> RunConfig:
    """Return the stage ``domain`` with the path of the generated triplets as its ``data.path``, unless this key is
    set.
    """
    if run.domain.path is None or getattr(stage.data, "path", None) is not UNSET:
        return stage
    return replace(stage, data=replace(stage.data, path=str(Path(run.domain.folder).absolute() / TRIPLETS)))


def finished_before(run: ResolvedRun) -> bool:
    """Return whether this run has already finished, that is, whether its directory contains its results, and log it if
    so. This is fast, since torch is not imported.

    It returns False if more checks are needed; `training.stage_loop.run_stages` then decides for all processes.
    """
    if (
        run.overwrite
        or run.resume != "auto"
        or run.domain.path
        or run.remote_output_dir
        or launcher_info()
        or not run.is_finished
    ):
        return False
    if identity_in(run.folder) != run.identity:
        return False
    log_already_finished(run)
    return True


def log_already_finished(run: ResolvedRun) -> None:
    """Log that a run is finished, its verdict, and its warnings.

    Raises:
        InputError: a data file of the run has changed since, or files were added or removed.
    """
    path, results = run.folder / "results.json", dict[str, Any]()
    with contextlib.suppress(OSError, CorruptFileError):
        results = read_record(path)
        _check_unchanged(run, list(files_in(results.get("data"))), path.stat().st_mtime)
    log.info(FINISHED, run.folder)
    if verdict := results.get("verdict"):
        log.info("%s", verdict["sentence"])
    for warning in overlap_warnings(results.get("overlap", {})):
        log.warning("%s", warning)


def _check_unchanged(run: ResolvedRun, files: Sequence[DataFile], since: float) -> None:
    """Check that ``data.path`` still contains the files of a manifest, if it contains any files. Moved files are
    recognized by their contents. A manifest that does not list all files is not checked.
    """
    if not 0 < len(files) < MAX_LISTED_FILES:
        return
    recorded, contents = {file.path.resolve(): file for file in files}, {file.sha256 for file in files}
    for place, data in (item for one in run.trainings for item in one.datasets.items()):
        paths = getattr(data, "path", None) or ()
        for given in [paths] if isinstance(paths, str) else paths:
            now = _local_files(given, documents=isinstance(data, DocumentDataConfig))
            changed = list[str]()
            for file in now:
                known = recorded.get(file.resolve())
                if _has_changed(known, since) if known else sha256_of(file) not in contents:
                    changed.append(str(file))
            folders = {file.resolve().parent for file in now}
            removed = [str(file) for file in recorded if file.parent in folders and not file.exists()]
            if changed or removed:
                raise InputError(
                    key=f"{place}.path",
                    value=given,
                    expected=f"unchanged files, since the run in {run.folder} is finished, but "
                    f"{(changed or removed)[0]} {'has changed or is new' if changed else 'is missing'}",
                    hint="Set overwrite=true to train again, or another output_dir to keep that run.",
                )


def _local_files(path: str, *, documents: bool) -> list[Path]:
    """Return the local files at a path; no files if they are not there, or are at an address."""
    if is_address(path):
        return []
    try:
        return [file.path for file in list_files(path, documents="all" if documents else "none")]
    except InputError:
        return []


def _has_changed(file: DataFile, since: float) -> bool:
    """Return whether a file has another content than when its manifest was written. A file that is older than ``since``
    and has the same size is not read.
    """
    now = file.path.stat()
    return now.st_size != file.bytes or (now.st_mtime > since and sha256_of(file.path) != file.sha256)
