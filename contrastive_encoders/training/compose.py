"""Composition of a run's config, including its stages and the data sources of a mixture, from overrides.

Overrides take precedence over the keys that an experiment sets under ``stages.NAME``: ``batch_size=8`` applies to all
stages, and ``stages.nli.batch_size=8`` to one.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import check, keys_of, read, settings_class
from contrastive_encoders.core.key_effects import effect_of
from contrastive_encoders.core.key_suggestions import check_known_keys, nearest, nearest_hint, unknown_key
from contrastive_encoders.core.runtime.exit_codes import as_exceptions
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.training.composition.config_errors import explain_errors, explained
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import check_numbers
from contrastive_encoders.training.composition.config_store import (
    assign,
    choices_with_key,
    compose_config,
    config_node,
    dotted,
    keys_below,
    nested,
    to_container,
)
from contrastive_encoders.training.composition.literal_values import literal_overrides
from contrastive_encoders.training.composition.override_checks import check_paths, help_hint
from contrastive_encoders.training.run_config import RunConfig

STAGE_OVERRIDE = re.compile(r"\+{0,2}stages[.=]")
NAME = re.compile(r"[A-Za-z0-9_-]+")
# expected value of ``stages``, for messages
STAGES = "a mapping from the name of each stage to a mapping of its keys, such as {first: {max_steps: 100}}"
STAGE_CONFIG_GROUPS = ("model", "data", "trainer", "logger")  # groups for which a stage may choose another file
BUILTIN_CONFIGS: Mapping[str, Any] = {kind.target: kind for kind in (*MODEL_CONFIGS.values(), *DATA_CONFIGS.values())}


class _StageKey(NamedTuple):
    """A key that an override sets for a single stage, with its value. If ``creates``, the key adds the stage if it does
    not exist.
    """

    name: str
    key: str
    value: Any
    creates: bool


class _Overrides(NamedTuple):
    """Overrides that apply to all stages, and the names that they set."""

    overrides: Sequence[str]
    chosen: Mapping[str, str]  # group -> name of a file
    keys: Mapping[str, Any]  # dotted

    @property
    def names(self) -> list[str]:
        """Names of the config groups and keys that the overrides set, also within mappings."""
        set_by_overrides = dict[str, Any]()
        for override in self.overrides:
            key, _, text = override.lstrip("+~").partition("=")
            is_mapping = text.startswith("{")
            set_by_overrides[key] = OverridesParser.create().parse_override(override).value() if is_mapping else text
        return [*self.chosen, *dotted(self.keys), *dotted(set_by_overrides)]


def compose(
    overrides: Sequence[str] = (),
    groups: Mapping[str, str] | None = None,
    keys: Mapping[str, Any] | None = None,
    config: DictConfig | None = None,
) -> RunConfig:
    """Compose the configuration of a run from overrides.

    Args:
        overrides: overrides as on the command line.
        groups: config group (``model``, ``data``, ...) -> name of its choice.
        keys: dotted key -> value. Keys take precedence over ``overrides``.
        config: what Hydra has already composed from ``overrides``; None: compose it here.

    Returns:
        The configuration of the run, for `run`, with the default backbone and batch size of the model.

    Raises:
        InputError: a key does not exist, or a top-level value has the wrong type. `checks.check_values` checks the
            values of model, data, and trainer.

    Example:
        >>> from contrastive_encoders import compose
        >>> config = compose(["model=declutr", "data=text", "data.path=documents", "max_steps=100"])
        >>> config.max_steps, config.model.lr
        (100, 5e-05)
    """
    check_overrides(overrides)
    all_overrides = [*overrides, *(f"{group}={name}" for group, name in (groups or {}).items())]
    with as_exceptions(explain_errors("train", all_overrides, composing=True)):
        return _composed_run(overrides, groups, keys, config)


def check_overrides(overrides: Any) -> None:
    """Check that the overrides that were passed from Python are a list of strings.

    Raises:
        InputError: the overrides are not a list of strings.
    """
    if (
        isinstance(overrides, str)
        or not isinstance(overrides, Iterable)
        or not all(isinstance(override, str) for override in overrides)
    ):
        example = [overrides] if isinstance(overrides, str) else ["max_steps=500"]
        raise InputError(key="overrides", value=overrides, expected=f"a list of overrides, such as {example}")


def _composed_run(
    overrides: Sequence[str],
    groups: Mapping[str, str] | None,
    keys: Mapping[str, Any] | None,
    config: DictConfig | None,
) -> RunConfig:
    shared_overrides, for_stages = _split(literal_overrides("train", overrides))
    for name, value in list((keys or {}).items()):
        if name.partition(".")[0] == "stages":
            for_stages += _stage_keys(name, value, creates=name == "stages")
    shared = {key: one for key, one in (keys or {}).items() if not _is_stage_key(key, one)}
    explicit = _Overrides(shared_overrides, groups or {}, shared)
    if config is None or for_stages:
        config = compose_config("train", explicit.overrides, explicit.chosen)
    for name, value in explicit.keys.items():
        assign(config, name, value, in_python=True)
    known, stages = [*map(str, config), *STAGE_CONFIG_GROUPS], dict[str, RunConfig]()
    for name, written in _stages(config, for_stages).items():
        own = {one.key: one.value for one in for_stages if one.name == name}
        try:
            stages[name] = _stage(name, dotted(written), own, explicit, known)
        except (HydraException, OmegaConfBaseException) as error:
            files = [f"{key}={value}" for key, value in own.items() if key in STAGE_CONFIG_GROUPS]
            raise error_in_stage(explained(error, "train", [*explicit.overrides, *files]), name) from error
        except InputError as error:
            if str(error).startswith("stages."):
                raise
            raise error_in_stage(error, name) from error
    return replace(run_of(config, explicit.names), stages=stages)


def error_in_stage(error: InputError, name: str) -> InputError:
    """Return a copy of an error in a stage's config, with the name of the stage added to the message."""
    hint = error.hint or ""
    if hint.startswith(("Set model.", "Set data.")):  # the stage's key, not that of the run
        error = error.with_hint(hint.replace("Set ", f"Set stages.{name}.", 1))
    return error.with_prefix(f"stage {name} (its keys are stages.{name}.KEY)")


def _stage(
    name: str, written: Mapping[str, Any], own: Mapping[str, Any], explicit: _Overrides, known: Sequence[str]
) -> RunConfig:
    """Return the config of a stage, given the dotted keys that config files (``written``) and overrides (``own``) set
    for the stage.
    """
    for key, value in {**written, **own}.items():
        _check_key(name, key)
        top, dot, _ = key.partition(".")
        check_known_keys({top: None if dot else value}, known, f"stages.{name}.")
    for key, value in {**written, **own}.items():
        if key in STAGE_CONFIG_GROUPS and not isinstance(value, str | Mapping):
            raise InputError(key=f"stages.{name}.{key}", value=value, expected=f"one of {', '.join(choices(key))}")
    files = {
        key: value for key, value in {**written, **own}.items() if key in STAGE_CONFIG_GROUPS and isinstance(value, str)
    }
    values = {key: value for key, value in written.items() if key not in files}
    overrides = [
        override for override in explicit.overrides if override.partition("=")[0] not in files.keys() & own.keys()
    ]
    cfg = compose_config("train", overrides, {**explicit.chosen, **files}, nested(values))
    for key, value in explicit.keys.items():
        assign(cfg, key, value)
    for key, value in own.items():
        if key not in files:
            OmegaConf.update(cfg, key, value, merge=True, force_add=True)
    cfg.only_stage = None
    return run_of(cfg, [*explicit.names, *own])


def run_of(cfg: DictConfig, explicit_keys: Sequence[str] = ()) -> RunConfig:
    """Convert a composed config to a `RunConfig` without stages.

    Raises:
        InputError: a key of the model or of the data is unknown, or a class is not allowed.
    """
    check_numbers(cfg)
    check_paths(cfg)
    _refuse_unread(cfg)
    plain = {
        one.name: to_container(cfg[one.name]) for one in keys_of(RunConfig) if one.name in cfg and one.name != "stages"
    }
    allowed = plain.get("allow_targets") or ()
    for name, part in _parts(cfg).items():
        cfg.data.parts[name] = part
    run = read(RunConfig, plain)
    check(run)
    return replace(
        run,
        model=_settings(cfg.get("model"), "model", allowed, explicit_keys),
        data=_settings(cfg.get("data"), "data", allowed, explicit_keys),
        trainer=to_container(cfg.trainer),
        logger=to_container(cfg.logger) or {},
        explicit_keys=tuple(explicit_keys),
    )


def _refuse_unread(cfg: DictConfig) -> None:
    """Check that each top-level key is a key of `RunConfig` or is used by an interpolation. ``+KEY=...`` and
    user-defined config files may add other keys.
    """
    referenced = set(
        re.findall(r"\w+", " ".join(re.findall(r"\$\{[^}]*", str(OmegaConf.to_container(cfg, resolve=False)))))
    )
    known = {*(one.name for one in keys_of(RunConfig)), *STAGE_CONFIG_GROUPS}
    for key in map(str, cfg):
        if key not in referenced | known:
            others = [*STAGE_CONFIG_GROUPS, *(one for one in keys_below(cfg) if one.partition(".")[0] != key)]
            raise unknown_key(key, cfg[key], others, help_hint("train"))


def _parts(cfg: DictConfig) -> dict[str, Any]:
    """Return the config of each data source of a mixture whose key ``data`` names a choice, as in ``{data: qa, path:
    FILE}``: the config of this choice, updated with the other keys of the source.
    """
    data = cfg.get("data") or {}
    parts = data.get("parts")
    if "parts" in data and not isinstance(parts, DictConfig):
        raise InputError(
            key="data.parts",
            value=parts,
            expected="a mapping from the name of each data source to a mapping of its keys, such as {faq: {data: qa}}",
        )
    if parts is None:
        return {}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        place = f"data.parts.{name!s}"
        kind = part.get("data") if isinstance(part, DictConfig) else None
        if isinstance(part, DictConfig) and "_target_" in part:
            if kind is not None:
                raise InputError(
                    key=f"{place}.data",
                    value=kind,
                    expected="no value, since the experiment already defines a data source with this name",
                    hint="Choose another name for your data source.",
                )
            continue
        if not isinstance(kind, str):
            raise InputError(
                key=f"{place}.data",
                value=kind,
                expected=f"one of {', '.join(choices('data'))}",
                hint=f"Set {place}.data=triplets, or in the defaults list of a YAML file: /data@{place}: triplets.",
            )
        try:
            known = compose_config(f"data/{kind}", ()).data
        except HydraException as error:
            raise InputError(
                key=f"{place}.data",
                value=kind,
                expected=f"one of {', '.join(choices('data'))}",
                hint=nearest_hint(kind, choices("data")),
            ) from error
        if "parts" in known:
            raise InputError(
                key=f"{place}.data",
                value=kind,
                expected="data other than a mixture, since mixtures cannot be nested",
                hint="Add the sources of that mixture to data.parts instead.",
            )
        own = {key: value for key, value in part.items() if key != "data"}
        names = [one for one in map(str, known) if one != "_target_"]
        check_known_keys(own, names, f"{place}.", choices_with_key)
        found[str(name)] = OmegaConf.merge(known, own)
    return found


def _settings(node: Any, place: str, allowed: Sequence[str], explicit_keys: Sequence[str]) -> Any:
    """Convert a config node, such as ``model`` or ``data``, to its config dataclass; None if nothing was chosen."""
    unused: Collection[str] = ()
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return None
    target = node["_target_"]
    if not isinstance(target, str) or (kind := BUILTIN_CONFIGS.get(target)) is None:
        from hydra.utils import get_class

        from contrastive_encoders.training.target_checks import check_target  # imports Lightning

        check_target(place, target, allowed)
        kind = settings_class(get_class(target))
        unused = {name for name in _unused_defaults(node, kind) if f"{place}.{name}" not in explicit_keys}
    plain = _plain(node, kind, unused)
    check_known_keys(plain, [one.name for one in keys_of(kind)], f"{place}.", choices_with_key)
    if "parts" in plain:
        parts = node["parts"]
        plain["parts"] = {
            str(name): _settings(part, f"{place}.parts.{name}", allowed, explicit_keys) for name, part in parts.items()
        }
    return read(kind, plain, f"{place}.", target)


def _unused_defaults(node: DictConfig, kind: Any) -> set[str]:
    """Return the keys of a config node that a user's YAML file inherits from a built-in config under ``defaults``, but
    that the config class of the user's own class does not contain. An inherited key is recognized by its default value.
    """
    known = {one.name for one in keys_of(kind)}
    raw: Any = OmegaConf.to_container(node, resolve=False)
    builtin = [config_node(one) for one in BUILTIN_CONFIGS.values()]
    return {
        name
        for name, value in raw.items()
        if name not in known and any(name in keys and keys[name] == value for keys in builtin)
    }


def _plain(node: DictConfig, kind: Any, unused: Collection[str] = ()) -> dict[str, Any]:
    """Return the resolved value of each key of a config node, except for the keys ``unused``. A key that is not set
    keeps its placeholder, which `read` recognizes.
    """
    known = {one.name: one for one in keys_of(kind)}
    raw: Any = OmegaConf.to_container(node, resolve=False)
    found = {}
    for name in (name for name in map(str, raw) if not name.startswith("_") and name not in unused):
        if name in known and raw[name] == known[name].written:
            found[name] = raw[name]
        elif name in known and is_dataclass(known[name].type) and isinstance(node[name], DictConfig):
            found[name] = _plain(node[name], known[name].type)
        else:
            found[name] = to_container(node[name])
    return found


def _stages(cfg: DictConfig, for_stages: Sequence[_StageKey]) -> dict[str, Mapping[str, Any]]:
    """Return, for each stage in training order, a mapping of the keys that config files set for this stage, as in
    ``{"nli": {"max_steps": 3}}``.
    """
    written: Any = to_container(cfg.get("stages", {}))
    if not isinstance(written, dict):
        raise InputError(key="stages", value=written, expected=STAGES)
    for name, keys in written.items():
        _check_stage(str(name), keys)
    found = {str(name): keys or {} for name, keys in written.items()}
    for one in for_stages:
        if one.creates:
            _check_stage(one.name, {one.key: one.value})
            found.setdefault(one.name, {})
    for one in for_stages:
        if one.name not in found:
            raise unknown_stage(f"stages.{one.name}.{one.key}", one.value, one.name, list(found))
    return found


def _check_stage(name: str, keys: Any) -> None:
    if not NAME.fullmatch(name) or not isinstance(keys, dict | None):
        raise InputError(
            key=f"stages.{name}",
            value=keys,
            expected="a stage name of letters, digits, -, and _ with a mapping of the stage's keys as its value, such "
            "as {max_steps: 100}",
        )


def unknown_stage(key: str, value: Any, name: str, names: Sequence[str]) -> InputError:
    """Return the error for a key ``stages.NAME.KEY`` if the run has no stage with this name."""
    add = f"Set +stages.{name}.KEY=VALUE to add a stage."
    if not names:
        return InputError(key=key, value=value, expected="no key of a stage, since this run has no stages", hint=add)
    near = nearest(name, names)
    hint = f"The nearest is {near}. {add}" if near else add
    return InputError(key=key, value=value, expected=f"a stage of this run ({', '.join(names)})", hint=hint)


def _split(overrides: Sequence[str]) -> tuple[list[str], list[_StageKey]]:
    """Split overrides into overrides for all stages and overrides for single stages."""
    parser, for_all, for_one = OverridesParser.create(), list[str](), list[_StageKey]()
    for text in overrides:
        if not STAGE_OVERRIDE.match(text):
            for_all.append(text)
            continue
        try:
            override = parser.parse_override(text)
        except HydraException:
            for_all.append(text)  # Hydra raises an error for it, with its position
            continue
        if override.is_sweep_override():
            raise InputError(location=text, expected="one value, since a multirun cannot sweep over keys of stages")
        value = override.value()
        if _is_stage_key(override.key_or_group, value):
            sign = text[: len(text) - len(text.lstrip("+"))]
            creates = sign == "+" or override.key_or_group == "stages"
            for_one += _stage_keys(override.key_or_group, value, creates=creates)
        else:
            for_all.append(text)
    return for_all, for_one


def _is_stage_key(key: str, value: Any) -> bool:
    """Return whether an entry sets keys of stages: ``stages.nli.max_steps: 3``, or a mapping at ``stages.nli``."""
    first, *rest = key.split(".")
    return first == "stages" and (len(rest) > 1 or (isinstance(value, Mapping) and bool(value)))


def _stage_keys(key: str, value: Any, creates: bool) -> list[_StageKey]:
    """Split an override of ``stages``, ``stages.NAME``, or ``stages.NAME.KEY`` into an entry for each key of a
    stage.
    """
    _, name, rest = [*key.split(".", 2), "", ""][:3]
    if not rest and not isinstance(value, Mapping):
        expected = "a mapping of keys of this stage, such as {max_steps: 100}" if name else STAGES
        raise InputError(key=key, value=value, expected=expected)
    if not name:
        return [one for stage, keys in value.items() for one in _stage_keys(f"{key}.{stage}", keys or {}, creates)]
    keys = {rest: value} if rest else dotted(value)
    return [_StageKey(name, one, entry, creates) for one, entry in keys.items()]


def _check_key(name: str, key: str) -> None:
    if key == "trainer" or not effect_of(key).per_stage:  # trainer=NAME chooses how processes work together
        raise InputError(
            key=f"stages.{name}.{key}",
            expected="a key that may differ between stages",
            hint=f"Set {key} for the entire run, without stages.{name}.",
        )
