"""Configuration of a training run: `RunConfig` with model, data, trainer, and top-level keys.

This module registers the config classes of a run with Hydra. It does not import torch, so that ``--help`` is fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.model_configs import TinySizes
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.training.composition.config_store import config_node, register

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
    """Configuration of Lightning's trainer. Other arguments are the run's own keys, such as ``max_steps``;
    ``+trainer.KEY=VALUE`` adds further ones.
    """

    target: str = "pytorch_lightning.Trainer"

    accelerator: str = config_field(
        "auto", "hardware on which Lightning trains: auto, cpu, gpu, or another accelerator that Lightning supports"
    )
    strategy: Any = config_field("auto", "Lightning's distributed strategy; trainer=ddp and trainer=fsdp set this key")
    gradient_clip_val: float | None = config_field(
        1.0, "maximum gradient norm; gradients with a larger norm are scaled down to this norm; null: no clipping"
    )
    use_distributed_sampler: bool = config_field(
        False, "whether Lightning distributes examples over ranks; false: the data modules distribute them"
    )
    num_sanity_val_steps: int = config_field(0, "number of validation batches that Lightning runs before training")
    enable_checkpointing: bool = config_field(
        True, "whether to save checkpoints; this project's callback saves them, not Lightning's"
    )
    enable_progress_bar: bool = config_field(
        False, "whether to show Lightning's progress bar in addition to this project's"
    )
    enable_model_summary: bool = config_field(False, "whether to print Lightning's model summary")


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Configuration of Lightning's TensorBoard logger."""

    target: str = "pytorch_lightning.loggers.TensorBoardLogger"

    save_dir: str | None = config_field(None, "directory of the logs; null: same as the run's output_dir")
    name: str = config_field("tensorboard", "name of the subdirectory of save_dir that contains the logs")
    version: str = config_field(
        "", "name of a directory in save_dir/name that contains the logs; empty: the logs are in save_dir/name itself"
    )
    default_hp_metric: bool = config_field(
        False, "whether to log TensorBoard's placeholder metric hp_metric along with the hyperparameters"
    )


@dataclass(frozen=True, kw_only=True)
class WandbLogger:
    """Configuration of the W&B logger."""

    target: str = "contrastive_encoders.training.wandb_session.wandb_logger"

    output_dir: str | None = config_field(None, "directory of W&B's local files; null: same as the run's output_dir")
    project: str = config_field("contrastive-encoders", "name of the W&B project")
    name: str | None = config_field(None, "name of the W&B run; null: the name of the output directory")
    group: str | None = config_field(
        None, "name of the W&B group, e.g. to group the seeds of a comparison; null: no group"
    )
    offline: bool = config_field(False, "whether to log to the local disk instead of the W&B server")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Configuration of the times at which checkpoints are saved, and of the checkpoints that a finished run keeps."""

    every_n_steps: int | None = config_field(
        500,
        "number of optimizer steps between two checkpoints; null: the number of steps does not trigger checkpoints",
        ge=1,
    )
    every_n_minutes: float | None = config_field(
        15, "number of minutes between two checkpoints; null: the elapsed time does not trigger checkpoints", ge=0
    )
    keep_all: bool = config_field(
        False,
        "whether a finished run keeps all checkpoints; true: all, including previous.ckpt and the optimizer state of "
        "best.ckpt; false: only last.ckpt, from which the run can be resumed, and the weights of best.ckpt",
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Configuration of the tasks on which a run is evaluated, and of the steps at which it is evaluated."""

    suite: str | Sequence[str] = config_field(
        "sts", "task suites on which best.ckpt is evaluated at the end, in addition to the tasks in during_training"
    )
    data_root: str | None = config_field(None, "directory of the evaluation tables; null: suites are not evaluated")
    custom_tasks: str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = config_field(
        None,
        "files, directories in BEIR's layout, or YAML files that define custom tasks, which are evaluated before "
        "and after training and every `every_n_steps` steps (docs/evaluation-protocols.md)",
    )
    protocol: Literal["default", "fast", "sklearn"] = config_field(
        "default", "training protocol of SentEval's classifiers, for suites that contain SentEval's transfer tasks"
    )
    during_training: str | Sequence[str] = config_field(
        ("stsb-dev",),
        "suites or tasks that are evaluated every `every_n_steps` steps and at the last step; unless this key is set, "
        "the custom tasks are added to them and, if `every_n_steps` is set or `monitor` is one of their scores, the "
        "tasks that the data hold out",
    )
    every_n_steps: int | None = config_field(
        None, "number of steps between two evaluations; null: evaluation only before and after training", ge=0
    )
    at_start: bool | None = config_field(
        None,
        "whether to also evaluate the encoder before training; false: the run does not state whether training improved "
        "the encoder; null: true if the run has evaluation tasks",
    )
    compare_with_teacher: bool | None = config_field(
        None,
        "whether to also evaluate model.teacher, and compare its size, speed, and scores with those of the encoder, "
        "with intervals; null: false",
    )
    precision: Literal["fp32", "bf16"] = config_field(
        "fp32",
        "precision of matrix multiplications in evaluation; bf16 takes about 0.7 times as long as fp32 on "
        "supported hardware, and changes scores by a few hundredths of a point",
    )


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Configuration of the synthesis of triplets from a domain's sentences, which the stage ``domain`` trains on
    (GenSE, table 3).
    """

    path: str | Sequence[str] | None = config_field(
        None,
        "file, list of files, or directory with the domain's sentences, one per line; null: nothing is generated, and "
        "stages.domain.data.path must name existing triplets",
    )
    generator: str | None = config_field(
        None, "model that generates the triplets: run directory of model=gense_generator, model directory, or Hub id"
    )
    folder: str = config_field(
        "outputs/domain", "directory to which the triplets are written, and from which an interrupted command resumes"
    )
    synthesis: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "additional keys that are passed to the command `contrastive-encoders generate` for this "
            "synthesis, e.g. +domain.synthesis.rules.threshold=0.8"
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
        "number of examples per batch over all processes, which determines the number of in-batch negatives; null: "
        "data.batch_size, which must be set",
        ge=1,
    )
    few_rows_epochs: int | None = config_field(
        None,
        "limits max_steps to this number times rows / batch_size if there are fewer than 1,000 training rows; batches "
        "then contain at most half of "
        "the rows; max_steps and batch_size take precedence if they are set; null: a small number of rows does not "
        "change the number of steps or the batch size",
        ge=1,
    )
    token_budget: int | None = config_field(
        None,
        "maximum number of tokens per forward pass, including padding; larger batches are split into chunks, whose "
        "activations are recomputed in the backward pass; null: as many tokens as require about 8 GiB of "
        "activations on a CPU; on a GPU, as many as fit into half of the memory that float32 weights, gradients, and "
        "Adam's moments leave",
        ge=1,
    )
    train_max_length: int | None = config_field(
        None,
        "maximum length of training texts in tokens; null: the value of default_train_max_length or, for data=qa "
        "and data=triplets, the length that covers 99 % of the texts",
        ge=1,
    )
    default_train_max_length: int | None = config_field(
        None,
        "default of train_max_length, set by the config of the model; data=qa and data=triplets do not use it",
        ge=1,
    )
    held_out_fraction: float | None = config_field(
        None,
        "fraction of the rows that are held out from training and evaluated as the task held_out, at most 1,000 rows; "
        "null: 0",
        ge=0,
        le=0.5,
    )
    neighbor_group_size: int | None = config_field(
        None,
        "number of similar rows that are placed next to each other in the order of an epoch; this is the default of "
        "data.neighbor_group_size for "
        "data=triplets and data=qa; null: batches consist of random rows",
        ge=2,
    )
    document_datamodule: str = config_field(
        "contrastive_encoders.datamodules.documents.TextDocuments", "import path of the data module class for data=text"
    )
    deletion_ratio: float | None = config_field(
        None,
        "fraction of the words that model=tsdae deletes from each text; the words are sampled again in every epoch",
    )
    prompts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"meaning": "prompts of GenSE's generator and encoder; prompts=NAME chooses a file of prompts"},
    )
    prompt_assembly: Literal["pieces", "string"] = config_field(
        "pieces",
        "how GenSE's prompts are tokenized; pieces: prompt and sentences are tokenized separately, as published; "
        "string: prompt and sentences are joined and tokenized as one string",
    )
    freeze: str | None = config_field(
        None,
        "part of the backbone that is frozen; embeddings: the token embeddings; layers:N: the token embeddings and "
        "the N lowest layers; null: nothing is frozen",
    )
    domain: Domain = field(default_factory=Domain)
    stages: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "mapping of stage names to the keys of each stage, e.g. stages.nli.max_steps=3; each stage "
            "starts from the best weights of the previous stage; +stages.NAME.KEY=VALUE adds a stage"
        },
    )
    only_stage: str | None = config_field(
        None, "name of the stage to train, without the other stages; null: all stages are trained"
    )

    # Duration
    max_steps: int = config_field(
        -1, "maximum number of optimizer steps; -1: max_epochs determines the number of steps", ge=-1
    )
    max_epochs: int | None = config_field(
        None, "maximum number of epochs; null: as many as max_steps requires, or 1 if max_steps is not set", ge=1
    )
    max_time: str | None = config_field(
        None, "maximum training time, DD:HH:MM:SS; the learning rate schedule still covers max_steps or max_epochs"
    )

    # Location and hardware
    seed: int = config_field(1, "random seed for shuffling, spans, masks, dropout, and newly initialized weights")
    precision: Precision = config_field("fp32", "floating-point precision of training")
    devices: int | str | Sequence[int] = config_field("auto", "number of processes per node, or indices of GPUs")
    num_nodes: int = config_field(1, "number of nodes", ge=1)
    output_dir: str | None = config_field(None, "directory of the run's files; null: outputs/MODEL-DATA-HASH8")
    remote_output_dir: str | None = config_field(
        None,
        "URL, such as s3://BUCKET/PREFIX, to which output_dir is copied after each checkpoint; if output_dir is "
        "empty, it is first downloaded from this URL; null: no copies",
    )
    resume: str | None = config_field(
        "auto",
        "checkpoint from which training resumes; auto: the last checkpoint in output_dir, if there is one; PATH: "
        "this checkpoint file; null: training starts from scratch",
    )
    overwrite: bool = config_field(
        False, "whether to delete the files of a run in output_dir, also those of this run, and start anew"
    )
    verify: bool = config_field(
        False, "whether to check the SHA-256 checksum of the complete token store before training"
    )
    quiet: bool = config_field(False, "whether to show warnings and errors only")
    log_every_n_steps: int = config_field(50, "number of optimizer steps between two rows of metrics.csv", ge=1)
    data_license: str | None = config_field(
        None,
        "license of the training data, which the model card states, e.g. cc-by-4.0; null: the card states that "
        "the license is unknown",
    )
    name: str | None = config_field(
        None, "name of the run in comparisons; null: a name that is derived from its objective, settings, or directory"
    )
    next_steps: str | None = config_field(
        None, "text that is printed after the final results, such as suggestions for next steps"
    )
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    # Evaluation
    monitor: str | None = config_field(
        None,
        "name of the score or loss that selects best.ckpt, e.g. stsb-dev/cosine/spearman; null: best.ckpt is the "
        "last checkpoint",
    )
    monitor_mode: Literal["max", "min"] | None = config_field(
        None,
        "whether higher (max) or lower (min) values of the monitored score or loss are better; null: min for a "
        "loss, max for a score",
    )
    initial_weights_fraction: float | None = config_field(
        None,
        "coefficient of the initial weights in the average of initial and trained weights; this average is evaluated "
        "at the end and exported, while checkpoints contain the trained weights; null: 0",
        ge=0,
        lt=1,
    )
    early_stopping: int | None = config_field(
        None,
        "number of consecutive evaluations without an improvement of the monitored score or loss after which training "
        "stops; null: no early stopping",
        ge=1,
    )
    evaluation: Evaluation = field(default_factory=Evaluation)

    tiny: TinySizes = field(
        default_factory=TinySizes,
        metadata={
            "meaning": "sizes of the model for backbone=tiny, which has random weights (4.9 million parameters) and a "
            "tokenizer that is trained on the data; in short runs from scratch, a larger vocabulary helps more than "
            "additional layers"
        },
    )
    allow_targets: Sequence[str] = config_field(
        (),
        "packages that _target_ keys may refer to, in addition to this project and Lightning, e.g. [my_package]",
    )
    callbacks: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "additional Lightning callbacks: a mapping from the name of each callback to its class "
            "(_target_) and arguments, e.g. +callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, "
            "monitor: ...}"
        },
    )


register({f"data/{_name}": _kind for _name, _kind in DATA_CONFIGS.items()})
register({f"model/{_name}": _kind for _name, _kind in MODEL_CONFIGS.items()})
register({"run": RunConfig, "trainer": Trainer, "logger/tensorboard": TensorBoard, "logger/wandb": WandbLogger})
