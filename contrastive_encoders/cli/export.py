"""Export an encoder: ``contrastive-encoders export run=... output=... format=...``."""

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.runtime.module_imports import module_imports
from contrastive_encoders.export.export_config import ExportConfig

log = logging.getLogger(__name__)


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Check the keys, load the encoder, write the directory, and upload it if ``push`` is set."""
    config = config_of(cfg, ExportConfig)
    require(config, "run", "an encoder")
    require(config, "output", "a directory to write")
    export_format = config.check_keys()
    output = Path(str(config.output))
    check_output(config, output)
    export_format.check()
    with module_imports():
        from transformers.utils import logging as transformers_logging  # imports torch, which takes seconds

        from contrastive_encoders.export.push import check_push, push
        from contrastive_encoders.export.source import open_source

    if config.push is not None:
        check_push(config.push)
    transformers_logging.disable_progress_bar()  # it would bury the log lines of the export
    source = open_source(str(config.run), **config.options)
    export_format.write(output, source, config)
    files = sorted(path.name for path in output.iterdir() if not path.name.startswith("."))
    log.info("Wrote %s from %s: %s.", output, source.run or source.name, ", ".join(files))
    if config.push is not None:
        log.info("Uploaded %s", push(output, config.push, private=config.private))


def check_output(config: ExportConfig, output: Path) -> None:
    """Check that the export does not overwrite an existing directory, unless that directory is an earlier export and
    ``overwrite`` is set.

    Raises:
        InputError: the output is the encoder itself, another directory, or an earlier export without ``overwrite``.
    """
    from contrastive_encoders.export.atomic_export import EXPORT
    from contrastive_encoders.io.model_names import run_folder
    from contrastive_encoders.io.output_directory import check_output_folder, check_replaceable, overwrite_hint

    source = Path(str(config.run))
    run_folder(str(source), "run")  # raises an error for a run of another version
    if output.resolve() in (source.resolve(), (source / "encoder").resolve()):
        raise InputError(
            key="output",
            value=output,
            expected="a directory other than that of the encoder",
            hint="Choose another output.",
        )
    if check_replaceable("output", output, EXPORT) and not config.overwrite:
        raise InputError(key="output", value=output, expected="a new directory", hint=overwrite_hint("output"))
    check_output_folder("output", output.absolute().parent)


main = command_line("export", run, ExportConfig)
