"""Settings of a training run: `RunConfig` with model, data, trainer and top-level keys.

All classes of settings that ``configs/`` names are made known to Hydra here. This module imports no torch, so
``--help`` reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.composition.config_store import node, register
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.datamodules.data_configs import KINDS as DATA
from contrastive_encoders.encoders.model_configs import KINDS as MODELS
from contrastive_encoders.encoders.model_configs import TinySizes

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Keys of Lightning's trainer; others are added by ``+trainer.KEY=VALUE``. Null: as the plain keys of the run."""

    target: str = "pytorch_lightning.Trainer"

    accelerator: str = config_field("auto", "cpu, gpu ...")
    devices: int | str | Sequence[int] | None = config_field(None, "null: devices")
    num_nodes: int | None = config_field(None, "null: num_nodes")
    strategy: Any = config_field("auto", "of several processes; trainer=ddp has its keys")
    precision: str | None = config_field(None, "null: that of precision in Lightning's words")
    max_steps: int | None = config_field(None, "null: max_steps")
    max_epochs: int | None = config_field(None, "null: max_epochs")
    max_time: str | None = config_field(None, "null: max_time")
    gradient_clip_val: float | None = config_field(1.0, "largest norm of the gradient")
    log_every_n_steps: int | None = config_field(None, "null: log_every_n_steps")
    default_root_dir: str | None = config_field(None, "null: output_dir")
    use_distributed_sampler: bool = config_field(False, "data modules deal examples to ranks themselves")
    num_sanity_val_steps: int = config_field(0, "batches of validation before training")
    enable_checkpointing: bool = config_field(
        True, "checkpoints of this project; Lightning's own stay out where they are"
    )
    enable_progress_bar: bool = config_field(False, "of Lightning, beside ours")
    enable_model_summary: bool = config_field(False, "of Lightning")


NO_KEY = {"group": True}  # a field of a run that Hydra composes from a group of files, or that is no key at all


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When the state of a run is saved."""

    every_n_steps: int | None = config_field(500, "optimiser steps; null: by time alone", ge=1)
    every_n_minutes: float | None = config_field(15, "or after so long; null: by steps alone", ge=0)
    keep_all: bool = config_field(
        False,
        "true: a finished run keeps previous.ckpt, too, and the optimizer state of best.ckpt; false: last.ckpt, from "
        "which it can be resumed, and the weights of best.ckpt",
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a run is scored on."""

    suite: str | Sequence[str] = config_field("sts", "scored at the end, of best.ckpt; with what of during it lacks")
    data_root: str | None = config_field(None, "folder of the suite's tables; null: no scores of them")
    tasks: str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = config_field(
        None,
        "of your own, scored while training too: files, folders as BEIR has them, YAML files (configs/task has the "
        "keys)",
    )
    protocol: Literal["default", "fast", "sklearn"] = config_field(
        "default", "of SentEval's classifiers, where the suite has them"
    )
    during: str | Sequence[str] = config_field(
        ("stsb-dev",), "scored every n steps, and at the last one; said on the command line, also which of tasks"
    )
    every_n_steps: int | None = config_field(None, "steps between two scores; null: at the end alone", ge=0)
    at_start: bool | None = config_field(
        None,
        "score the encoder before training, too, and end with a verdict; null: where there are tasks; false: not",
    )
    teacher: bool | None = config_field(
        None, "true: score model.teacher, too, and end with size, speed and scores of both; null: not"
    )
    precision: Literal["fp32", "bf16"] = config_field(
        "fp32",
        "of the products that make vectors; bf16: where the hardware has them about 0.7 of the time, scores within "
        "some hundredths",
    )


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Keys of the triplets of a domain's own sentences, written for the stage ``domain`` (GenSE, table 3)."""

    path: str | Sequence[str] | None = config_field(
        None,
        "FILE of the domain's sentences, one per line; several, or a folder; null: stages.domain.data.path has "
        "triplets",
    )
    generator: str | None = config_field(None, "run of model=gense_generator, folder or hub id")
    folder: str = config_field("outputs/domain", "of the triplets; a command that was cut short goes on in it")
    synthesis: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"meaning": "keys of contrastive-encoders generate: +domain.synthesis.rules.threshold=0.8"},
    )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Configuration of a run: model, data, trainer, logger, and the keys of the run itself.

    `compose` makes it from overrides, and `run` trains it. ``model`` and ``data`` are config objects, such as
    `SimCSEConfig` and `TripletDataConfig`. Keys that are not set there follow the keys of the run. A run with
    ``stages`` trains each stage from the best weights of the one before.

    Example:
        >>> from contrastive_encoders import compose
        >>> config = compose(["model=simcse", "data=sentences", "data.path=sentences.txt", "seed=3"])
        >>> config.seed, config.model.temperature
        (3, 0.05)
    """

    model: Any = field(default=None, metadata=NO_KEY)
    data: Any = field(default=None, metadata=NO_KEY)
    trainer: Mapping[str, Any] = field(default_factory=lambda: node(Trainer), metadata=NO_KEY)
    logger: Mapping[str, Any] = field(default_factory=dict, metadata=NO_KEY)
    asked: Sequence[str] = field(
        default=(), metadata=NO_KEY
    )  # keys that the user has set; a recipe's others give way where they cannot be

    # What is trained
    backbone: str | None = config_field(None, "hub id, folder, folder of a run, or tiny; null: the model's own default")
    batch_size: int | None = config_field(
        None, "over all processes: it sets the number of negatives; null: the model's own default", ge=1
    )
    few_rows_epochs: int | None = config_field(
        None,
        "epochs of a run with fewer than 1,000 rows, in batches of half of the rows at most, unless max_steps or "
        "batch_size is set; null: as with more rows",
        ge=1,
    )
    token_budget: int | None = config_field(
        None,
        "tokens computed at once, padding counted; a larger batch is recomputed in chunks; null: about 8 GiB worth, "
        "on a GPU half of its memory",
        ge=1,
    )
    training_length: int | None = config_field(
        None,
        "tokens that training texts are cut at; null: the model's usual_length, and of qa and triplets what holds 99 % "
        "of them whole",
        ge=1,
    )
    usual_length: int | None = config_field(
        None, "the same where training_length is null, of other data than qa and triplets; the model sets it", ge=1
    )
    held_out_share: float | None = config_field(
        None, "of the rows: kept from training and scored as the task held_out; null: 0"
    )
    neighbours: int | None = config_field(None, "of triplets and qa: data.neighbours; null: rows at random", ge=2)
    documents_as: str = config_field(
        "contrastive_encoders.datamodules.documents.TextDocuments", "the class that makes batches of data=text"
    )
    deletion: float | None = config_field(
        None, "share of the words that model=tsdae does not see, drawn anew in every epoch"
    )
    prompts: Mapping[str, Any] = field(
        default_factory=dict, metadata={"meaning": "of GenSE's generator and encoder; prompts=NAME chooses"}
    )
    prompt_assembly: Literal["pieces", "string"] = config_field(
        "pieces", "as published; string: prompt and sentences are joined before they are tokenised"
    )
    freeze: str | None = config_field(
        None,
        "what of the backbone stands still: embeddings; layers:N: them and the N lowest layers; null: nothing",
    )
    domain: Domain = field(default_factory=Domain)
    stages: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "several runs in one, each from the best weights of the one before it: name of a stage -> its "
            "own keys, e.g. stages.nli.max_steps=3, stages.nli.data.fraction=0.5; +stages.NAME.KEY=VALUE makes another "
            "stage"
        },
    )
    only_stage: str | None = config_field(None, "name of the one to run")

    # How long
    max_steps: int = config_field(-1, "optimiser steps; -1: by max_epochs", ge=-1)
    max_epochs: int | None = config_field(None, "null: 1, or as many as max_steps takes", ge=1)
    max_time: str | None = config_field(
        None, "DD:HH:MM:SS; an upper bound: the schedule runs over max_steps or max_epochs"
    )

    # Where and how
    seed: int = config_field(1, "of the order, of spans, masks and dropout, and of new weights")
    precision: Precision = config_field("fp32", "of training")
    devices: int | str | Sequence[int] = config_field("auto", "processes per node")
    num_nodes: int = config_field(1, "machines", ge=1)
    output_dir: str | None = config_field(None, "null: outputs/MODEL-DATA-HASH8")
    mirror: str | None = config_field(
        None,
        "s3://BUCKET/PREFIX or another address: output_dir is copied there after each checkpoint, and fetched from "
        "there where it is empty",
    )
    resume: str | None = config_field(
        "auto", "auto: continue what is there; PATH of a checkpoint; null: from the start"
    )
    overwrite: bool = config_field(False, "true: throw away what another run left in output_dir")
    verify: bool = config_field(
        False, "true: read the whole token store and compare it with its sha256 before training"
    )
    quiet: bool = config_field(False, "true: warnings and errors alone")
    log_every_n_steps: int = config_field(50, "steps between two rows of metrics.csv", ge=1)
    data_licence: str | None = config_field(
        None,
        "of the training data, for the model card, e.g. cc-by-4.0; null: the card says that it is not known",
    )
    name: str | None = config_field(
        None, "of this run's arm in a comparison; null: the objective, settings, or the directory"
    )
    next_steps: str | None = config_field(None, "printed under the closing table: what to try after this recipe")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    # Scores
    monitor: str | None = config_field(
        None, "a score's name, e.g. stsb-dev/cosine/spearman; picks best.ckpt; null: best is last"
    )
    monitor_mode: Literal["max", "min"] | None = config_field(None, "null: min for a loss, max for a score")
    average_with_start: float | None = config_field(
        None,
        "share of the backbone's weights before training in the mean that is scored at the end and exported; null: 0, "
        "the trained weights alone, which checkpoints always have",
        ge=0,
        lt=1,
    )
    early_stopping: int | None = config_field(
        None,
        "end after so many values of the monitor in a row without a better one; null: train to the end",
        ge=1,
    )
    evaluation: Evaluation = field(default_factory=Evaluation)

    tiny: TinySizes = field(
        default_factory=TinySizes,
        metadata={
            "meaning": "backbone=tiny: random weights (4.9 million), a tokenizer trained on the data. Without "
            "pretraining, and in minutes, vocabulary earns more than depth."
        },
    )
    allow_targets: Sequence[str] = config_field(
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
register("run", RunConfig)
register("trainer", Trainer)
