"""The plain keys of a run, and all classes of settings that ``configs/`` names, made known to Hydra.

It imports no torch, so ``--help`` reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from command.settings import register
from contracts.settings import key
from datamodules.settings import KINDS as DATA
from encoders.settings import KINDS as MODELS
from encoders.settings import TinySizes

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When the state of a run is saved."""

    every_n_steps: int | None = key(500, "optimiser steps; null: by time alone", least=1)
    every_n_minutes: float | None = key(15, "or after so long; null: by steps alone", least=0)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a run is scored on."""

    suite: str | Sequence[str] = key("sts", "scored at the end, of best.ckpt; with what of during it lacks")
    data_root: str | None = key(None, "folder of the suite's tables; null: no scores of them")
    tasks: str | Sequence[str | Mapping] | Mapping | None = key(
        None,
        "of your own, scored while training too: files, folders as BEIR has them, YAML files (configs/task has the "
        "keys)",
    )
    protocol: Literal["default", "fast", "sklearn"] = key(
        "default", "of SentEval's classifiers, where the suite has them"
    )
    during: str | Sequence[str] = key(
        ("stsb-dev",), "scored every n steps, and at the last one; said on the command line, also which of tasks"
    )
    every_n_steps: int | None = key(None, "steps between two scores; null: at the end alone", least=0)
    at_start: bool | None = key(
        None,
        "score the encoder before training, too, and end with a verdict; null: where there are tasks; false: not",
    )
    precision: Literal["fp32", "bf16"] = key(
        "fp32",
        "of the products that make vectors; bf16: where the hardware has them about 0.7 of the time, scores within "
        "some hundredths",
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """The plain keys of a run, which the model, the data, the trainer and the callbacks read alike."""

    # What is trained
    backbone: str | None = key(None, "hub id, folder, folder of a run, or tiny; null: the model's own default")
    batch_size: int | None = key(
        None, "over all processes: it sets the number of negatives; null: the model's own default", least=1
    )
    token_budget: int | None = key(
        None,
        "padded tokens computed at once; a larger batch is recomputed in chunks; null: about 8 GiB worth, on a GPU "
        "half of its memory",
        least=1,
    )
    training_length: int | None = key(
        None,
        "tokens that training texts are cut at; null: the model's usual_length, and of qa and triplets what holds 99 % "
        "of them whole",
        least=1,
    )
    freeze: str | None = key(
        None,
        "what of the backbone stands still: embeddings; layers:N: them and the N lowest layers; null: nothing",
    )
    stages: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "several runs in one, each from the best weights of the one before it: name of a stage -> its "
            "own keys, e.g. stages.nli.max_steps=3, stages.nli.data.fraction=0.5; +stages.NAME.KEY=VALUE makes another "
            "stage"
        },
    )
    only_stage: str | None = key(None, "name of the one to run")

    # How long
    max_steps: int = key(-1, "optimiser steps; -1: by max_epochs", least=-1)
    max_epochs: int | None = key(None, "null: 1, or as many as max_steps takes", least=1)
    max_time: str | None = key(None, "DD:HH:MM:SS; an upper bound: the schedule runs over max_steps or max_epochs")

    # Where and how
    seed: int = key(1, "of the order, of spans, masks and dropout, and of new weights")
    precision: Precision = key("fp32", "of training")
    devices: int | str | Sequence[int] = key("auto", "processes per node")
    num_nodes: int = key(1, "machines", least=1)
    output_dir: str = key(of="run_folder:", meaning="null: outputs/MODEL-DATA-HASH8")
    resume: str | None = key("auto", "auto: continue what is there; PATH of a checkpoint; null: from the start")
    overwrite: bool = key(False, "true: throw away what another run left in output_dir")
    verify: bool = key(False, "true: read the whole token store and compare it with its sha256 before training")
    quiet: bool = key(False, "true: warnings and errors alone")
    log_every_n_steps: int = key(50, "steps between two rows of metrics.csv", least=1)
    data_licence: str | None = key(
        None,
        "of the training data, for the model card, e.g. cc-by-4.0; null: the card says that it is not known",
    )
    next_steps: str | None = key(None, "printed under the closing table: what to try after this recipe")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    # Scores
    monitor: str | None = key(
        None, "a score's name, e.g. stsb-dev/cosine/spearman; picks best.ckpt; null: best is last"
    )
    monitor_mode: Literal["max", "min"] | None = key(None, "null: min for a loss, max for a score")
    early_stopping: int | None = key(
        None,
        "end after so many values of the monitor in a row without a better one; null: train to the end",
        least=1,
    )
    evaluation: Evaluation = field(default_factory=Evaluation)

    tiny: TinySizes = field(
        default_factory=TinySizes,
        metadata={
            "meaning": "backbone=tiny: random weights (4.9 million), a tokenizer trained on the data. Without "
            "pretraining, and in minutes, vocabulary earns more than depth."
        },
    )
    allow_targets: Sequence[str] = key(
        (),
        "prefixes, e.g. my_package: a _target_ may name what begins so; of others only classes of this project and "
        "Lightning",
    )
    callbacks: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "more of Lightning's, by _target_: +callbacks.stop={_target_: "
            "pytorch_lightning.callbacks.EarlyStopping, monitor: ...}"
        },
    )


for _group, _kinds in {"data": DATA, "model": MODELS}.items():
    for _name, _kind in _kinds.items():
        register(f"{_group}/{_name}", _kind)
register("run", Run)
