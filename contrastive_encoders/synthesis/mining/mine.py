"""Mine hard negatives.

Mining itself is sentence-transformers' ``mine_hard_negatives``, whose parameter names the keys follow. The margins are
those of NV-Retriever (Moreira et al. 2024). This package reads and writes the files, and counts the texts that were
left out.
"""

import contextlib
import hashlib
import io
import json
import logging
import math
import os
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import mine_hard_negatives
from transformers.utils import logging as transformers_logging

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.core.runtime.child_processes import ExitWithParentHook
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.encoders.loading.load import PRECISIONS
from contrastive_encoders.encoders.loading.sentence_transformers_fallback import (
    LibraryEncoder,
    load_library_cross_encoder,
)
from contrastive_encoders.encoders.loading.sentence_transformers_folder import not_found, read_json
from contrastive_encoders.io.installed_models import find_installed
from contrastive_encoders.io.model_names import run_folder
from contrastive_encoders.io.output_directory import (
    FINISHED,
    check_output_folder,
    lock_output_file,
    release_lock,
)
from contrastive_encoders.synthesis.mining.cached_reranker import CachedReranker, open_reranker
from contrastive_encoders.synthesis.mining.mine_config import MineConfig
from contrastive_encoders.synthesis.mining.mined_file import is_finished, write_rows
from contrastive_encoders.synthesis.mining.mining_input import MiningInput

log = logging.getLogger(__name__)

MAX_COSINES, MAX_ANCHORS = 2**28, 16384  # 1 GiB of cosines when anchors and corpus are compared
PROGRESS_MIN_SCORES = 2**24  # beyond this size the library's statistics table fails, and with it the counts
SKIPPED_PATTERN = re.compile(
    r"Skipped ([\d,]+) potential negatives .* due to the (absolute_margin|relative_margin|max_score)"
)
LIMITS = ("absolute_margin", "relative_margin", "max_score", "min_score")
RULES = ("num_negatives", "range_min", "range_max", *LIMITS, "sampling_strategy")
PROMPTS = ("query_prompt", "corpus_prompt")


def mine_negatives(config: MineConfig, pairs: MiningInput, source: Mapping[str, Any]) -> None:
    """Mine hard negatives, and write the output file, unless a finished output file exists.

    Args:
        config: configuration of the command.
        pairs: pairs and corpus, as `read_pairs` returns them.
        source: provenance of the pairs, which is written next to the output.

    Raises:
        InputError: a model or the output cannot be used.
    """
    model, reranker, models = load(config)
    identity = {
        "pairs": digest(*pairs),
        **{key: getattr(config, key) for key in (*RULES, *PROMPTS, "seed", "use_faiss")},
        **models,
    }
    lock = lock_output_file(config.file)
    try:
        if is_finished(config.file, identity, overwrite=config.overwrite):
            log.info(FINISHED, config.file)
            return
        with open_reranker(config.cache_folder, reranker, models) as scorer:
            mined = mine(config, pairs, model, scorer, vectors_of(config.cache_folder, models["encoder"]))
        account = {**source, "identity": identity, "left_out": mined.left_out}
        write_rows(config.file, account, pairs.rows, mined.rows, config.num_negatives)
    finally:
        release_lock(lock)


def load(config: MineConfig) -> tuple[SentenceTransformer, CrossEncoder | None, dict[str, str]]:
    """Load the encoder and, if set, the reranker. Return them with the values that identify them."""
    transformers_logging.disable_progress_bar()  # progress bars of a few milliseconds
    device = torch.device(device_of(config.device))
    encoder = LibraryEncoder(
        folder_of(str(config.encoder)),
        "negatives are mined by the library",
        prompt=None,
        max_length=config.max_length,
        truncate=None,
        dtype=PRECISIONS[config.precision],
        device=device,
    )
    encoder.model.similarity_fn_name = "cosine"
    identity = {"encoder": digest(encoder.fingerprint, encoder.model.prompts)}
    if config.reranker is None:
        return encoder.model, None, identity
    reranker, fingerprint = load_library_cross_encoder(config.reranker, device)
    return encoder.model, reranker, identity | {"reranker": digest(fingerprint)}


def folder_of(name: str) -> str:
    """Return the folder or Hub id from which sentence-transformers loads the encoder. For a run, this is its folder
    ``encoder/``.

    Raises:
        InputError: the folder does not exist, or it is a checkpoint, a run without an exported encoder, or another
            file.
    """
    name = find_installed(name) or name
    path = Path(name).expanduser()
    run_folder(str(path), "encoder")  # raises an error for a run of another version
    if (path / "encoder" / "modules.json").is_file():
        return str(path / "encoder")
    if path.is_file() or not any(read_json(str(path), config) for config in ("modules.json", "config.json")):
        if not path.exists():
            raise not_found(name, "neither modules.json nor config.json was found.")
        raise InputError(
            key="encoder",
            value=name,
            expected="a finished run, an exported checkpoint, the directory of a sentence-transformers or "
            "transformers model, or a Hub id",
        )
    return str(path)


class Mined(NamedTuple):
    """Mined rows, and for each rule the number of texts that it excluded.

    Each row has the anchor, the positive, negative_1 ..., and ``scores`` of the positive and each negative. The counts
    give, for each rule, the texts that would otherwise have been candidates.
    """

    rows: Iterable[Mapping[str, Any]]
    left_out: dict[str, int]


def mine(
    config: MineConfig,
    pairs: MiningInput,
    model: SentenceTransformer,
    reranker: CachedReranker | None,
    cache_folder: str | None,
) -> Mined:
    """Mine negatives with ``mine_hard_negatives`` of sentence-transformers. With a reranker, the scores of the positive
    and of each negative are the reranker's; otherwise they are cosines.

    An anchor that is itself in the corpus is passed as an additional positive of its own, because it must not become a
    negative. A margin considers its score as well.
    """
    known = set(pairs.corpus)
    own = [(anchor, anchor) for anchor, _ in pairs.rows if anchor in known]
    anchors, positives = zip(*dict.fromkeys([*pairs.rows, *own]), strict=True)
    rules = {key: getattr(config, key) for key in RULES}
    if reranker is not None and all(getattr(config, key) is None for key in LIMITS):
        rules["min_score"] = -math.inf  # without a limit the library would not use the reranker
    stdout = io.StringIO()
    with (
        seeded(config.seed),
        progress_shown(sys.stderr.isatty() and not config.quiet),
        contextlib.redirect_stdout(stdout),
    ):
        rows = mine_hard_negatives(
            Dataset.from_dict({"anchor": anchors, "positive": positives}),
            model,
            corpus=pairs.corpus,
            cross_encoder=cast(CrossEncoder | None, reranker),
            **rules,
            **prompts_of(config, model),
            **{key: getattr(config, key) for key in ("use_faiss", "batch_size")},
            output_format="n-tuple",
            output_scores=True,
            faiss_batch_size=max(1, min(MAX_ANCHORS, MAX_COSINES // len(pairs.corpus))),
            use_multi_process=processes(config, model, reranker and reranker.model),
            cache_folder=cache_folder,
            verbose=len(anchors) * config.num_negatives < PROGRESS_MIN_SCORES,
        )
    return Mined(
        rows, {rule: int(number.replace(",", "")) for number, rule in SKIPPED_PATTERN.findall(stdout.getvalue())}
    )


def prompts_of(config: MineConfig, model: SentenceTransformer) -> dict[str, Any]:
    """Return the prompts for the anchors and for the texts of the corpus. Null selects the encoder's own query and
    document prompts.
    """
    own = EncoderPrompts({name: prompt or "" for name, prompt in model.prompts.items()})
    query, corpus = config.query_prompt, config.corpus_prompt
    return {
        "query_prompt": own.query if query is None else query,
        "corpus_prompt": own.document if corpus is None else corpus,
    }


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context manager that seeds Python's global random generator, which sentence-transformers uses for sampling, and
    restores the generator's state on exit.
    """
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


@contextlib.contextmanager
def progress_shown(shown: bool) -> Iterator[None]:
    """Context manager that hides the progress bars of sentence-transformers if ``shown`` is false.

    The library has no option for this.
    """
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(sys.stderr if shown else nowhere):
        yield


def processes(config: MineConfig, *models: object) -> list[str] | bool:
    """Return a list with the device of each worker process, or False if only this process is used. Each worker process
    holds a copy of the models.
    """
    if config.devices == 1:
        return False
    for model in models:
        if model is not None:
            vars(model)["ends"] = ExitWithParentHook()
    on_gpus = device_of(config.device).startswith("cuda")
    return [f"cuda:{number}" if on_gpus else "cpu" for number in range(config.devices)]


def vectors_of(cache_folder: str | None, encoder: str) -> str | None:
    """Return the folder in which sentence-transformers caches the embeddings of ``encoder``, or None if there is no
    cache. Each encoder gets its own folder, because the library distinguishes encoders only by the name on their model
    card. A file that was truncated by a kill is removed from it.
    """
    if cache_folder is None:
        return None
    folder = Path(cache_folder) / encoder
    check_output_folder("cache_folder", folder)
    for file in folder.glob("*.npy"):
        try:
            np.load(file, mmap_mode="r")
        except (ValueError, EOFError):
            file.unlink()
    return str(folder)


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
