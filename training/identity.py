"""What a run is known by: eight hex digits of what decides its result, in its folder's name and in its record."""

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from command.settings import resolved
from contracts import InputError

# What does not change the result, so that a run is found again on another machine, or with other loggers.
NOT_IDENTITY = (
    "hydra",
    "output_dir",
    "verify",
    "devices",
    "num_nodes",
    "logger",
    "resume",
    "overwrite",
    "quiet",
    "next_steps",
    "live",
    "data_licence",
    "stages",
    "only_stage",
    "training_length",
    "usual_length",
    "allow_targets",
)
NOT_IDENTITY_WITHIN = {
    "data": ("quiet", "verify", "cache_dir", "num_workers"),
    "trainer": ("accelerator", "devices", "num_nodes", "strategy", "default_root_dir", "enable_progress_bar"),
}
SAID_BEFORE: dict[str, tuple[Any, Any]] = {  # a value of now: what older configs say for the same; None: nothing
    "model.max_length": (None, 512),
    "model.mlm_weight": (None, 1.0),
    **dict.fromkeys(
        ("model.append_end", "model.attention", "model.dropout", "model.attention_dropout", "model.mask_token"),
        (None, None),
    ),
    **dict.fromkeys(("model.matryoshka", "model.matryoshka_weights"), (None, None)),
    **dict.fromkeys(("model.guide", "model.guide_absolute_margin", "model.guide_relative_margin"), (None, None)),
    **dict.fromkeys(
        ("data.append_end", "data.deletion", "data.mask_how", "data.mask_token", "data.prompts"), (None, None)
    ),
    **dict.fromkeys(("data.name", "data.revision", "data.data_files", "data.streaming"), (None, None)),
    **dict.fromkeys(("model.normalize", "evaluation.tasks"), (None, None)),
    "evaluation.precision": ("fp32", None),
    "evaluation.at_start": (None, False),
    "data.drop_last": (True, None),
    **dict.fromkeys(("early_stopping", "freeze", "model.freeze", "model.layer_decay"), (None, None)),
    "model.frozen_weights": ("fp32", None),
    "model.attn_implementation": ("auto", None),
    "model.compile": (False, None),
    "model.trained_weights": ("fp32", None),
    "data.held_out_part": (0, None),
    "data.held_out_share": (0.0, None),
}
OFF = {"model.lora": "rank"}  # groups that say nothing while this key of theirs is null
FORMER_TARGETS = {  # class path -> that of the time when folders were named by the former rule
    "datamodules.documents.HubDocuments": "datamodules.documents.from_hub",
    "datamodules.documents.PydocsDocuments": "datamodules.documents.from_pydocs",
    "datamodules.documents.TextDocuments": "datamodules.documents.from_text",
}


class Identity(NamedTuple):
    """``former`` is by the rule of before, under which older folders are found; it may go in December 2027."""

    now: str
    former: str

    def follows(self, before: "Identity", name: str) -> "Identity":
        """Of stage ``name`` with this config of its own, behind a stage of that identity."""
        return Identity(_joined(before.now, name, self.now), _joined(before.former, name, self.former))

    def found_in(self, folder: Path) -> str:
        """That by which the folder is known already, else ``now``."""
        with contextlib.suppress(InputError):  # damaged: whoever claims the folder says so
            found = identity_in(folder)
            return found if found in self else self.now
        return self.now


NOTHING_BEFORE = Identity("", "")


def identity_of(cfg: DictConfig) -> Identity:
    """Over keys and values: neither where a class lies nor a key without a value counts."""
    kept = _deciding(cfg)
    return Identity(_digest(_keys_and_values(kept)), _digest(_with_former_targets(kept)))


def identity_in(folder: Path) -> str | None:
    """Whose folder it is; None where it is nobody's.

    Raises:
        InputError: its record is damaged.
    """
    marker = folder / ".hydra" / "identity"
    if not marker.is_file():
        return None
    found = marker.read_text(encoding="utf-8", errors="replace").strip()
    if not re.fullmatch("[0-9a-f]+", found):
        raise InputError(
            f"{marker}: wanted eight hexadecimal digits, which say whose run this is, got {found[:20]!r}. The file is "
            "damaged: copy a good one there, choose another output_dir, or overwrite=true to throw that run away."
        )
    return found


def named_folder(parent: Path, name: str, identity: Identity) -> Path:
    """PARENT/NAME-IDENTITY, or the folder which the same command had by the former rule."""
    now, former = (parent / f"{name}-{one}" for one in identity)
    return former if former.is_dir() and not now.is_dir() else now


def earlier_folder(folder: Path, words: Sequence[str]) -> Path | None:
    """A folder of the same model and data that the same words made when other defaults held."""
    for record in sorted(folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*/.hydra/overrides.yaml")):
        with contextlib.suppress(OSError, ValueError, YAMLError):  # a damaged record is its own run's affair
            if record.parents[1].name != folder.name and list(OmegaConf.load(record)) == list(words):
                return record.parents[1]
    return None


def _deciding(cfg: DictConfig) -> dict[str, Any]:
    copy: Any = OmegaConf.create(OmegaConf.to_container(cfg, resolve=False))
    copy.output_dir = ""  # its default is made of what is computed here
    kept: dict[str, Any] = {}
    for key in map(str, copy):
        if key not in NOT_IDENTITY and not OmegaConf.is_missing(copy, key):
            kept[key] = resolved(copy[key])
    for group, names in NOT_IDENTITY_WITHIN.items():
        for keys in _of_group(kept, group):
            for name in names:
                keys.pop(name, None)
    for key, switch in OFF.items():
        group, name = key.split(".")
        found = (kept.get(group) or {}).get(name)
        if isinstance(found, dict) and found.get(switch, 0) is None:  # of another type: refused later
            del kept[group][name]
    for key, (now, before) in SAID_BEFORE.items():
        group, _, name = key.rpartition(".")
        for there in _of_group(kept, group) if group else [kept]:
            if name in there and there[name] == now:
                del there[name]
                there |= {} if before is None else {name: before}
    for keys in _of_group(kept, "data"):
        if str(keys.get("_target_")).endswith(".TextDocuments"):
            _say_as_before(keys)
    return kept


def _say_as_before(keys: dict[str, Any]) -> None:
    """Documents had no columns, but for those of the hub, which were a class of their own."""
    columns = keys.pop("columns", None)
    if "revision" in keys:
        del keys["document"]
        keys |= {"_target_": "datamodules.documents.HubDocuments", "id": keys.pop("path"), "name": keys.get("name")}
        keys["text_column"] = columns[0] if columns else "text"
    elif columns is not None:
        keys["columns"] = columns


def _of_group(kept: dict[str, Any], group: str) -> list[dict[str, Any]]:
    """Its keys, and those of each part of a mixture."""
    found = kept.get(group)
    parts = found.get("parts") if isinstance(found, dict) and group == "data" else None
    several = [found, *(parts.values() if isinstance(parts, dict) else [])]
    return [one for one in several if isinstance(one, dict)]


def _keys_and_values(value: Any) -> Any:
    """Of a class its bare name stays: two kinds of data may have the same keys."""
    if isinstance(value, list):
        return [_keys_and_values(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {str(key): _keys_and_values(one) for key, one in value.items() if one is not None and str(key)[:1] != "_"}
    return found | ({"class": str(value["_target_"]).rpartition(".")[2]} if "_target_" in value else {})


def _with_former_targets(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_former_targets(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_former_targets(one) for key, one in value.items()}
    if "_target_" in found:
        found["_target_"] = FORMER_TARGETS.get(str(found["_target_"]), found["_target_"])
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _joined(before: str, name: str, own: str) -> str:
    return hashlib.sha256(f"{before} {name} {own}".encode()).hexdigest()[:8]
