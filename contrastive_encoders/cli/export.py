"""Export an encoder: ``contrastive-encoders export run=... output=... format=...``."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line
from contrastive_encoders.core import InputError

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from contrastive_encoders.export.source import Source

log = logging.getLogger(__name__)

SETTINGS = ("pooling", "prompt", "max_length", "truncate", "normalize")  # of the encoder, which may be replaced
FOR_SENTENCE_TRANSFORMERS = ("sentence_transformers", "adapter")


class Keys(TypedDict):
    run: str | None
    output: str | None
    format: Literal["sentence_transformers", "adapter", "transformers", "onnx"]
    overwrite: bool
    pooling: str | None
    prompt: str | None
    max_length: int | None
    truncate: int | None
    normalize: bool | None
    similarity: str | None
    int8: bool
    push: str | None
    private: bool


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Check, load, write, upload where asked to."""
    if cfg.run is None:
        raise InputError("run is not set: a run folder, a checkpoint, a model folder or a hub id; say run=...")
    if cfg.output is None:
        raise InputError("output is not set: the folder to write; say output=FOLDER.")
    output = Path(cfg.output)
    check_output(cfg, output)
    check_format(cfg)
    hush()
    from contrastive_encoders.export.source import open_source

    source = open_source(cfg.run, **{key: cfg[key] for key in SETTINGS})
    write(cfg, source, output)
    written = sorted(path.name for path in output.iterdir() if not path.name.startswith("."))
    log.info("%s is written from %s: %s.", output, source.run or source.name, ", ".join(written))
    if cfg.push is not None:
        from contrastive_encoders.export.push import push

        log.info("uploaded: %s", push(output, cfg.push, private=cfg.private))


def check_output(cfg: DictConfig, output: Path) -> None:
    """Nothing of the reader's is replaced by accident."""
    from contrastive_encoders.export.atomic_export import EXPORT
    from contrastive_encoders.io.model_names import run_folder
    from contrastive_encoders.io.output_directory import check_output_folder, check_replaceable, overwrite_hint

    run_folder(cfg.run, "run")  # refuses a run of another version
    for name in (Path(cfg.run), Path(cfg.run) / "encoder"):
        if output.resolve() == name.resolve():
            raise InputError(f"output={output} is what is to be exported; choose another folder.")
    if check_replaceable("output", output, EXPORT) and not cfg.overwrite:
        raise InputError(key="output", value=output, expected="a new directory", hint=overwrite_hint("output"))
    check_output_folder("output", output.absolute().parent)


def check_format(cfg: DictConfig) -> None:
    """A key of another format, an extra that is not installed, a push that cannot be: before anything is loaded."""
    if cfg.format not in FOR_SENTENCE_TRANSFORMERS and cfg.similarity is not None:
        raise InputError(f"similarity={cfg.similarity} is of format=sentence_transformers alone; leave it out.")
    if cfg.format == "onnx":
        from contrastive_encoders.export.onnx_graph import check_onnx

        check_onnx()
    if cfg.push is not None:
        from contrastive_encoders.export.push import check_push

        check_push(cfg.push)


def write(cfg: DictConfig, source: "Source", output: Path) -> None:
    encoder = source.encoder
    if cfg.format in FOR_SENTENCE_TRANSFORMERS:
        from contrastive_encoders.export.adapter import read_adapter
        from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

        parts = {**parts_of(encoder), "card": card(source)}
        if cfg.similarity is not None:
            parts["similarity"] = cfg.similarity
        if cfg.format == "adapter":
            parts["adapter"] = read_adapter(cfg.run, encoder)
        export_encoder(output, **parts)
    elif cfg.format == "transformers":
        from contrastive_encoders.export.transformers_folder import export_transformers, use_of_transformers

        export_transformers(output, encoder, card=card(source, use_of_transformers(encoder), "transformers"))
    else:
        from contrastive_encoders.export.onnx_graph import export_onnx, use_of_onnx

        export_onnx(output, encoder, int8=cfg.int8, card=card(source, use_of_onnx(encoder), "onnx"))


def card(source: "Source", use: str | None = None, library: str = "sentence-transformers") -> str:
    """Return the card of a run; else the README beside the encoder where it fits the format, or a card made anew."""
    from contrastive_encoders.export.model_card import card_of_folder, model_card
    from contrastive_encoders.io.results import read_results

    if source.run is not None:
        results = read_results(source.run / "results.json") | {"vectors": source.encoder.vectors}
        results.pop("prompts", None)
        if (prompts := source.encoder.prompts.to_json()) is not None:
            results["prompts"] = prompts
        return model_card(results, use=use, library=library)
    if use is None and source.card is not None:
        return source.card
    return card_of_folder(source.name, source.encoder.description, use=use, library=library)


def hush() -> None:
    """transformers' bars would bury our own lines."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


main = command_line("export", run, Keys)
