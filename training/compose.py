"""Compose a run, its stages and the parts of a mixture from the arguments of a command line.

The words of the command line are above what an experiment says under ``stages.NAME``, and below
``stages.NAME.KEY=VALUE``: who says ``batch_size=8`` means all stages, and ``stages.nli.batch_size=8`` means one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cli.arguments import check_paths
from cli.config_files import choices
from cli.exit_status import explained
from cli.keys import check_numbers
from cli.settings import assign, composed, dotted, nested, resolved
from contracts import InputError
from contracts.settings import check, keys_of, nearest, read, refuse_unknown, settings_class
from datamodules.settings import KINDS as DATA
from encoders.settings import KINDS as MODELS
from training.settings import Run

STAGE_WORD = re.compile(r"(?P<sign>\+{0,2})stages\.(?P<name>[^.=@/]+)\.(?P<rest>.+)", flags=re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9_-]+")
CHOSEN = ("model", "data", "trainer", "logger")  # groups of which a stage may choose another file
OF_THE_WHOLE = (  # no stage has its own: where the run lies, and the processes, which live through all of it
    "output_dir",
    "resume",
    "overwrite",
    "only_stage",
    "stages",
    "experiment",
    "domain",
    "devices",
    "num_nodes",
    "trainer",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.accelerator",
    "tiny",
    "hydra",
)
OURS: Mapping[str, Any] = {kind.target: kind for kind in (*MODELS.values(), *DATA.values())}


class _Asked(NamedTuple):
    """What was asked for, whatever the stage."""

    words: Sequence[str]
    chosen: Mapping[str, str]  # group -> name of a file
    keys: Mapping[str, Any]  # dotted

    @property
    def names(self) -> list[str]:
        """The keys that were set."""
        return [*self.chosen, *self.keys, *(word.lstrip("+~").partition("=")[0] for word in self.words)]


def compose(
    words: Sequence[str] = (), chosen: Mapping[str, str] | None = None, keys: Mapping[str, Any] | None = None
) -> Run:
    """The run that these words of a command line make, ``["model=declutr", "data=text", "data.path=FILE"]``.

    ``chosen`` (group -> name of a file) and ``keys`` (dotted) say the same without words.

    Raises:
        InputError: a key is unknown, or a value is not of its type.
    """
    for_stages = [match for word in words if (match := STAGE_WORD.fullmatch(word))]
    asked = _Asked([word for word in words if not STAGE_WORD.fullmatch(word)], chosen or {}, keys or {})
    whole = composed("train", asked.words, asked.chosen)
    for name, value in asked.keys.items():
        assign(whole, name, value)
    known, stages = [*map(str, whole), *CHOSEN], dict[str, Run]()
    for name, written in _stages(whole, for_stages).items():
        own = [match for match in for_stages if match["name"] == name]
        try:
            stages[name] = _stage(name, dotted(written), dict(_said(own)), asked, known)
        except (HydraException, OmegaConfBaseException) as error:
            of_stage = [f"{match['sign']}{match['rest']}" for match in own]
            raise InputError(f"stages.{name}: {explained(error, 'train', [*asked.words, *of_stage])}") from error
        except InputError as error:
            if str(error).startswith("stages."):
                raise
            raise InputError(f"stage {name} (its keys are stages.{name}.KEY): {error}") from error
    return replace(run_of(whole, asked.names), stages=stages)


def _stage(name: str, written: Mapping[str, Any], said: Mapping[str, Any], asked: _Asked, known: Sequence[str]) -> Run:
    """A stage of which the configs have ``written``, and the command line ``said``, both dotted."""
    for key in [*written, *said]:
        _check_key(name, key)
        refuse_unknown([key.partition(".")[0]], known, f"stages.{name}.")
    files = {key: value for key, value in {**written, **said}.items() if key in CHOSEN and isinstance(value, str)}
    below = {key: value for key, value in written.items() if key not in files}
    words = [word for word in asked.words if word.partition("=")[0] not in files.keys() & said.keys()]
    cfg = composed("train", words, {**asked.chosen, **files}, nested(below))
    for key, value in asked.keys.items():
        if key.partition(".")[0] != "stages":
            assign(cfg, key, value)
    for key, value in said.items():
        if key not in files:
            OmegaConf.update(cfg, key, value, merge=True, force_add=True)
    cfg.only_stage = None
    return run_of(cfg, [*asked.names, *said])


def run_of(cfg: DictConfig, asked: Sequence[str] = ()) -> Run:
    """The run that a composed config says, without its stages.

    Raises:
        InputError: a key of the model or of the data is unknown, or a class may not be taken.
    """
    check_numbers(cfg)
    check_paths(cfg)
    plain = {one.name: resolved(cfg[one.name]) for one in keys_of(Run) if one.name in cfg and one.name != "stages"}
    allowed = plain.get("allow_targets") or ()
    for name, part in _parts(cfg).items():
        cfg.data.parts[name] = part
    run = read(Run, plain)
    check(run)
    return replace(
        run,
        model=_settings(cfg.get("model"), "model", allowed),
        data=_settings(cfg.get("data"), "data", allowed),
        trainer=resolved(cfg.trainer),
        logger=resolved(cfg.logger) or {},
        asked=tuple(asked),
    )


def _parts(cfg: DictConfig) -> dict[str, Any]:
    """The parts of a mixture that name their kind, as that kind's config with their own keys."""
    parts = (cfg.get("data") or {}).get("parts")
    if not isinstance(parts, DictConfig):
        return {}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        place = f"data.parts.{name!s}"
        kind = part.get("data") if isinstance(part, DictConfig) else None
        if isinstance(part, DictConfig) and "_target_" in part:
            if kind is not None:
                raise InputError(f"{place}.data={kind}: the recipe has chosen what this part is. Name another part.")
            continue
        if not isinstance(kind, str):
            raise InputError(
                f"{place}: nobody says what it is. Say {place}.data=triplets, or any other; in a YAML file, under "
                f"defaults: /data@{place}: triplets."
            )
        try:
            known = composed(f"data/{kind}", ()).data
        except HydraException as error:
            near = nearest(kind, choices("data"))
            raise InputError(
                f"{place}.data={kind} does not exist; choose {', '.join(choices('data'))}."
                + (f" The nearest is {near}." if near else "")
            ) from error
        if "parts" in known:
            raise InputError(f"{place}: a mixture is no part of another. Name its parts beside the others.")
        own = {key: value for key, value in part.items() if key != "data"}
        refuse_unknown(own, map(str, known), f"{place}.")
        found[str(name)] = OmegaConf.merge(known, own)
    return found


def _settings(node: Any, place: str, allowed: Sequence[str]) -> Any:
    """The settings at a place of a config; None where nothing was chosen."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return None
    target = node["_target_"]
    if not isinstance(target, str) or (kind := OURS.get(target)) is None:
        from hydra.utils import get_class

        from training.targets import check_target  # with Lightning

        check_target(place, target, allowed)
        kind = settings_class(get_class(target))
    plain = _plain(node, kind)
    if "parts" in plain:
        parts = node["parts"]
        plain["parts"] = {str(name): _settings(part, f"{place}.parts.{name}", allowed) for name, part in parts.items()}
    return read(kind, plain, f"{place}.", target)


def _plain(node: DictConfig, kind: Any) -> dict[str, Any]:
    """The values of its keys; what nobody has said keeps its mark, by which `read` knows it."""
    known = {one.name: one for one in keys_of(kind)}
    raw: Any = OmegaConf.to_container(node, resolve=False)
    found = {}
    for name in (name for name in map(str, raw) if not name.startswith("_")):
        if name in known and raw[name] == known[name].written:
            found[name] = raw[name]
        elif name in known and is_dataclass(known[name].type) and isinstance(node[name], DictConfig):
            found[name] = _plain(node[name], known[name].type)
        else:
            found[name] = resolved(node[name])
    return found


def _stages(cfg: DictConfig, for_stages: Sequence[re.Match[str]]) -> dict[str, Mapping[str, Any]]:
    """Names of stages in their order, and what the configs say of them."""
    written: Any = resolved(cfg.stages)
    if not isinstance(written, dict):
        raise InputError(f"stages={written!r}: wanted a mapping, of the name of each stage to its keys.")
    for name, keys in written.items():
        if not NAME.fullmatch(str(name)) or not isinstance(keys, dict | None):
            raise InputError(f"stages.{name}={keys!r}: wanted a name of letters, digits, - and _, and its keys.")
    found = {str(name): keys or {} for name, keys in written.items()}
    for match in for_stages:
        if match["sign"] == "+":
            found.setdefault(match["name"], {})
    for match in for_stages:
        if match["name"] not in found:
            raise InputError(f"{match.group().lstrip('+')}: {no_stage(match['name'], list(found))}")
    return found


def no_stage(name: str, names: Sequence[str]) -> str:
    """That a stage does not exist, and what to do."""
    if not names:
        return f"this run has no stages. +stages.{name}.KEY=VALUE makes one; experiment=gense has some."
    near = nearest(name, names, cutoff=0.4)
    advice = f" The nearest is {near}." if near else ""
    return f"there is no stage {name!r}; there are {', '.join(names)}.{advice} +stages.{name}.KEY=VALUE makes one."


def _said(words: Sequence[re.Match[str]]) -> Iterator[tuple[str, Any]]:
    parser = OverridesParser.create()
    for match in words:
        override = parser.parse_override(match["rest"])
        yield override.key_or_group, override.value()


def _check_key(name: str, key: str) -> None:
    if key == "backbone":
        raise InputError(
            f"stages.{name}.backbone: a stage begins from the one before it. Say backbone=... for the first, or for a "
            f"stage that runs alone: only_stage={name} backbone=..."
        )
    if key in OF_THE_WHOLE or key.partition(".")[0] in ("hydra", "tiny", "domain"):
        raise InputError(f"stages.{name}.{key}: this is the same for all stages. Say {key}=... instead.")
