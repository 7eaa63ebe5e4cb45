"""Show sample training batches: ``contrastive-encoders preview data=text data.path=FILE``.

It takes the keys of ``contrastive-encoders train``. Without a model the backbone is ``tiny``,
which trains a tokenizer on the texts; no weights are loaded and nothing is trained. Its own keys:
"""

import contextlib
import logging
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.utils import get_class, get_object

from contrastive_encoders.core import InputError, Seq2SeqBatch, SpanBatch, check_local_output
from contrastive_encoders.core.config_schema import as_mapping, config_field
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.output_directory import check_output_file
from contrastive_encoders.runtime.child_processes import check_number, init_process
from contrastive_encoders.runtime.exit_codes import exit_statuses
from contrastive_encoders.runtime.log_output import log_to_terminal
from contrastive_encoders.training.build import make_data
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.config_errors import explain_errors
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import config_from_arguments
from contrastive_encoders.training.composition.key_docs import keys_of_settings, row
from contrastive_encoders.training.composition.override_checks import check_override_syntax, unknown_option
from contrastive_encoders.training.data_summary import account_of
from contrastive_encoders.training.preview.span_positions import ROLES, SpanLayout
from contrastive_encoders.training.resolve import ResolvedRun, resolve

BATCH = 16  # if no model sets it
# loggers that state how files are read; a preview shows no other messages below warnings
READERS = (
    "contrastive_encoders.io.delimited",
    "contrastive_encoders.io.sheets",
    "contrastive_encoders.datamodules.sources.records",
)
FORMATS = (".png", ".svg", ".pdf")  # of the figure
MODEL_OF = {"nli_generation": "gense_generator"}  # data whose prompts come from the model


@dataclass(frozen=True, kw_only=True)
class PreviewConfig:
    """Configuration keys of ``contrastive-encoders preview``. The keys of ``train``, which it also accepts, define the
    batches.
    """

    output: str | None = config_field(
        None, "output file for a figure of the sequence lengths and the span positions: FILE.png, FILE.svg, or FILE.pdf"
    )
    batches: int = config_field(20, "number of batches over which lengths, padding, and duplicates are counted", ge=1)
    examples: int = config_field(4, "number of examples from the first batch that are shown", ge=1)
    quiet: bool = config_field(False, "whether to print nothing")


class PreviewCommand(NamedTuple):
    config: PreviewConfig
    run: ResolvedRun


def read_arguments(arguments: Sequence[str]) -> PreviewCommand:
    """Parse the arguments of the command.

    Raises:
        InputError: there are no data, or a value has the wrong type.
    """
    config, train_arguments = config_from_arguments(PreviewConfig, arguments)
    if config.output is not None:
        check_local_output("output", config.output)
        if Path(config.output).suffix.lower() not in FORMATS:
            raise InputError(
                key="output", value=config.output, expected=f"a file name that ends in {', '.join(FORMATS)}"
            )
    run_config = compose(train_arguments, *_model_of_data(train_arguments))
    run = resolve(replace(run_config, output_dir=".")).trainings[0]
    if run.data is None:
        known = ", ".join(choices("data"))
        raise InputError(key="data", value=None, expected=f"one of {known}, or an experiment")
    backbone, batch_size = run.backbone or "tiny", run.batch_size or BATCH
    return PreviewCommand(config, run.with_values(quiet=True, backbone=backbone, batch_size=batch_size))


def _model_of_data(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """For data whose config inherits keys from a model, return the choice of this model and the defaults of
    ``backbone`` and ``batch_size``. The default backbone needs no download.
    """
    values = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    model = MODEL_OF.get(values.get("data", ""))
    if model is None or {"model", "experiment"} & values.keys():
        return {}, {}
    defaults = {"backbone": "tiny", "batch_size": BATCH}
    return {"model": model}, {key: value for key, value in defaults.items() if key not in values}


def run(arguments: Sequence[str]) -> int:
    """Show the batches, write the figure, and return the exit code."""
    config, run = read_arguments(arguments)
    check(run)
    if config.output:
        check_output_file(Path(config.output).expanduser())
    with tempfile.TemporaryDirectory(prefix="preview-") as folder:
        if run.backbone == "tiny":
            tokenizer = write_tokenizer(run, Path(folder) / "backbone")
            run = run.with_values(backbone=tokenizer)
        with _show_readers(config.quiet):
            previews, documents, facts = look(config, run)
    from rich.console import Console

    from contrastive_encoders.reports.figure import draw
    from contrastive_encoders.training.preview.show import picture, show, show_facts

    console = Console()
    if config.output:
        file = Path(config.output).expanduser()
        drawn = draw([picture(previews, documents)], pdf=file.suffix.lower() == ".pdf")["preview"]
        atomic_write(file, {".png": drawn.png, ".svg": drawn.svg, ".pdf": drawn.pdf}[file.suffix.lower()])
    if not config.quiet:
        if run.stage_name:
            console.print(f"Stage {run.stage_name}. Set only_stage=NAME to preview another one.", highlight=False)
        show_facts(facts, console)
        for preview in previews:
            show(preview, console)
        if config.output:
            console.print(f"Wrote {config.output}.", highlight=False, markup=False, soft_wrap=True)
    return 0


def check(run: ResolvedRun) -> None:
    """Check the ``_target_`` keys of a run, the values of its other keys, and its numbers of worker processes."""
    from contrastive_encoders.training.checks import check_values
    from contrastive_encoders.training.target_checks import check_targets

    check_targets(run)
    check_values(run)
    for key in ("num_workers", "tokenizer_workers"):
        check_number(f"data.{key}", getattr(run.data, key, 0))


def write_tokenizer(run: ResolvedRun, folder: Path) -> str:
    """Write the same model folder, including the tokenizer, as a training run with ``backbone=tiny``; return the path
    of the folder.
    """
    from transformers.utils import logging as transformers_logging

    from contrastive_encoders.encoders.loading.tiny import TINY_BACKBONES

    transformers_logging.disable_progress_bar()
    model: Any = get_class(run.model.target) if run.model is not None else None
    texts_to_write = any(get_object(one.target).yields is Seq2SeqBatch for one in run.datasets.values())
    family = model.tiny_backbone if model else "t5" if texts_to_write else "masked_lm"
    texts = make_data(run).texts()
    TINY_BACKBONES[family](folder, texts, seed=run.seed, **as_mapping(run.tiny))
    return str(folder)


@contextlib.contextmanager
def _show_readers(quiet: bool) -> Iterator[None]:
    """Context manager that shows the messages of `READERS`."""
    readers = [] if quiet else [logging.getLogger(name) for name in READERS]
    levels = [reader.level for reader in readers]
    for reader in readers:
        reader.setLevel(logging.INFO)
    try:
        yield
    finally:
        for reader, level in zip(readers, levels, strict=True):
            reader.setLevel(level)


def look(config: PreviewConfig, run: ResolvedRun) -> tuple[list[Any], list[SpanLayout], list[tuple[str, str]]]:
    """Load ``config.batches`` batches of training data. Return their summaries, the positions of the spans in the first
    batch's documents (for the figure), and facts about the data.
    """
    import torch

    from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
    from contrastive_encoders.encoders.kernels.chunks import chunk_cost, plan_chunks
    from contrastive_encoders.training.max_length import settle_without_weights
    from contrastive_encoders.training.prepare import fit_to_rows, rows_of
    from contrastive_encoders.training.preview.summary import summaries

    data = make_data(run)
    data.prepare_data()
    if run.few_rows_epochs:
        run = fit_to_rows(run, rows_of(data))
        data = make_data(run)
        data.prepare_data()
    settle_without_weights(run, data)
    data.setup()
    batches = list(islice(iter(data.train_dataloader()), config.batches))
    cost = chunk_cost(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    budget = run.token_budget or sys.maxsize  # a batch may also be split to save memory

    def chunked(lengths: np.ndarray) -> int:
        return sum(chunk.total_tokens for chunk in plan_chunks(lengths, budget, cost))

    documents = list[SpanLayout]()
    if config.output is not None and isinstance(batches[0], SpanBatch) and hasattr(data, "span_builder"):
        documents = [spans_of(data, row) for row in batches[0].rows.tolist()]
    found = summaries(batches, load_tokenizer(str(run.backbone)), config.examples, chunked)
    return found, documents, [*account_of(data.manifest(), data.yields), *length_facts(run)]


def length_facts(run: ResolvedRun) -> list[tuple[str, str]]:
    """Return a line that lists the default maximum lengths of training texts by model. The actual length depends on the
    model, which a preview need not have.
    """
    from contrastive_encoders.training.max_length import lengths_of_models

    models: dict[int, list[str]] = {}
    for name, length in sorted(lengths_of_models(run).items()):
        models.setdefault(length, []).append(name)
    lengths = [f"{length} with model={' or '.join(names)}" for length, names in sorted(models.items())]
    return [("length", f"default maximum in training: {', '.join(lengths)}")] if lengths else []


def spans_of(data: Any, row: int) -> SpanLayout:
    """Return the positions of the spans that are sampled from a document in the first epoch."""
    tokens, spans = data.span_builder.places(0, row)
    places = (spans.anchor_starts, spans.anchor_lengths), (spans.positive_starts, spans.positive_lengths)
    found = [
        (role, int(start), int(length))
        for role, starts_and_lengths in zip(ROLES, places, strict=True)
        for start, length in zip(*starts_and_lengths, strict=True)
    ]
    return SpanLayout(row, tokens, found)


def main(arguments: Sequence[str], command: str = "preview") -> None:
    init_process()
    log_to_terminal(quiet=True)
    with exit_statuses(command, explain_errors("train", arguments, composing=True), hydra=True):
        if {"-h", "--help"} & set(arguments) or not arguments:
            keys = "\n".join(map(row, keys_of_settings(PreviewConfig)))
            print(f"{__doc__}\n{keys}")
            return
        if words := [argument for argument in arguments if re.fullmatch(r"[\w./]+", argument)]:
            raise InputError(key=words[0], expected="KEY=VALUE")
        if options := [argument for argument in arguments if argument.startswith("-")]:
            raise unknown_option("train", options[0], arguments)
        check_override_syntax("train", arguments)
        status = run(arguments)
    if status:
        sys.exit(status)
