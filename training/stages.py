"""The stages of a run. Each is an ordinary run, composed from the same words as the whole and words of its own.

What an experiment says under ``stages.NAME`` reads like a command line (``data: qa`` chooses, ``data.fraction: 0.5``
sets). Its words stand before those of the command line, and ``stages.NAME.KEY=VALUE`` of the command line behind them:
who says ``batch_size=8`` means all stages, and ``stages.nli.batch_size=8`` means one.
"""

import contextlib
import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from command.statuses import explained, identity, input_error
from contracts import InputError

STAGE_WORD = re.compile(r"(?P<sign>\+{0,2})stages\.(?P<name>[^.=@/]+)\.(?P<rest>.+)", flags=re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9_-]+")
OF_THE_WHOLE = (  # no stage has its own: where the run lies, and the processes, which live through all of it
    "output_dir", "resume", "overwrite", "only_stage", "stages", "experiment", "devices", "num_nodes", "trainer",
    "trainer.devices", "trainer.num_nodes", "trainer.strategy", "trainer.accelerator", "tiny",
)  # fmt: skip


class Stage(NamedTuple):
    """``name`` is empty for a run without stages. ``own`` stands for its config, ``identity`` also for those before."""

    name: str
    cfg: DictConfig
    words: list[str]  # that compose it
    own: str
    identity: str

    @property
    def folder(self) -> Path:
        return Path(self.cfg.output_dir)

    @property
    def is_finished(self) -> bool:
        return (self.folder / "results.json").is_file()

    def begun_from(self, identity_before: str) -> "Stage":
        """This stage, as one that begins from a run of that identity, or from the backbone where it is empty."""
        return self._replace(identity=chained(identity_before, self.name, self.own))

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What is wrong in here is said with the stage's name."""
        try:
            yield
        except (InputError, HydraException) as error:  # the latter around what a constructor raised
            cause = input_error(error)
            if cause is None or not self.name:
                raise
            raise InputError(f"stage {self.name} (its keys are stages.{self.name}.KEY): {cause}") from error


def chained(before: str, name: str, own: str) -> str:
    return hashlib.sha256(f"{before} {name} {own}".encode()).hexdigest()[:8]


def forced(words: Sequence[str]) -> list[str]:
    """Command line words as Hydra takes them: keys of a stage need not stand in the experiment, and are judged here."""
    return [f"++{word}" if STAGE_WORD.fullmatch(word) and not word.startswith("+") else word for word in words]


def stages_of(cfg: DictConfig, words: Sequence[str]) -> list[Stage]:
    """The stages in their order, or the run itself as the only one.

    ``words`` are those of the command line that composed ``cfg``; Hydra must be initialised.

    Raises:
        InputError: a stage or a key of one does not exist, or is not for a stage to choose.
    """
    theirs = [match for word in words if (match := STAGE_WORD.fullmatch(word))]
    if not theirs and not cfg.stages:
        own = identity(cfg)
        return [Stage("", cfg, list(words), own, own)]
    common = [word for word in words if not STAGE_WORD.fullmatch(word)]
    written = _written(common)
    names = _names(written, theirs)
    stages = list[Stage]()
    for name in names:
        mine = [match for match in theirs if match["name"] == name]
        signs = [match["sign"] if match["sign"] == "+" and name in written else "" for match in mine]
        said = [f"{sign}{match['rest']}" for sign, match in zip(signs, mine, strict=True)]
        before = list(as_words(written.get(name) or {}, name))
        stages.append(_stage(name, before, common, said, stages[-1] if stages else None))
    return stages


def run_name(stages: Sequence[Stage], choices: Mapping[str, Any]) -> str:
    """MODEL-DATA-HASH8, or MODEL-STAGE-STAGE-HASH8."""
    data = "-".join(stage.name for stage in stages) if stages[0].name else choices.get("data")
    return f"{choices.get('model')}-{data}-{stages[-1].identity}"


def chosen(stages: Sequence[Stage], only: str | None) -> list[Stage]:
    """All stages, or the one that ``only_stage`` names."""
    if only is None:
        return list(stages)
    if not stages[0].name:
        raise InputError(f"only_stage={only}: this run has no stages. Leave it out, or take experiment=NAME with some.")
    found = [stage for stage in stages if stage.name == only]
    if not found:
        raise InputError(f"only_stage={only}: {_no_stage(str(only), [stage.name for stage in stages])}")
    return found


def lay_out(cfg: DictConfig, stages: Sequence[Stage]) -> None:
    """A folder for each stage in that of the whole, which alone is thrown away by ``overwrite``."""
    for stage in stages:
        stage.cfg.output_dir = str(Path(cfg.output_dir) / f"stage-{stage.name}")
        stage.cfg.overwrite = cfg.overwrite and cfg.only_stage is not None
        stage.cfg.next_steps = None


def _written(common: Sequence[str]) -> dict[str, Any]:
    """What the configs alone say about stages."""
    cfg = compose("train", list(common))
    found = OmegaConf.to_container(cfg)
    stages = found["stages"] if isinstance(found, dict) else None
    if not isinstance(stages, dict):
        raise InputError(f"stages={stages!r}: wanted a mapping, of the name of each stage to its keys.")
    for name, keys in stages.items():
        if not NAME.fullmatch(str(name)) or not isinstance(keys, dict | None):
            raise InputError(f"stages.{name}={keys!r}: wanted a name of letters, digits, - and _, and its keys.")
    return {str(name): keys for name, keys in stages.items()}


def _names(written: Mapping[str, Any], theirs: Sequence[re.Match[str]]) -> list[str]:
    added = dict.fromkeys(match["name"] for match in theirs if match["sign"] == "+" and match["name"] not in written)
    names = [*written, *added]
    for match in theirs:
        if match["name"] not in names:
            raise InputError(f"{match.group().lstrip('+')}: {_no_stage(match['name'], names)}")
    return names


def _no_stage(name: str, names: Sequence[str]) -> str:
    if not names:
        return f"this run has no stages. +stages.{name}.KEY=VALUE makes one; experiment=gense has some."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    nearest = f" The nearest is {near[0]}." if near else ""
    return f"there is no stage {name!r}; there are {', '.join(names)}.{nearest} +stages.{name}.KEY=VALUE makes one."


def _stage(name: str, before: list[str], common: list[str], said: list[str], previous: Stage | None) -> Stage:
    for word in [*before, *said]:
        key = word.lstrip("+~").partition("=")[0]
        if key == "backbone":
            raise InputError(
                f"stages.{name}.backbone: a stage begins from the one before it. Say backbone=... for the first, or "
                f"for a stage that runs alone: only_stage={name} backbone=..."
            )
        if key in OF_THE_WHOLE or key.split(".")[0] in ("hydra", "tiny"):
            raise InputError(f"stages.{name}.{key}: this is the same for all stages. Say {key}=... instead.")
    words = [*before, *common, *said]
    try:
        cfg = compose("train", words)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"stages.{name}: {explained(error, 'train', words)}") from error
    cfg.stages, cfg.only_stage = {}, None
    own = identity(cfg)
    return Stage(name, cfg, words, own, chained(previous.identity if previous else "", name, own))


def as_words(keys: Mapping[str, Any], name: str, prefix: str = "") -> Iterator[str]:
    """``{data: qa, model: {temperature: 0.01}}`` -> ``data='qa'``, ``model.temperature=0.01``."""
    for key, value in keys.items():
        if isinstance(value, dict) and value and "_target_" not in value:
            yield from as_words(value, name, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={as_value(value)}"


def as_value(value: Any) -> str:
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_value(entry)}" for key, entry in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _run_folder(*, _root_: DictConfig) -> str:
    hydra = HydraConfig.get() if HydraConfig.initialized() else _root_.hydra
    return f"outputs/{run_name(stages_of(_root_, list(hydra.overrides.task)), hydra.runtime.choices)}"


OmegaConf.register_new_resolver("run_folder", _run_folder, replace=True)
