"""Suggestions for unknown keys, such as names that other libraries use, names without their group, and misspelled
names.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from contrastive_encoders.core.errors import InputError
from contrastive_encoders.core.renamed_keys import new_names, renamed_key

MIN_SIMILARITY = 0.7  # of a name and its suggestion; difflib's 0.6 suggests ranking_metric for training_length
# order of preference among several keys of a name
PREFERRED_GROUPS = ("", "model", "data", "race", "evaluation", "trainer", "checkpoint")
# Names in transformers, sentence-transformers, Lightning, and common scripts -> keys of this project, of which the
# first that the command has is suggested. An empty tuple: there is no key that takes the same values.
COUNTERPARTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "base_lr"), ("model.lr",)),
    **dict.fromkeys(("epochs", "epoch", "n_epochs", "num_epochs", "num_train_epochs", "train_epochs"), ("max_epochs",)),
    **dict.fromkeys(("steps", "num_steps", "n_steps", "train_steps", "num_train_steps", "total_steps"), ("max_steps",)),
    **dict.fromkeys(("max_train_steps", "num_training_steps", "iterations"), ("max_steps",)),
    **dict.fromkeys(("batch", "bs", "batchsize", "train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("per_device_train_batch_size", "per_gpu_train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("warmup_ratio", "warmup_proportion", "warmup_fraction", "warmup"), ("model.warmup_ratio",)),
    **dict.fromkeys(("output", "output_dir", "output_path", "out", "out_dir"), ("output_dir", "output")),
    **dict.fromkeys(("path", "file", "dataset", "dataset_path", "data_file", "data_dir", "input"), ("data.path",)),
    **dict.fromkeys(("train_file", "train_path", "train_data", "train_dataset", "input_file"), ("data.path",)),
    **dict.fromkeys(("model_name_or_path", "model_name", "model_path", "base_model"), ("backbone", "encoder", "run")),
    **dict.fromkeys(("pretrained_model_name_or_path", "pretrained", "checkpoint_path"), ("backbone", "encoder", "run")),
    **dict.fromkeys(("backbone", "encoder"), ("backbone", "encoder", "run")),
    "run": ("backbone", "encoder", "run", "runs"),
    **dict.fromkeys(("max_seq_length", "max_seq_len", "max_len", "seq_length"), ("train_max_length", "max_length")),
    **dict.fromkeys(("logging_steps", "log_steps", "log_every"), ("log_every_n_steps",)),
    **dict.fromkeys(("save_steps", "save_every"), ("checkpoint.every_n_steps",)),
    **dict.fromkeys(("eval_steps", "evaluation_steps", "eval_every"), ("evaluation.every_n_steps",)),
    **dict.fromkeys(("patience", "early_stopping_patience"), ("early_stopping",)),
    **dict.fromkeys(("resume_from_checkpoint", "ckpt_path", "resume_from"), ("resume",)),
    **dict.fromkeys(("gpus", "n_gpu", "n_gpus", "num_gpus", "num_processes"), ("devices",)),
    **dict.fromkeys(("max_grad_norm", "grad_clip", "gradient_clip"), ("trainer.gradient_clip_val",)),
    "overwrite_output_dir": ("overwrite",),
    "dataloader_num_workers": ("data.num_workers",),
    "adam_epsilon": ("model.eps",),
    "temp": ("model.temperature",),
    "tau": ("model.temperature",),
    "random_seed": ("seed",),
    **dict.fromkeys(("warmup_steps", "num_warmup_steps", "lr_scheduler_type", "optim", "report_to", "fp16"), ()),
    **dict.fromkeys(("bf16", "per_device_eval_batch_size", "eval_batch_size", "metric_for_best_model"), ()),
    **dict.fromkeys(("load_best_model_at_end", "save_total_limit", "evaluation_strategy", "eval_strategy"), ()),
}


def counterpart(name: str, keys: Iterable[str]) -> str | None:
    """Return the key that an unknown name unambiguously corresponds to, or None if there is no such key.

    Args:
        name: dotted, or with underscores instead of dots, as ``data_path``.
        keys: all keys of the command, dotted.
    """
    keys = _without_groups(keys)
    last = name.rpartition(".")[2].replace("-", "_").lower()
    if last in COUNTERPARTS:
        return next((key for key in COUNTERPARTS[last] if key in keys), None)
    if found := [key for key in keys if _plain(key) == _plain(name)]:
        return found[0]
    same = {key.rpartition(".")[0]: key for key in keys if key.rpartition(".")[2] == last}
    if len(same) == 1:
        return next(iter(same.values()))
    return next((same[group] for group in PREFERRED_GROUPS if group in same), None)


def no_choices(_: str) -> Sequence[str]:
    """Return an empty list, for commands whose keys do not depend on choices of config groups."""
    return ()


def unknown_key(
    name: str,
    value: Any,
    keys: Iterable[str],
    otherwise: str,
    *,
    in_python: bool = False,
    choices_with: Callable[[str], Sequence[str]] = no_choices,
) -> InputError:
    """Return the error about an unknown key, with a hint about what to set instead.

    Args:
        value: the given value; None for a name without a value.
        keys: all keys of the command, dotted.
        otherwise: the hint if no key is similar.
        in_python: whether keys are arguments of a function, with two underscores instead of a dot.
        choices_with: returns ``GROUP=CHOICE`` for each choice of a config group that adds a key.
    """
    keys, former = list(keys), name not in COUNTERPARTS  # whether it may be the former name of a key
    if former and (renamed := renamed_key(name, value, keys, in_python=in_python)):
        return renamed
    shown_name, given = _shown(name, in_python), {} if value is None else {"value": value}
    for key in (name, *(new_names(name) if former else ())):
        if choices := choices_with(key):
            hint = f"{_shown(key, in_python)} exists only with {', '.join(choices)}. Remove {shown_name}."
            error = InputError(key=shown_name, **given, expected="a key that exists here", hint=hint)
            if key != name:
                error = error.copy(f"{shown_name} was renamed to {_shown(key, in_python)}. {hint}")
            return error.copy(str(error), key=name)
    found = counterpart(name, keys)
    near = None if found or name.rpartition(".")[2] in COUNTERPARTS else _nearest(name, keys)
    suggestion = _shown(found or near or "", in_python)
    hint = f"Set {suggestion}={_value_for(found, value, in_python)}." if found else f"The nearest is {suggestion}."
    hint = hint if suggestion else otherwise
    error = InputError(key=shown_name, **given, expected="a key that exists", hint=hint)
    return error.copy(str(error), key=name)


def _shown(key: str, in_python: bool) -> str:
    return key.replace(".", "__") if in_python else key


def check_known_keys(
    given: Iterable[Any],
    known: Iterable[str],
    prefix: str = "",
    choices_with: Callable[[str], Sequence[str]] = no_choices,
    *,
    in_python: bool = False,
) -> None:
    """Check that all given keys exist; an override ``+KEY=...`` may have added an unknown key.

    Args:
        given: names of keys, or a mapping of them to values.
        known: names of the keys that exist.
        prefix: dotted place of the keys, ending with a dot.
        choices_with: returns ``GROUP=CHOICE`` for each choice of a config group that adds a key.
        in_python: whether the keys are arguments of a function.

    Raises:
        InputError: a key does not exist.
    """
    known = sorted(set(known))
    for name in given:
        if str(name) not in known:
            value = given[name] if isinstance(given, Mapping) else None
            value = None if isinstance(value, Mapping | list | tuple) else value
            otherwise = f"The keys are {', '.join(known)}." if prefix or in_python else "--help lists the keys."
            keys = [f"{prefix}{one}" for one in known]
            raise unknown_key(f"{prefix}{name}", value, keys, otherwise, in_python=in_python, choices_with=choices_with)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``, or None if no name is similar enough."""
    known = list(known)
    similar = difflib.get_close_matches(name, known, n=1, cutoff=MIN_SIMILARITY)
    # Exchanged letters: the similarity of a short name, such as nil for nli, is below the limit
    return next(iter(similar or (one for one in known if sorted(one) == sorted(name))), None)


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """Return a hint that contains the known name that is most similar to ``name``, or None if no name is similar."""
    near = nearest(name, known)
    return f"The nearest is {near}." if near else None


def _nearest(name: str, keys: list[str]) -> str | None:
    """Return the key that is most similar to a name. Keys of the same group are preferred to those of other groups."""
    group, _, last = name.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in keys if key.rpartition(".")[0] == group}
    if near := nearest(last, beside):
        return beside[near]
    if group and beside:
        return None
    near = nearest(last, (key.rpartition(".")[2] for key in _without_groups(keys)))
    return counterpart(near, keys) if near else nearest(name, keys)


def _without_groups(keys: Iterable[str]) -> list[str]:
    """Return the keys that are not groups of other keys."""
    keys = list(keys)
    groups = {key.rpartition(".")[0] for key in keys}
    return [key for key in keys if key not in groups]


def _value_for(key: str, value: Any, in_python: bool) -> str:
    if value is None or (key == "max_epochs" and not re.fullmatch(r"\d+(\.0)?", str(value))):
        return "VALUE"
    if key == "max_epochs":
        return str(value).removesuffix(".0")
    return repr(value) if in_python else str(value)


def _plain(key: str) -> str:
    return re.sub(r"[._-]", "", key.lower())
