"""The stages of a run. Each is an ordinary run, composed from the same words as the whole and words of its own.

What an experiment says under ``stages.NAME`` reads like a command line (``data: qa`` chooses, ``data.fraction: 0.5``
sets). Its words stand before those of the command line, and ``stages.NAME.KEY=VALUE`` of the command line behind them:
who says ``batch_size=8`` means all stages, and ``stages.nli.batch_size=8`` means one.
"""

import contextlib
import logging
import os
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

from command.processes import launched
from command.statuses import explained, input_error
from contracts import InputError, check_local_output
from contracts.settings import nearest
from files.manifest import Damaged, is_finished, read_record
from training.identity import following, identity_in, identity_of

log = logging.getLogger("train")

STAGE_WORD = re.compile(r"(?P<sign>\+{0,2})stages\.(?P<name>[^.=@/]+)\.(?P<rest>.+)", flags=re.DOTALL)
PART_WORD = re.compile(r"\+{0,2}data\.parts\.(?P<name>[^.=@/]+)\.data=(?P<kind>.*)", flags=re.DOTALL)
QUOTES = "'\""
NAME = re.compile(r"[A-Za-z0-9_-]+")
OF_THE_WHOLE = (  # no stage has its own: where the run lies, and the processes, which live through all of it
    "output_dir",
    "resume",
    "overwrite",
    "only_stage",
    "stages",
    "experiment",
    "devices",
    "num_nodes",
    "trainer",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.accelerator",
    "tiny",
)
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


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


def forced(words: Sequence[str]) -> list[str]:
    """Command line words as Hydra takes them: keys of a stage need not stand in the experiment, and are judged here.

    ``data.parts.NAME.data=KIND`` puts the config of that kind of data in the place of a part; weights of parts are not
    known before.
    """
    return [_forced(word) for word in words]


def _forced(word: str) -> str:
    if STAGE_WORD.fullmatch(word):
        return word if word.startswith("+") else f"++{word}"
    if part := PART_WORD.fullmatch(word):
        return f"+data@data.parts.{part['name']}={part['kind'].strip(QUOTES)}"
    return f"++{word}" if word.startswith("data.weights.") else word


def stages_of(cfg: DictConfig, words: Sequence[str]) -> list[Stage]:
    """The stages in their order, or the run itself as the only one.

    ``words`` are those of the command line that composed ``cfg``; Hydra must be initialised.

    Raises:
        InputError: a stage or a key of one does not exist, or is not for a stage to choose.
    """
    for_stages = [match for word in words if (match := STAGE_WORD.fullmatch(word))]
    if not for_stages and not cfg.stages:
        identity = identity_of(cfg)
        return [Stage("", cfg, list(words), identity, identity)]
    for_all = [word for word in words if not STAGE_WORD.fullmatch(word)]
    written = _stages_in_configs(for_all)
    stages = list[Stage]()
    for name in _stage_names(written, for_stages):
        behind = [
            f"{'+' if match['sign'] == '+' and name in written else ''}{match['rest']}"
            for match in for_stages
            if match["name"] == name
        ]
        stages.append(_composed(name, list(as_words(written.get(name) or {})), for_all, behind, stages))
    return stages


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


def finished_before(cfg: DictConfig) -> bool:
    """Whether this very run lies finished in its folder; says so. Answered without torch, so within moments.

    False where more than a look is needed: `run` decides then, of several processes for all of them.

    Raises:
        InputError: as `stages_of` and `chosen`.
    """
    folder = Path(cfg.output_dir)
    if cfg.overwrite or cfg.resume != "auto" or cfg.get("domain") or launched() or not is_finished(folder):
        return False
    stages = stages_of(cfg, list(HydraConfig.get().overrides.task))
    chosen(stages, cfg.only_stage)
    if identity_in(folder) != stages[-1].identity:
        return False
    say_finished(folder)
    return True


def say_finished(folder: Path) -> None:
    log.info("%s is finished: results.json is there. overwrite=true trains it again.", folder)
    with contextlib.suppress(OSError, Damaged):
        if verdict := read_record(folder / "results.json").get("verdict"):
            log.info("%s", verdict["sentence"])


def lay_out(cfg: DictConfig, stages: Sequence[Stage]) -> None:
    """A folder for each stage in that of the whole, which alone is thrown away by ``overwrite``."""
    for stage in stages:
        stage.cfg.output_dir = str(Path(cfg.output_dir) / f"stage-{stage.name}")
        stage.cfg.overwrite = cfg.overwrite and cfg.only_stage is not None
        stage.cfg.next_steps = None


def _stages_in_configs(for_all: Sequence[str]) -> dict[str, Any]:
    """What the configs alone say about stages."""
    found: Any = OmegaConf.to_container(compose("train", list(for_all)))
    stages = found["stages"]
    if not isinstance(stages, dict):
        raise InputError(f"stages={stages!r}: wanted a mapping, of the name of each stage to its keys.")
    for name, keys in stages.items():
        if not NAME.fullmatch(str(name)) or not isinstance(keys, dict | None):
            raise InputError(f"stages.{name}={keys!r}: wanted a name of letters, digits, - and _, and its keys.")
    return {str(name): keys for name, keys in stages.items()}


def _stage_names(written: Mapping[str, Any], for_stages: Sequence[re.Match[str]]) -> list[str]:
    names = list(dict.fromkeys([*written, *(match["name"] for match in for_stages if match["sign"] == "+")]))
    for match in for_stages:
        if match["name"] not in names:
            raise InputError(f"{match.group().lstrip('+')}: {_no_stage(match['name'], names)}")
    return names


def _no_stage(name: str, names: Sequence[str]) -> str:
    if not names:
        return f"this run has no stages. +stages.{name}.KEY=VALUE makes one; experiment=gense has some."
    near = nearest(name, names, cutoff=0.4)
    advice = f" The nearest is {near}." if near else ""
    return f"there is no stage {name!r}; there are {', '.join(names)}.{advice} +stages.{name}.KEY=VALUE makes one."


def _composed(name: str, first: list[str], for_all: list[str], behind: list[str], before: Sequence[Stage]) -> Stage:
    for word in [*first, *behind]:
        key = word.lstrip("+~").partition("=")[0]
        if key == "backbone":
            raise InputError(
                f"stages.{name}.backbone: a stage begins from the one before it. Say backbone=... for the first, or "
                f"for a stage that runs alone: only_stage={name} backbone=..."
            )
        if key in OF_THE_WHOLE or key.split(".")[0] in ("hydra", "tiny"):
            raise InputError(f"stages.{name}.{key}: this is the same for all stages. Say {key}=... instead.")
    words = forced([*first, *for_all, *behind])
    try:
        cfg = compose("train", words)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"stages.{name}: {explained(error, 'train', words)}") from error
    cfg.stages, cfg.only_stage = {}, None
    own = identity_of(cfg)
    return Stage(name, cfg, words, own, following(before[-1].identity if before else "", name, own))


def as_words(keys: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """``{data: qa, model: {temperature: 0.01}}`` -> ``data='qa'``, ``model.temperature=0.01``."""
    for key, value in keys.items():
        if isinstance(value, dict) and value and "_target_" not in value:
            yield from as_words(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={as_value(value)}"


def as_value(value: Any) -> str:
    """A value as it stands on a command line."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_value(entry)}" for key, entry in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# ------------------------------------------------------------------- what configs/train.yaml computes


def _run_folder(*, _root_: DictConfig) -> str:
    """outputs/MODEL-DATA-HASH8, or outputs/MODEL-STAGE-STAGE-HASH8."""
    hydra = HydraConfig.get() if HydraConfig.initialized() else _root_.hydra
    stages, choices = stages_of(_root_, list(hydra.overrides.task)), hydra.runtime.choices
    data = "-".join(stage.name for stage in stages) if stages[0].name else choices.get("data")
    return str(Path("outputs", f"{choices.get('model')}-{data}-{stages[-1].identity}"))


def _lightning_precision(name: str) -> str:
    if name not in PRECISIONS:
        raise InputError(f"precision={name} is unknown; choose {', '.join(PRECISIONS)}.")
    return PRECISIONS[name]


def _epoch_limit(max_epochs: int | None, max_steps: int) -> int:
    """One epoch unless told otherwise; as many as the steps take when only those are given."""
    if max_epochs is not None:
        return max_epochs
    return -1 if isinstance(max_steps, int) and max_steps > 0 else 1


def _usable(folder: str) -> str:
    """Hydra makes this folder before anybody could say in words why that cannot be done."""
    check_local_output("output_dir", folder)
    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise InputError(f"output_dir={folder}: wanted a folder, but {there} is a file. Choose another output_dir.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"output_dir={folder}: {there} cannot be written to. Choose another output_dir.")
    return folder


for _resolver in (_run_folder, _lightning_precision, _epoch_limit, _usable):
    OmegaConf.register_new_resolver(_resolver.__name__[1:], _resolver, replace=True)
