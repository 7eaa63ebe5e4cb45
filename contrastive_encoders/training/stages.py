"""The stages of a run: each is a run that starts from the best weights of the one before it."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hydra.errors import HydraException

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import UNSET
from contrastive_encoders.datamodules.data_configs import KINDS as DATA
from contrastive_encoders.encoders.model_configs import KINDS as MODELS
from contrastive_encoders.io.manifest import Damaged, is_finished, read_record
from contrastive_encoders.io.output_directory import FINISHED
from contrastive_encoders.runtime.exit_codes import input_error
from contrastive_encoders.runtime.process_group import launched
from contrastive_encoders.training.compose import no_stage
from contrastive_encoders.training.identity import following, identity_in, identity_of
from contrastive_encoders.training.run_config import RunConfig

log = logging.getLogger(__name__)

TRIPLETS = "triplets"  # folder of those that are written for a domain


class Stage(NamedTuple):
    """``name`` is empty for a run without stages. ``own`` stands for its keys, ``identity`` also for those before."""

    name: str
    run: RunConfig
    own: str
    identity: str

    @property
    def folder(self) -> Path:
        return Path(str(self.run.output_dir))

    @property
    def is_finished(self) -> bool:
        return is_finished(self.folder)

    def begun_from(self, before: str) -> "Stage":
        """This stage, as one that begins from a run of that identity, or, where that is empty, from the backbone."""
        return self._replace(identity=following(before, self.name, self.own))

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """What is wrong in here is reported with the stage's name."""
        try:
            yield
        except (InputError, HydraException) as error:  # the latter around what a constructor raised
            cause = input_error(error)
            if cause is None or not self.name:
                raise
            raise InputError(f"stage {self.name} (its keys are stages.{self.name}.KEY): {cause}") from error


def stages_of(run: RunConfig) -> list[Stage]:
    """The stages in their order, or the run itself as the only one; each with its output folder.

    A stage lies in the folder of the whole, which alone is thrown away by ``overwrite``.
    """
    if not run.stages:
        own = identity_of(run)
        return [Stage("", replace(run, output_dir=run.output_dir or _folder([run], [], own)), own, own)]
    stages = list[Stage]()
    for name, one in run.stages.items():
        one = _with_triplets(one, run) if name == "domain" else one
        own = identity_of(one)
        stages.append(Stage(name, one, own, following(stages[-1].identity if stages else "", name, own)))
    folder = Path(run.output_dir or _folder([one.run for one in stages], list(run.stages), stages[-1].identity))
    alone = run.overwrite and run.only_stage is not None
    return [
        stage._replace(
            run=replace(stage.run, output_dir=str(folder / f"stage-{stage.name}"), overwrite=alone, next_steps=None)
        )
        for stage in stages
    ]


def folder_of(run: RunConfig, stages: Sequence[Stage]) -> Path:
    """The output folder of a whole run."""
    return stages[0].folder.parent if run.stages else stages[0].folder


def _folder(runs: Sequence[RunConfig], names: Sequence[str], identity: str) -> str:
    """outputs/MODEL-DATA-HASH8, or outputs/MODEL-STAGE-STAGE-HASH8."""
    known = {kind.target: name for kinds in (MODELS, DATA) for name, kind in kinds.items()}
    targets = [one.target for one in (runs[-1].model, runs[-1].data) if one is not None]
    model, *data = [known.get(target, target.rpartition(".")[2].lower()) for target in targets] or ["run"]
    return str(Path("outputs", "-".join([model, *(names or data), identity])))


def _with_triplets(stage: RunConfig, whole: RunConfig) -> RunConfig:
    """The stage ``domain`` reads the triplets that are written for it, unless it is told others."""
    if whole.domain.path is None or getattr(stage.data, "path", None) is not UNSET:
        return stage
    return replace(stage, data=replace(stage.data, path=str(Path(whole.domain.folder).absolute() / TRIPLETS)))


def chosen(stages: Sequence[Stage], only: str | None) -> list[Stage]:
    """All stages, or the one that ``only_stage`` names.

    Raises:
        InputError: there is none of this name.
    """
    if only is None:
        return list(stages)
    if not stages[0].name:
        raise InputError(f"only_stage={only}: this run has no stages. Leave it out, or take experiment=NAME with some.")
    found = [stage for stage in stages if stage.name == only]
    if not found:
        raise InputError(f"only_stage={only}: {no_stage(str(only), [stage.name for stage in stages])}")
    return found


def finished_before(run: RunConfig) -> bool:
    """Whether this very run lies finished in its folder; logs so. It imports no torch, so it takes moments.

    False where more than a look is needed: `training.stage_loop.run_stages` decides then, for all processes.

    Raises:
        InputError: as `chosen`.
    """
    stages = stages_of(run)
    folder = folder_of(run, stages)
    chosen(stages, run.only_stage)
    if run.overwrite or run.resume != "auto" or run.domain.path or run.mirror or launched() or not is_finished(folder):
        return False
    if identity_in(folder) != stages[-1].identity:
        return False
    say_finished(folder)
    return True


def say_finished(folder: Path) -> None:
    log.info(FINISHED, folder)
    with contextlib.suppress(OSError, Damaged):
        if verdict := read_record(folder / "results.json").get("verdict"):
            log.info("%s", verdict["sentence"])
