"""Keys, values, and config choices that were renamed. Old names are refused with the new one."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from contrastive_encoders.core.errors import InputError

_DIRECTIONS = {"there": "forward", "back": "backward"}
# command -> old key -> new key. A renamed key is reported only to commands that have the new key
RENAMED_KEYS: Mapping[str, Mapping[str, str]] = {
    "train": {
        "model.cut_fraction": "model.warmup_ratio",
        "model.append_end": "model.append_eos",
        "data.append_end": "data.append_eos",
        "model.layers": "model.keep_layers",
        "model.frozen_weights": "model.frozen_dtype",
        "model.recompute": "model.activation_checkpointing",
        "model.prompt": "model.prompt_suffix",
        "model.loss_scale": "model.ddp_gradient",
        "model.partition": "model.partition_mode",
        "model.dev_batch_size": "model.eval_batch_size",
        "training_length": "train_max_length",
        "usual_length": "default_train_max_length",
        "average_with_start": "initial_weights_fraction",
        "held_out_share": "held_out_fraction",
        "neighbours": "neighbor_group_size",
        "deletion": "deletion_ratio",
        "documents_as": "document_datamodule",
        "mirror": "remote_output_dir",
        "data_licence": "data_license",
        "data.held_out_share": "data.held_out_fraction",
        "data.neighbours": "data.neighbor_group_size",
        "data.deletion": "data.deletion_ratio",
        "data.joined": "data.concat_sentences",
        "data.dev_share": "data.dev_fraction",
        "data.normalise": "data.ignore_case",
        "data.steps": "data.postprocess_steps",
        "data.cap": "data.max_pairs_per_label",
        "data.variant": "data.random_pair_source",
        "data.window": "data.anchor_placement",
        "data.positive": "data.positive_sampling",
        "data.mask_how": "data.mask_strategy",
        "data.equalise_spans_to": "data.match_span_count_of",
        "evaluation.during": "evaluation.during_training",
        "evaluation.tasks": "evaluation.custom_tasks",
        "evaluation.teacher": "evaluation.compare_with_teacher",
    },
    "evaluate": {
        "tasks": "custom_tasks",
        "alignment_above": "alignment_threshold",
        "source": "download_mirror",
    },
    "generate": {
        "token_budget": "kv_cache_tokens",
        "rows": "decode_batch_size",
        "annotate": "annotation_sample",
        "annotations": "annotation_sheet",
        "known": "reuse_from",
        "judged": "use_judge",
        "plan_only": "estimate_only",
        "choice_share": "dev_fraction",
        "held_out_share": "held_out_fraction",
        "passages.words": "passages.max_words",
        "passages.shortest": "passages.min_words",
        "rules.shortest": "rules.min_words",
        "rules.longest": "rules.max_words",
        "rules.copied": "rules.max_copied",
        "rules.from_prompt": "rules.max_from_prompt",
        "rules.rank": "rules.max_rank",
        "rules.p_yes": "rules.min_p_yes",
        "sentences.without": "sentences.exclude",
        **{
            f"{old}.{name}": f"{new}.{name}"
            for old, new in _DIRECTIONS.items()
            for name in ("model", "prefix", "source", "target")
        },
    },
    "compare": {
        "headline": "ranking_metric",
        "project": "wandb_project",
        "name": "wandb_name",
        "offline": "wandb_offline",
        "race.headline": "race.ranking_metric",
        "race.known": "race.reuse_from",
        "race.plan_only": "race.estimate_only",
    },
    "embed": {"window": "chunk_rows", "ranges": "quantization_ranges"},
    "download-data": {"source": "download_mirror"},
}
RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {"model.loss_scale": {"paper": "per_rank"}}  # old key -> values
RENAMED_CHOICES: Mapping[str, Mapping[str, str]] = {  # config group -> old name -> new name
    "experiment": {"both": "sts_and_retrieval", "smaller": "distill_layers"},
    "race": {"real": "smollm2", "declutr_real": "declutr_smollm2", "gense_real": "gense_smollm2"},
}


def renamed_key(name: str, value: Any, keys: Iterable[str], *, in_python: bool = False) -> InputError | None:
    """Return the error about a renamed key, or None if the key was not renamed.

    Args:
        name: dotted; the key of a stage or of a part of a mixture with its prefix.
        value: the given value; None for a name without a value.
        keys: all keys of the command, dotted.
        in_python: whether keys are arguments of a function, with two underscores instead of a dot.
    """
    if (found := _renamed(name, set(keys))) is None:
        return None
    old, new = found
    set_value = RENAMED_VALUES.get(old, {}).get(str(value), value)
    shown_name, new = (one.replace(".", "__") if in_python else one for one in (name, new))
    shown = "VALUE" if value is None else repr(set_value) if in_python else str(set_value)
    hint = f"Set {new}={shown}."
    return InputError(
        f"{shown_name} was renamed to {new}. {hint}",
        key=name,
        **({} if value is None else {"value": value}),
        expected=f"the new name of the key, {new}",
        hint=hint,
    )


def renamed_choice(group: str, name: str) -> InputError | None:
    """Return the error about a renamed choice of a config group, or None if the choice was not renamed."""
    if (new := RENAMED_CHOICES.get(group, {}).get(name)) is None:
        return None
    hint = f"Set {group}={new}."
    expected = f"the new name of the choice, {new}"
    message = f"{group}={name} was renamed to {group}={new}. {hint}"
    return InputError(message, key=group, value=name, expected=expected, hint=hint)


def new_names(name: str) -> list[str]:
    """Return the new names of a renamed key. It may be a key of a part of a mixture, or lack its group."""
    name = re.sub(r"^data\.parts\.[^.]+\.", "data.", name)
    pairs = [pair for table in RENAMED_KEYS.values() for pair in table.items()]
    return [new for old, new in pairs if name in (old, old.rpartition(".")[2])]


def _renamed(name: str, keys: set[str]) -> tuple[str, str] | None:
    """Return the old name in `RENAMED_KEYS` that matches ``name``, and the new name with the same prefix as ``name``;
    None if no old name matches.
    """
    pairs = [pair for table in RENAMED_KEYS.values() for pair in table.items()]
    for old, new in pairs:
        prefix = name.removesuffix(old)
        if not name.endswith(old) or (prefix and not prefix.endswith(".")):
            continue
        if f"{prefix}{new}" in keys or (prefix.startswith("stages.") and new in keys):
            return old, f"{prefix}{new}"
    place, dot, last = name.rpartition(".")
    for old, new in pairs:  # a name without its group, or with the prefix of a part of a mixture
        moved = f"{place}{dot}{new.rpartition('.')[2]}" if place else new
        if old.rpartition(".")[2] == last and moved in keys:
            return old, moved
    return None
