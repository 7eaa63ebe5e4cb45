"""Effects of config keys: which keys identify a run or its arm in a comparison, and which keys a resumed run may
change.

The identity, comparisons, resumed runs, and stages read the same table. A key without an entry counts everywhere.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

OnResume = Literal["free", "fixed", "data"]


class KeyEffect(NamedTuple):
    """Consequences of a change of a config key: whether the run gets another identity (hash of its settings), belongs
    to another arm of a comparison, and can still be resumed.

    Attributes:
        reason: why the key has this effect.
        in_identity: whether runs that differ in the key have different identities and default directories.
        in_arm: whether runs that differ in the key belong to different arms of a comparison.
        on_resume: "fixed": a resumed run keeps the value; "data": a checkpoint compares it with its own data.
        per_stage: whether stages may differ in the key.
    """

    reason: str
    in_identity: bool = True
    in_arm: bool = True
    on_resume: OnResume = "free"
    per_stage: bool = True


COUNTS = KeyEffect("it can change the result")

_LOCATION = KeyEffect("location of files", in_identity=False, in_arm=False)
_PROCESSES = KeyEffect("batches and loss are equal for any number of processes", in_identity=False, in_arm=False)
_OUTPUT = KeyEffect("what is printed, logged, or kept", in_identity=False, in_arm=False)
_START = KeyEffect("how a command starts, and what it checks", in_identity=False, in_arm=False)
_INDIRECT = KeyEffect("it takes effect through other keys", in_identity=False, in_arm=False)
_MEASURED = KeyEffect("it changes what is recorded, but not the weights", in_arm=False)
_SEED = KeyEffect("runs that differ in the seed are one arm", in_arm=False, on_resume="data")
_ORDER = KeyEffect("it can change the batches; a checkpoint compares their order", on_resume="data")
_WEIGHTS = KeyEffect("restored weights and optimizer states belong to the old value", on_resume="fixed")
_NO_WEIGHTS = KeyEffect("no restored tensor depends on it")
_HYDRA = KeyEffect("Hydra's own keys", in_arm=False)


def _of_run(effect: KeyEffect) -> KeyEffect:
    return effect._replace(per_stage=False)


# Dotted key, or *.NAME for a name in any group -> effect of the key and the keys below it; "model." is left out
KEY_EFFECTS: Mapping[str, KeyEffect] = {
    key: effect
    for effect, keys in {
        _of_run(_LOCATION): ("output_dir", "remote_output_dir"),
        _LOCATION: ("trainer.default_root_dir", "data.cache_dir", "cache_dir"),
        _of_run(_PROCESSES): (
            *("devices", "num_nodes"),
            *(f"trainer.{name}" for name in ("devices", "num_nodes", "strategy", "accelerator")),
        ),
        _PROCESSES: ("data.num_workers", "data.tokenizer_workers"),
        _OUTPUT: (
            *("quiet", "data.quiet", "logger", "next_steps", "name", "data_license"),
            *("checkpoint.keep_all", "trainer.enable_progress_bar"),
        ),
        _of_run(_START): ("resume", "overwrite"),
        _START: ("verify", "data.verify", "allow_targets"),
        _of_run(_INDIRECT): ("stages", "only_stage"),
        _INDIRECT: ("train_max_length", "default_train_max_length", "document_datamodule"),
        _MEASURED: (
            *("log_every_n_steps", "trainer.log_every_n_steps"),
            *("evaluation.data_root", "data_root", "evaluation.at_start", "evaluation.compare_with_teacher"),
        ),
        _SEED: ("seed", "*.seed"),
        _ORDER: ("batch_size", "data", "held_out_fraction", "neighbor_group_size"),
        _WEIGHTS: (
            *("freeze", "keep_layers", "lora", "frozen_dtype", "optimizer", "teacher", "class", "pooling", "normalize"),
            *("attention", "append_eos", "prompt_suffix", "mlp", "mlp_only_train", "matryoshka"),
        ),
        _of_run(_WEIGHTS): ("backbone", "tiny"),
        _of_run(_NO_WEIGHTS): ("tiny.dropout",),
        _NO_WEIGHTS: ("lora.dropout",),
        _NO_WEIGHTS._replace(in_arm=False): ("lora.seed",),
        _of_run(COUNTS): ("experiment", "domain"),
        _of_run(_HYDRA): ("hydra",),
        _HYDRA: ("_wandb",),
    }.items()
    for key in keys
}


def effect_of(key: str) -> KeyEffect:
    """Return the `KeyEffect` of a dotted key: its entry in `KEY_EFFECTS`, or the entry of the nearest group that has
    one.

    A key of a part of a mixture has the effect of the same key of ``data``.
    """
    names = key.removeprefix("model.").split(".")
    if names[:2] == ["data", "parts"] and len(names) > 3:
        names = ["data", *names[3:]]
    exact, *groups = (".".join(names[:count]) for count in range(len(names), 0, -1))
    entries = (exact, f"*.{names[-1]}", *groups)
    return next((KEY_EFFECTS[entry] for entry in entries if entry in KEY_EFFECTS), COUNTS)
