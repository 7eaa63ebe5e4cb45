"""Configuration of a training run: `RunConfig` with model, data, trainer, and top-level keys.

This module registers the config classes of a run with Hydra. It does not import torch, so that ``--help`` is fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.composition.config_store import config_node, register
from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.model_configs import TinySizes
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS

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

    accelerator: str = config_field("auto", "Lightning accelerator: auto, cpu, gpu, ...")
    devices: int | str | Sequence[int] | None = config_field(None, "number of devices; null: value of devices")
    num_nodes: int | None = config_field(None, "number of nodes; null: value of num_nodes")
    strategy: Any = config_field("auto", "distributed strategy of Lightning; see trainer=ddp and trainer=fsdp")
    precision: str | None = config_field(None, "Lightning's precision, e.g. bf16-mixed; null: from precision")
    max_steps: int | None = config_field(None, "maximum number of optimizer steps; null: value of max_steps")
    max_epochs: int | None = config_field(None, "maximum number of epochs; null: value of max_epochs")
    max_time: str | None = config_field(None, "maximum training time; null: value of max_time")
    gradient_clip_val: float | None = config_field(1.0, "maximum gradient norm, to which gradients are clipped")
    log_every_n_steps: int | None = config_field(None, "steps between two log rows; null: value of log_every_n_steps")
    default_root_dir: str | None = config_field(None, "directory for Lightning's files; null: value of output_dir")
    use_distributed_sampler: bool = config_field(
        False, "whether Lightning distributes examples over ranks; false: the data modules do"
    )
    num_sanity_val_steps: int = config_field(0, "number of validation batches before training")
    enable_checkpointing: bool = config_field(
        True, "whether to save checkpoints; they are saved by this project, not by Lightning"
    )
    enable_progress_bar: bool = config_field(
        False, "whether to show Lightning's progress bar in addition to this project's"
    )
    enable_model_summary: bool = config_field(False, "whether to print Lightning's model summary")


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Keys of Lightning's TensorBoard logger."""

    target: str = "pytorch_lightning.loggers.TensorBoardLogger"

    save_dir: str | None = config_field(None, "directory of the logs; null: value of output_dir")
    name: str = config_field("tensorboard", "name of the subdirectory of save_dir")
    version: str = config_field("", "name of a directory within that subdirectory; empty: none")
    default_hp_metric: bool = config_field(False, "whether to log the metric hp_metric for the hyperparameters")


@dataclass(frozen=True, kw_only=True)
class WandbLogger:
    """Keys of the W&B logger."""

    target: str = "contrastive_encoders.training.wandb_session.wandb_logger"

    output_dir: str | None = config_field(None, "directory of W&B's files; null: output_dir of the run")
    project: str = config_field("contrastive-encoders", "name of the W&B project")
    name: str | None = config_field(None, "name of the W&B run; null: name of the output directory")
    group: str | None = config_field(None, "W&B group, e.g. for the seeds of one comparison")
    offline: bool = config_field(False, "whether to log to the local disk instead of the W&B server")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Keys for saving the state of a run."""

    every_n_steps: int | None = config_field(
        500, "optimizer steps between two checkpoints; null: no checkpoints by steps", ge=1
    )
    every_n_minutes: float | None = config_field(
        15, "minutes between two checkpoints; null: no checkpoints by time", ge=0
    )
    keep_all: bool = config_field(
        False,
        "whether a finished run keeps previous.ckpt and the optimizer state of best.ckpt, too; false: it keeps "
        "last.ckpt, from which it can be resumed, and the weights of best.ckpt",
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Tasks that a run is evaluated on, and the steps at which it is."""

    suite: str | Sequence[str] = config_field(
        "sts", "task suites on which best.ckpt is evaluated at the end, in addition to those of during_training"
    )
    data_root: str | None = config_field(None, "directory of the suites' tables; null: suites are not evaluated")
    custom_tasks: str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = config_field(
        None,
        "custom tasks, also evaluated during training: files, directories in BEIR's layout, or YAML files "
        "(docs/evaluation-protocols.md)",
    )
    protocol: Literal["default", "fast", "sklearn"] = config_field(
        "default", "protocol of SentEval's classifiers, if the suite has them"
    )
    during_training: str | Sequence[str] = config_field(
        ("stsb-dev",),
        "suites or tasks that are evaluated every every_n_steps steps and at the last step; if set explicitly, custom "
        "tasks must be listed here, too",
    )
    every_n_steps: int | None = config_field(None, "steps between two evaluations; null: only at the end", ge=0)
    at_start: bool | None = config_field(
        None,
        "whether to evaluate the encoder before training, too, which the final verdict needs; null: true if there are "
        "tasks",
    )
    compare_with_teacher: bool | None = config_field(
        None, "whether to evaluate model.teacher, too, and compare size, speed, and scores; null: false"
    )
    precision: Literal["fp32", "bf16"] = config_field(
        "fp32",
        "precision of matrix multiplications in evaluation; bf16 takes about 0.7 of the time on supported hardware and "
        "changes scores by a few hundredths",
    )


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Keys of the triplets that are generated from a domain's sentences for the stage ``domain`` (GenSE, table 3)."""

    path: str | Sequence[str] | None = config_field(
        None,
        "one or several files, or a directory, with sentences of the domain, one per line; null: no generation, "
        "stages.domain.data.path has triplets",
    )
    generator: str | None = config_field(
        None, "triplet generator: run directory of model=gense_generator, model directory, or Hub id"
    )
    folder: str = config_field(
        "outputs/domain", "directory of the generated triplets, from which an interrupted command resumes"
    )
    synthesis: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "keys of contrastive-encoders generate for the triplets, e.g. "
            "+domain.synthesis.rules.threshold=0.8"
        },
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
        None, "initial encoder: Hub id, model directory, run directory, or tiny; null: the model's default"
    )
    batch_size: int | None = config_field(
        None,
        "number of examples per batch over all processes, which determines the number of in-batch negatives; null: the "
        "model's default",
        ge=1,
    )
    few_rows_epochs: int | None = config_field(
        None,
        "number of epochs for fewer than 1,000 rows, in batches of at most half of the rows, unless max_steps or "
        "batch_size is set; null: same steps and batches as for more rows",
        ge=1,
    )
    token_budget: int | None = config_field(
        None,
        "maximum number of tokens per forward pass, including padding; larger batches are split into chunks and "
        "recomputed; null: about 8 GiB of activations, on a GPU half of its memory",
        ge=1,
    )
    train_max_length: int | None = config_field(
        None,
        "maximum length of training texts in tokens; null: default_train_max_length, except for qa and triplets, whose "
        "length covers 99 % of the texts",
        ge=1,
    )
    default_train_max_length: int | None = config_field(
        None, "default of train_max_length for data other than qa and triplets, set by the model's config", ge=1
    )
    held_out_fraction: float | None = config_field(
        None, "fraction of the rows that is excluded from training and evaluated as the task held_out; null: 0"
    )
    neighbor_group_size: int | None = config_field(
        None,
        "value of data.neighbor_group_size for triplets and qa: number of similar rows that are grouped within a "
        "batch; null: random batches",
        ge=2,
    )
    document_datamodule: str = config_field(
        "contrastive_encoders.datamodules.documents.TextDocuments", "class path of the data module for data=text"
    )
    deletion_ratio: float | None = config_field(
        None, "fraction of the words that are deleted for model=tsdae, sampled again in every epoch"
    )
    prompts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"meaning": "prompts of GenSE's generator and encoder; prompts=NAME selects them"},
    )
    prompt_assembly: Literal["pieces", "string"] = config_field(
        "pieces",
        "tokenization of GenSE's prompts; pieces: prompt and sentences separately, as published; string: both joined "
        "into one string",
    )
    freeze: str | None = config_field(
        None,
        "frozen part of the backbone; embeddings: the token embeddings; layers:N: also the N lowest layers; null: none",
    )
    domain: Domain = field(default_factory=Domain)
    stages: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "training stages, each from the best weights of the previous one: name of a stage -> its own "
            "keys, e.g. "
            "stages.nli.max_steps=3; +stages.NAME.KEY=VALUE adds a stage"
        },
    )
    only_stage: str | None = config_field(None, "name of the only stage to train; null: all stages")

    # Duration
    max_steps: int = config_field(-1, "maximum number of optimizer steps; -1: determined by max_epochs", ge=-1)
    max_epochs: int | None = config_field(
        None, "maximum number of epochs; null: as many as max_steps needs, or 1 without max_steps", ge=1
    )
    max_time: str | None = config_field(
        None, "maximum training time, DD:HH:MM:SS; the learning rate schedule still covers max_steps or max_epochs"
    )

    # Location and hardware
    seed: int = config_field(1, "random seed of shuffling, spans, masks, dropout, and new weights")
    precision: Precision = config_field("fp32", "floating-point precision of training")
    devices: int | str | Sequence[int] = config_field("auto", "number of processes per node, or indices of GPUs")
    num_nodes: int = config_field(1, "number of nodes", ge=1)
    output_dir: str | None = config_field(None, "directory of the run's files; null: outputs/MODEL-DATA-HASH8")
    remote_output_dir: str | None = config_field(
        None,
        "URL, such as s3://BUCKET/PREFIX, to which output_dir is copied after each checkpoint, and from which it is "
        "fetched if it is empty; null: no copies",
    )
    resume: str | None = config_field(
        "auto", "checkpoint to resume from; auto: the one in output_dir, if any; PATH: a checkpoint file; null: none"
    )
    overwrite: bool = config_field(False, "whether to delete the files of another run in output_dir")
    verify: bool = config_field(
        False, "whether to check the SHA-256 checksum of the complete token store before training"
    )
    quiet: bool = config_field(False, "whether to show warnings and errors only")
    log_every_n_steps: int = config_field(50, "optimizer steps between two rows of metrics.csv", ge=1)
    data_license: str | None = config_field(
        None,
        "license of the training data for the model card, e.g. cc-by-4.0; null: the card states that it is unknown",
    )
    name: str | None = config_field(None, "name of the run in comparisons; null: objective, settings, or directory")
    next_steps: str | None = config_field(None, "text that is printed after the final results, e.g. what to try next")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    # Evaluation
    monitor: str | None = config_field(
        None, "score that selects best.ckpt, e.g. stsb-dev/cosine/spearman; null: best.ckpt is the last checkpoint"
    )
    monitor_mode: Literal["max", "min"] | None = config_field(
        None, "whether higher (max) or lower (min) values of monitor are better; null: min for a loss, max for a score"
    )
    initial_weights_fraction: float | None = config_field(
        None,
        "fraction of the initial weights in the weight average that is evaluated at the end and exported; checkpoints "
        "always have the trained weights; null: 0",
        ge=0,
        lt=1,
    )
    early_stopping: int | None = config_field(
        None,
        "number of consecutive values of monitor without an improvement after which training stops; null: no early "
        "stopping",
        ge=1,
    )
    evaluation: Evaluation = field(default_factory=Evaluation)

    tiny: TinySizes = field(
        default_factory=TinySizes,
        metadata={
            "meaning": "sizes of backbone=tiny, which has random weights (4.9 million parameters) and a tokenizer "
            "trained on the data; "
            "in short runs from scratch, a larger vocabulary helps more than more layers"
        },
    )
    allow_targets: Sequence[str] = config_field(
        (),
        "packages whose code a _target_ may refer to, e.g. [my_package], in addition to this project and Lightning",
    )
    callbacks: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "additional Lightning callbacks by _target_, e.g. +callbacks.stop={_target_: "
            "pytorch_lightning.callbacks.EarlyStopping, monitor: ...}"
        },
    )


register({f"data/{_name}": _kind for _name, _kind in DATA_CONFIGS.items()})
register({f"model/{_name}": _kind for _name, _kind in MODEL_CONFIGS.items()})
register({"run": RunConfig, "trainer": Trainer, "logger/tensorboard": TensorBoard, "logger/wandb": WandbLogger})
