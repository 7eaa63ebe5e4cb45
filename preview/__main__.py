"""What a batch is: ``python -m preview data=text data.path=FILE``, with any words of train.py.

Without a model the backbone is ``tiny``, which trains a tokenizer on the texts; no weights are
loaded and nothing is trained. Own keys are in ``configs/preview.yaml``.
"""

from command.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

import shlex
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, get_object
from omegaconf import DictConfig, OmegaConf

from command.children import begin_process, check_number
from command.config_files import CONFIGS, choices
from command.keys import check_numbers, check_types, declared
from command.line import log_to_terminal
from command.names import as_used
from command.statuses import exit_statuses
from command.words import check_paths, check_words
from contracts import InputError, Seq2SeqBatch, SpanBatch
from files.ownership import check_output_file
from files.whole import write_whole
from preview.places import ROLES, Document
from training.account import account_of
from training.parts import data_of, make_data
from training.stages import STAGE_WORD, chosen, forced, stages_of

BATCH = 16  # where no model says it
DRAWS = 3000  # of spans out of documents, for their density
MODEL_OF = {"nli_generation": "gense_generator"}  # data whose prompts are the model's


class Keys(TypedDict):
    output: str | None
    batches: int
    examples: int
    quiet: bool


class Asked(NamedTuple):
    own: DictConfig
    cfg: DictConfig
    stage: str  # of a run in stages the one that is shown, else empty


def read_words(words: Sequence[str]) -> Asked:
    """
    Raises:
        InputError: no data, or a value of the wrong type.
    """
    own = OmegaConf.load(CONFIGS / "preview.yaml")
    own_words = [word for word in words if word.partition("=")[0] in own]
    own = OmegaConf.merge(own, OmegaConf.from_dotlist(own_words))
    assert isinstance(own, DictConfig)
    check_types(own, declared(Keys))
    for key in ("batches", "examples"):
        if own[key] < 1:
            raise InputError(f"{key}={own[key]}: wanted 1 or more.")
    check_paths(own)
    if own.output is not None and not own.output.endswith(".html"):
        raise InputError(f"output={own.output}: wanted a name that ends in .html.")
    of_train = ["output_dir=.", *_with_model([word for word in words if word not in own_words])]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose("train", forced(of_train))
        stage = ""
        if cfg.stages or any(STAGE_WORD.fullmatch(word) for word in of_train):
            first = chosen(stages_of(cfg, of_train), cfg.only_stage)[0]
            stage, cfg = first.name, first.cfg
    if cfg.get("data") is None:
        known = ", ".join(choices("data"))
        raise InputError(f"no data was chosen; say data=NAME with one of {known}, or experiment=NAME.")
    if missing := sorted(str(key) for key in OmegaConf.missing_keys(cfg.data)):
        raise InputError(f"data.{missing[0]} has no value, and has to be given: data.{missing[0]}=...")
    cfg.backbone = cfg.backbone or "tiny"
    cfg.batch_size = cfg.batch_size or BATCH
    cfg.quiet = True
    return Asked(own, cfg, stage)


def _with_model(words: list[str]) -> list[str]:
    """Data that takes part of its config from one model brings it along, with the backbone that needs no download."""
    chosen_data = next((word.partition("=")[2] for word in words if word.startswith("data=")), None)
    model = MODEL_OF.get(str(chosen_data))
    if model is None or any(word.startswith(("model=", "experiment=")) for word in words):
        return words
    backbone = [] if any(word.startswith("backbone=") for word in words) else ["backbone=tiny"]
    batch = [] if any(word.startswith("batch_size=") for word in words) else [f"batch_size={BATCH}"]
    return [f"model={model}", *backbone, *batch, *words]


def run(words: Sequence[str]) -> int:
    """Exit status."""
    asked = read_words(words)
    check(asked.cfg)
    if asked.own.output:
        check_output(Path(asked.own.output).expanduser())
    with tempfile.TemporaryDirectory(prefix="preview-") as folder:
        if asked.cfg.backbone == "tiny":
            asked.cfg.backbone = write_tokenizer(asked.cfg, Path(folder) / "backbone")
        previews, facts = look(asked)
    from rich.console import Console

    from preview.show import as_page, show, show_facts

    console = Console()
    if asked.own.output:
        page = as_page(previews, facts, f"python -m preview {shlex.join(words)}")
        write_whole(Path(asked.own.output).expanduser(), page)
    if not asked.own.quiet:
        if asked.stage:
            console.print(f"Stage {asked.stage}; only_stage=NAME shows another.", highlight=False)
        show_facts(facts, console)
        for preview in previews:
            show(preview, console)
        if asked.own.output:
            console.print(f"{asked.own.output} is written.", highlight=False, markup=False, soft_wrap=True)
    return 0


def check(cfg: DictConfig) -> None:
    """What a run would refuse to build."""
    from training.checks import check_values
    from training.targets import check_targets

    check_numbers(cfg)
    check_paths(cfg)
    check_targets(cfg)
    check_values(cfg)
    check_number("data.num_workers", cfg.data.get("num_workers", 0))


def check_output(path: Path) -> None:
    """Check that the page can be written, in the place of an earlier one alone."""
    from files.page import is_page

    check_output_file(path)
    if path.exists() and path.stat().st_size and not is_page(path):
        raise InputError(f"output={path} is there already, and is no page of ours, which alone are replaced.")


def write_tokenizer(cfg: DictConfig, folder: Path) -> str:
    """What ``backbone=tiny`` of a run would write, tokenizer and all."""
    from transformers.utils import logging as transformers_logging

    from encoders.tiny import TINY_BACKBONES

    transformers_logging.disable_progress_bar()
    model: Any = get_class(cfg.model._target_) if cfg.get("model") else None
    texts_to_write = any(get_object(one._target_).yields is Seq2SeqBatch for one in data_of(cfg).values())
    family = model.tiny_backbone if model else "t5" if texts_to_write else "masked_lm"
    texts = make_data(cfg).texts()
    TINY_BACKBONES[family](folder, texts, seed=cfg.seed, **cfg.tiny)
    return str(folder)


def look(asked: Asked) -> tuple[list[Any], list[tuple[str, str]]]:
    """Summaries of the batches, and what is said of the data as a whole."""
    import torch

    from datamodules.tokenizer import load_tokenizer
    from encoders.chunks import chunk_cost, plan_chunks
    from preview.summary import summaries
    from training.lengths import settle_without_weights

    data = make_data(asked.cfg)
    data.prepare_data()
    settle_without_weights(asked.cfg, data)
    data.setup()
    batches = list(islice(iter(data.train_dataloader()), asked.own.batches))
    cost = chunk_cost(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    budget = asked.cfg.token_budget or sys.maxsize  # memory may cut a batch further

    def chunked(lengths: np.ndarray) -> int:
        return sum(chunk.padded_tokens for chunk in plan_chunks(lengths, budget, cost))

    def places(kept: Sequence[Any]) -> tuple[list[Document], list[Document]]:
        if not isinstance(kept[0], SpanBatch) or not hasattr(data, "batches"):  # a part of a mixture draws for itself
            return [], []
        first = [drawn(data, 0, row) for row in kept[0].rows.tolist()]
        rows = sorted({row for batch in kept for row in batch.rows.tolist()})[:DRAWS]
        return first, [drawn(data, number, row) for number in range(max(1, DRAWS // len(rows))) for row in rows]

    found = summaries(batches, load_tokenizer(asked.cfg.backbone), asked.own.examples, chunked, places)
    return found, [*account_of(data.manifest()), *of_a_model(asked.cfg)]


def of_a_model(cfg: DictConfig) -> list[tuple[str, str]]:
    """What a preview without a model cannot know."""
    from training.lengths import lengths_of_models

    models: dict[int, list[str]] = {}
    for name, length in sorted(lengths_of_models(cfg).items()):
        models.setdefault(length, []).append(name)
    said = [f"{length} with model={' or '.join(names)}" for length, names in sorted(models.items())]
    return [("length", f"of a training: {', '.join(said)}")] if said else []


def drawn(data: Any, number: int, row: int) -> Document:
    """Where the spans of a document lie in a pass."""
    tokens, spans = data.batches.places(number, row)
    places = (spans.anchor_starts, spans.anchor_lengths), (spans.positive_starts, spans.positive_lengths)
    found = [
        (role, int(start), int(length))
        for role, of_role in zip(ROLES, places, strict=True)
        for start, length in zip(*of_role, strict=True)
    ]
    return Document(row, tokens, found)


def main() -> None:
    begin_process()
    log_to_terminal(quiet=True)
    words = sys.argv[1:]
    with exit_statuses(hydra=True, config="train"):
        if {"-h", "--help"} & set(words) or not words:
            print(as_used(f"{__doc__}\n{(CONFIGS / 'preview.yaml').read_text(encoding='utf-8')}"))
            return
        check_words("train", words)
        sys.argv[1:] = forced(words)  # what a typo is compared with
        status = run(words)
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
