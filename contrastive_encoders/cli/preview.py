"""Show sample training batches: ``contrastive-encoders preview data=text data.path=FILE``.

It takes the keys of ``contrastive-encoders train``. Without a model the backbone is ``tiny``,
which trains a tokenizer on the texts; no weights are loaded and nothing is trained. Its own keys:
"""

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.cli.hydra_main import run_without_hydra
from contrastive_encoders.core import InputError, check_local_output
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.output_directory import check_output_file
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.composition.config_errors import explain_errors
from contrastive_encoders.training.composition.config_files import choices
from contrastive_encoders.training.composition.config_keys import config_from_arguments
from contrastive_encoders.training.composition.override_checks import check_override_syntax, unknown_option
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
        InputError: an argument is not KEY=VALUE, there are no data, or a value has the wrong type.
    """
    if words := [argument for argument in arguments if re.fullmatch(r"[\w./]+", argument)]:
        raise InputError(key=words[0], expected="KEY=VALUE")
    if options := [argument for argument in arguments if argument.startswith("-")]:
        raise unknown_option("train", options[0], arguments)
    check_override_syntax("train", arguments)
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
    """Return the model from which the data config inherits keys, and defaults of ``backbone`` and ``batch_size``; both
    are empty if it inherits none, or if the model is set. The default backbone requires no download.
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
    from contrastive_encoders.training.preview.sample import read_sample, write_tokenizer

    with tempfile.TemporaryDirectory(prefix="preview-") as folder:
        if run.backbone == "tiny":
            tokenizer = write_tokenizer(run, Path(folder) / "backbone")
            run = run.with_values(backbone=tokenizer)
        with _show_readers(config.quiet):
            found = read_sample(run, config.batches, config.examples)
    from rich.console import Console

    from contrastive_encoders.reports.figure import draw
    from contrastive_encoders.training.preview.show import picture, show, show_facts

    console = Console()
    if config.output:
        file = Path(config.output).expanduser()
        drawn = draw([picture(found.summaries, found.documents)], pdf=file.suffix.lower() == ".pdf")["preview"]
        atomic_write(file, {".png": drawn.png, ".svg": drawn.svg, ".pdf": drawn.pdf}[file.suffix.lower()])
    if not config.quiet:
        if run.stage_name:
            console.print(f"Stage {run.stage_name}. Set only_stage=NAME to preview another one.", highlight=False)
        show_facts(found.facts, console)
        for preview in found.summaries:
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


def main(arguments: Sequence[str], command: str = "preview") -> None:
    explain = explain_errors("train", arguments, composing=True)
    run_without_hydra(
        command, run, arguments or ["--help"], __doc__, PreviewConfig, quiet=True, explain=explain, hydra=True
    )
