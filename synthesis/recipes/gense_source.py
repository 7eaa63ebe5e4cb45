"""Which generator is meant, what identifies it, and how it wants to be asked."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from contracts import InputError
from prompts import GENERATOR_FILE, Prompts, parse_prompts, read_generator_prompts

log = logging.getLogger(__name__)


class NamedGenerator(NamedTuple):
    """One that is not loaded yet."""

    source: str  # folder or hub id
    name: str
    weights: dict[str, Any]  # what identifies them
    prompts: Prompts


def name_generator(cfg: Any) -> NamedGenerator:
    """What can be known, and be wrong, before it is loaded.

    Raises:
        InputError: there is no such model, or it is no T5-like encoder-decoder, or its prompts are damaged.
    """
    from transformers import AutoConfig

    from encoders.backbones import from_pretrained
    from synthesis.decoding.encoder_decoder import check_family
    from synthesis.shards.provenance import identify_generator

    source = find_generator(cfg.generator)
    weights = identify_generator(source, cfg.revision)
    options = {"revision": cfg.revision} if cfg.revision else {}
    check_family(source, from_pretrained(AutoConfig, source, setting="generator", **options))
    prompts = choose_prompts(source, cfg.prompts, cfg.prompt_assembly, cfg.revision)
    return NamedGenerator(source, Path(source).resolve().name if Path(source).is_dir() else source, weights, prompts)


def find_generator(name: str) -> str:
    """A training run's folder stands for the generator in it.

    Raises:
        InputError: a folder without one.
    """
    folder = Path(name)
    if not folder.is_dir() or (folder / "config.json").is_file():
        return name
    for inner in sorted(folder.glob(f"*/{GENERATOR_FILE}")):
        return str(inner.parent)
    if (folder / "encoder").is_dir():
        what = "a run that left an encoder, which writes nothing"
    elif (folder / "checkpoints").is_dir():
        what = "a run that is not finished; the command that began it goes on"
    else:
        what = "a folder with neither config.json nor a run's generator/ in it"
    raise InputError(
        f"generator={name}: wanted a folder of transformers, or a run of model=gense_generator; got {what}. Name one "
        "of these."
    )


def choose_prompts(
    generator: str, published: Mapping[str, Any], assembly: str | None, revision: str | None = None
) -> Prompts:
    """Those that the generator was trained with; where it does not say, the published ones, as pieces.

    Raises:
        InputError: ``assembly`` is given, and is another one than the generator's.
    """
    kept = read_generator_prompts(folder) if (folder := _folder_of(generator, revision)) else None
    if kept is None:
        chosen = parse_prompts(published, assembly or "pieces", "prompts")
        log.info("%s has no %s: it is asked as the published one, by %s", generator, GENERATOR_FILE, chosen.assembly)
        return chosen
    if assembly not in (None, kept.assembly):
        raise InputError(
            f"prompt_assembly={assembly}, but generator={generator} was trained with {kept.assembly}, as its "
            f"{GENERATOR_FILE} says. Leave prompt_assembly out."
        )
    return kept


def _folder_of(generator: str, revision: str | None) -> Path | None:
    """Where its ``generator.json`` may lie; on the hub, where there is one."""
    if Path(generator).is_dir():
        return Path(generator)
    from transformers.utils.hub import cached_file

    found = cached_file(
        generator,
        GENERATOR_FILE,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return Path(found).parent if found else None
