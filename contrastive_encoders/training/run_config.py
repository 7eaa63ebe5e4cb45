"""Configuration of a training run: `RunConfig` with model, data, trainer, and top-level keys.

This module registers all config classes with Hydra. It does not import torch, so that ``--help`` is fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.composition.config_store import config_node, register
from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field
from contrastive_encoders.datamodules.data_configs import KINDS as DATA
from contrastive_encoders.encoders.model_configs import TinySizes
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS as MODELS

DEFAULT_MODELS = {  # data= -> model= that is suggested, and chosen for rows in memory
    "dino": "sroberta",
    "nli": "sbert_nli",
    "nli_generation": "gense_generator",
    "pydocs": "declutr",
    "pydocs_pairs": "pairs",
    "qa": "pairs",
    "sentences": "simcse",
    "text": "declutr",
    "triplets": "simcse",
}
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Keys of Lightning's trainer. ``+trainer.KEY=VALUE`` adds others; null means the key of the run with this name."""

    target: str = "pytorch_lightning.Trainer"

    accelerator: str = config_field("auto", "cpu, gpu, ...")
    devices: int | str | Sequence[int] | None = config_field(None, "null: devices")
    num_nodes: int | None = config_field(None, "null: num_nodes")
    strategy: Any = config_field("auto", "distribution strategy; see trainer=ddp")
    precision: str | None = config_field(None, "null: from precision")
    max_steps: int | None = config_field(None, "null: max_steps")
    max_epochs: int | None = config_field(None, "null: max_epochs")
    max_time: str | None = config_field(None, "null: max_time")
    gradient_clip_val: float | None = config_field(1.0, "maximum norm of the gradients")
    log_every_n_steps: int | None = config_field(None, "null: log_every_n_steps")
    default_root_dir: str | None = config_field(None, "null: output_dir")
    use_distributed_sampler: bool = config_field(
        False, "false: the data modules distribute examples over ranks themselves"
    )
    num_sanity_val_steps: int = config_field(0, "validation batches before training")
    enable_checkpointing: bool = config_field(True, "checkpoints of this project (Lightning's own are off)")
    enable_progress_bar: bool = config_field(False, "Lightning's progress bar, in addition to ours")
    enable_model_summary: bool = config_field(False, "Lightning's model summary")


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Keys of Lightning's TensorBoard logger."""

    target: str = "pytorch_lightning.loggers.TensorBoardLogger"

    save_dir: str | None = config_field(None, "null: output_dir")
    name: str = config_field("tensorboard", "name of the directory in save_dir")
    version: str = config_field("", "name of a directory in it; empty: none")
    default_hp_metric: bool = config_field(False, "whether to log a metric of this name for the hyperparameters")


@dataclass(frozen=True, kw_only=True)
class WandbLogger:
    """Keys of the W&B logger."""

    target: str = "contrastive_encoders.training.wandb_session.wandb_logger"

    output_dir: str | None = config_field(None, "null: output_dir of the run")
    project: str = config_field("contrastive-encoders", "project on W&B")
    name: str | None = config_field(None, "name on W&B; null: that of the output directory")
    group: str | None = config_field(None, "group on W&B, e.g. the seeds of one comparison")
    offline: bool = config_field(False, "true: write to the disk")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Keys for saving the state of a run."""

    every_n_steps: int | None = config_field(500, "save every n optimizer steps; null: by time only", ge=1)
    every_n_minutes: float | None = config_field(15, "or after this many minutes; null: by steps only", ge=0)
    keep_all: bool = config_field(
        False,
        "false: a finished run keeps last.ckpt, from which it can be resumed, and the weights of best.ckpt; "
        "true: also previous.ckpt and the optimizer state of best.ckpt",
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Tasks that a run is evaluated on, and the steps at which it is."""

    suite: str | Sequence[str] = config_field(
        "sts", "suites to evaluate best.ckpt on at the end, in addition to those of during_training"
    )
    data_root: str | None = config_field(None, "directory of the suites' tables; null: suites are not evaluated")
    custom_tasks: str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = config_field(
        None,
        "your own tasks, also evaluated during training: files, directories in BEIR's layout, or YAML files "
        "(docs/evaluation-protocols.md)",
    )
    protocol: Literal["default", "fast", "sklearn"] = config_field(
        "default", "protocol of SentEval's classifiers, if the suite has them"
    )
    during_training: str | Sequence[str] = config_field(
        ("stsb-dev",),
        "suites or tasks to evaluate every n steps and at the last step; if you set it, it also selects among "
        "your own tasks",
    )
    every_n_steps: int | None = config_field(None, "steps between two evaluations; null: only at the end", ge=0)
    at_start: bool | None = config_field(
        None,
        "true: evaluate the encoder before training, too, and end with a verdict; null: if there are tasks; "
        "false: never",
    )
    compare_with_teacher: bool | None = config_field(
        None, "true: evaluate model.teacher, too, and compare size, speed, and scores; null: don't"
    )
    precision: Literal["fp32", "bf16"] = config_field(
        "fp32",
        "precision of matrix products in evaluation; bf16 takes about 0.7 of the time on hardware with "
        "support, and changes scores by a few hundredths",
    )


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Keys of the triplets that are generated from a domain's sentences for the stage ``domain`` (GenSE, table 3)."""

    path: str | Sequence[str] | None = config_field(
        None,
        "file with sentences of the domain, one per line; or several, or a directory; null: "
        "stages.domain.data.path has triplets",
    )
    generator: str | None = config_field(None, "run of model=gense_generator, directory, or hub id")
    folder: str = config_field(
        "outputs/domain", "directory of the generated triplets; an interrupted command resumes there"
    )
    synthesis: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"meaning": "keys of contrastive-encoders generate: +domain.synthesis.rules.threshold=0.8"},
    )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Configuration of a run: model, data, trainer, logger, and the keys of the run itself.

    `compose` creates it from overrides, and `run` trains it. ``model`` and ``data`` are config objects, such as
    `SimCSEConfig` and `TripletDataConfig`. Their unset keys inherit the values of the run's keys. A run with ``stages``
    trains each stage from the best weights of the previous one.

    Example:
        >>> from contrastive_encoders import compose
        >>> config = compose(["model=simcse", "data=sentences", "data.path=sentences.txt", "seed=3"])
        >>> config.seed, config.model.temperature
        (3, 0.05)
    """

    model: Any = field(default=None, metadata=NOT_A_KEY)
    data: Any = field(default=None, metadata=NOT_A_KEY)
    trainer: Mapping[str, Any] = field(default_factory=lambda: config_node(Trainer), metadata=NOT_A_KEY)
    logger: Mapping[str, Any] = field(default_factory=dict, metadata=NOT_A_KEY)
    explicit_keys: Sequence[str] = field(
        default=(), metadata=NOT_A_KEY
    )  # keys that the user has set; an experiment's other keys are dropped if they do not apply

    # Model and data
    backbone: str | None = config_field(
        None, "hub id, directory, directory of a run, or tiny; null: the default of the model"
    )
    batch_size: int | None = config_field(
        None,
        "examples per batch over all processes, which sets the number of in-batch negatives; null: the "
        "default of the model",
        ge=1,
    )
    few_rows_epochs: int | None = config_field(
        None,
        "epochs of a run with fewer than 1,000 rows, in batches of at most half of the rows, unless max_steps "
        "or batch_size is set; null: as with more rows",
        ge=1,
    )
    token_budget: int | None = config_field(
        None,
        "tokens per forward pass, padding included; larger batches are recomputed in chunks; null: about 8 "
        "GiB worth, on a GPU half of its memory",
        ge=1,
    )
    train_max_length: int | None = config_field(
        None,
        "maximum length of training texts in tokens; null: default_train_max_length, or for qa and triplets a length "
        "that covers 99 % of the texts",
        ge=1,
    )
    default_train_max_length: int | None = config_field(
        None, "the default of train_max_length for data other than qa and triplets; the model sets it", ge=1
    )
    held_out_fraction: float | None = config_field(
        None, "fraction of the rows that is kept from training and evaluated as the task held_out; null: 0"
    )
    neighbor_group_size: int | None = config_field(
        None, "data.neighbor_group_size of triplets and qa; null: random batches", ge=2
    )
    document_datamodule: str = config_field(
        "contrastive_encoders.datamodules.documents.TextDocuments", "data module class of data=text"
    )
    deletion_ratio: float | None = config_field(
        None, "fraction of the words that are deleted for model=tsdae, drawn anew in every epoch"
    )
    prompts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"meaning": "prompts of GenSE's generator and encoder; prompts=NAME selects them"},
    )
    prompt_assembly: Literal["pieces", "string"] = config_field(
        "pieces",
        "pieces: prompt and sentences are tokenized separately, as published; string: they are joined before "
        "tokenization",
    )
    freeze: str | None = config_field(
        None,
        "parts of the backbone that are frozen: embeddings; layers:N: also the N lowest layers; null: none",
    )
    domain: Domain = field(default_factory=Domain)
    stages: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "several runs in one, each from the best weights of the previous one: name of a stage -> "
            "its own keys, e.g. stages.nli.max_steps=3; +stages.NAME.KEY=VALUE adds a stage"
        },
    )
    only_stage: str | None = config_field(None, "name of the only stage to run")

    # Duration
    max_steps: int = config_field(-1, "optimizer steps; -1: set by max_epochs", ge=-1)
    max_epochs: int | None = config_field(None, "null: 1, or as many as max_steps needs", ge=1)
    max_time: str | None = config_field(
        None, "upper bound of the training time, DD:HH:MM:SS; the schedule still covers max_steps or max_epochs"
    )

    # Location and hardware
    seed: int = config_field(1, "seed of shuffling, spans, masks, dropout, and new weights")
    precision: Precision = config_field("fp32", "precision of training")
    devices: int | str | Sequence[int] = config_field("auto", "number of processes per node, or indices of GPUs")
    num_nodes: int = config_field(1, "number of machines", ge=1)
    output_dir: str | None = config_field(None, "directory of the run; null: outputs/MODEL-DATA-HASH8")
    remote_output_dir: str | None = config_field(
        None,
        "s3://BUCKET/PREFIX or another URL: output_dir is copied there after each checkpoint, and fetched "
        "from there if it is empty",
    )
    resume: str | None = config_field(
        "auto", "auto: resume from output_dir if possible; PATH of a checkpoint; null: start from scratch"
    )
    overwrite: bool = config_field(False, "true: delete what another run left in output_dir")
    verify: bool = config_field(False, "true: check the SHA-256 of the whole token store before training")
    quiet: bool = config_field(False, "true: only warnings and errors")
    log_every_n_steps: int = config_field(50, "steps between two rows of metrics.csv", ge=1)
    data_license: str | None = config_field(
        None,
        "license of the training data for the model card, e.g. cc-by-4.0; null: the card states that it is unknown",
    )
    name: str | None = config_field(None, "name in comparisons; null: the objective, the settings, or the directory")
    next_steps: str | None = config_field(None, "text printed after the closing table: what to try next")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    # Evaluation
    monitor: str | None = config_field(
        None, "score that selects best.ckpt, e.g. stsb-dev/cosine/spearman; null: the last checkpoint is the best"
    )
    monitor_mode: Literal["max", "min"] | None = config_field(
        None, "whether higher or lower is better; null: min for a loss, max for a score"
    )
    initial_weights_fraction: float | None = config_field(
        None,
        "weight averaging: share of the initial weights in the encoder that is evaluated at the end and "
        "exported; null: 0; checkpoints always have the trained weights",
        ge=0,
        lt=1,
    )
    early_stopping: int | None = config_field(
        None,
        "stop after this many values of monitor in a row without an improvement; null: train to the end",
        ge=1,
    )
    evaluation: Evaluation = field(default_factory=Evaluation)

    tiny: TinySizes = field(
        default_factory=TinySizes,
        metadata={
            "meaning": "backbone=tiny: random weights (4.9 million parameters) and a tokenizer trained on the data; "
            "in short runs from scratch, a larger vocabulary helps more than more layers"
        },
    )
    allow_targets: Sequence[str] = config_field(
        (),
        "packages whose code a _target_ may name, e.g. [my_package]; by default only classes of this project "
        "and of Lightning",
    )
    callbacks: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "further Lightning callbacks, by _target_: +callbacks.stop={_target_: "
            "pytorch_lightning.callbacks.EarlyStopping, monitor: ...}"
        },
    )


for _group, _kinds in {"data": DATA, "model": MODELS}.items():
    for _name, _kind in _kinds.items():
        register(f"{_group}/{_name}", _kind)
register("run", RunConfig)
register("trainer", Trainer)
register("logger/tensorboard", TensorBoard)
register("logger/wandb", WandbLogger)
