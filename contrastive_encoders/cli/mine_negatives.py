"""Hard negative mining: ``contrastive-encoders mine-negatives encoder=... input=... output=...``.

Mining itself is sentence-transformers' ``mine_hard_negatives``, whose parameter names the keys follow. The margins are
those of NV-Retriever (Moreira et al. 2024). This module reads and writes the files, and counts the texts that were left
out.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core import RECORD_VERSION, EncoderPrompts, InputError, check_version, missing_package
from contrastive_encoders.core.config_schema import config_field, require
from contrastive_encoders.io.atomic import atomic_file
from contrastive_encoders.io.file_discovery import check_output_apart, form_of, list_files
from contrastive_encoders.io.manifest import CorruptFileError, read_record, write_record
from contrastive_encoders.io.model_names import run_folder
from contrastive_encoders.io.output_directory import (
    FINISHED,
    check_output_file,
    check_output_folder,
    differences,
    lock_output_file,
    overwrite_hint,
    release_lock,
)
from contrastive_encoders.io.rows import Encoding, read_windows
from contrastive_encoders.io.text_files import ENCODING_MEANING
from contrastive_encoders.runtime.child_processes import exit_with_parent
from contrastive_encoders.runtime.devices import check_devices, device_of

if TYPE_CHECKING:  # torch takes seconds to import, so it is not imported before --help is answered
    from sentence_transformers import CrossEncoder, SentenceTransformer

log = logging.getLogger(__name__)

TEXTS_PER_READ = 8192  # of the corpus
MAX_COSINES, MAX_ANCHORS = 2**28, 16384  # 1 GiB of cosines when anchors and corpus are compared
PROGRESS_MIN_SCORES = 2**24  # beyond this size the library's statistics table fails, and with it the counts
SKIPPED_PATTERN = re.compile(
    r"Skipped ([\d,]+) potential negatives .* due to the (absolute_margin|relative_margin|max_score)"
)
ADVICE = " Set column to the name of the column with the texts, or correct the row."
LIMITS = ("absolute_margin", "relative_margin", "max_score", "min_score")
RULES = ("num_negatives", "range_min", "range_max", *LIMITS, "sampling_strategy")
PROMPTS = ("query_prompt", "corpus_prompt")


@dataclass(frozen=True, kw_only=True)
class MineConfig:
    """Configuration keys of ``contrastive-encoders mine-negatives``."""

    encoder: str | None = config_field(
        None,
        "encoder that finds the negatives: the directory of a run, of a sentence-transformers model, or of a "
        "transformers model; or a Hub id",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "file, list of files, or directory of text pairs, with the columns (anchor, positive), (question, "
        "answer), (premise, entailment), or (sent0, sent1)",
    )
    columns: Sequence[str] | None = config_field(
        None,
        "names of the two columns of input that contain the anchors and the positives, [ANCHOR,POSITIVE]; null: "
        "the first of the pairs of names listed for input that exists",
    )
    split: str = config_field("train", 'split to use, if the rows have a column "split"')
    on_error: Literal["fail", "skip"] = config_field(
        "fail", "how unreadable rows are handled; fail: they are an error; skip: they are skipped and counted"
    )
    max_skipped: float = config_field(
        0.05,
        "maximum fraction of rows that on_error=skip may skip because they cannot be decoded or parsed; empty rows do "
        "not count",
        ge=0,
        le=1,
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)
    corpus: str | Sequence[str] | None = config_field(
        None,
        "file, list of files, or directory of the texts that are searched for negatives, in addition to all "
        "positives; null: only the positives are searched",
    )
    column: str | None = config_field(None, "name of the corpus field or column that contains the texts; null: text")
    output: str | None = config_field(
        None,
        "output file, FILE.jsonl, with the fields anchor, positive, negative_1, negative_2, ..., and scores in "
        "each row; train on it with data=triplets",
    )

    # Selection among the nearest texts, with the parameter names of sentence-transformers' mine_hard_negatives
    num_negatives: int = config_field(3, "number of negatives per pair; pairs with fewer are skipped and counted", ge=1)
    range_min: int = config_field(0, "number of nearest texts that are skipped before negatives are chosen", ge=0)
    range_max: int | None = config_field(
        None,
        "number of nearest texts among which negatives are searched; null: as many as range_min and num_negatives "
        "require, with ten times num_negatives if a margin or max_score is set",
    )
    absolute_margin: float | None = config_field(
        None,
        "minimum difference between the score of the anchor's lowest-scored positive and the score of a negative, "
        "e.g. 0.1; null: no margin",
        ge=0,
    )
    relative_margin: float | None = config_field(
        None, "like absolute_margin, but as a fraction of the positive's score, e.g. 0.05; null: no margin", ge=0
    )
    max_score: float | None = config_field(None, "maximum score of a negative, e.g. 0.8; null: no maximum")
    min_score: float | None = config_field(None, "minimum score of a negative, e.g. 0.2; null: no minimum")
    reranker: str | None = config_field(
        None,
        "cross-encoder whose scores replace the cosines in margins, limits, and the output: the directory of a run "
        "with model=reranker, the directory of a model, or a Hub id; null: cosines are used",
    )
    sampling_strategy: Literal["top", "random"] = config_field(
        "top", "how negatives are chosen from the candidates; top: the nearest texts; random: a random sample"
    )
    seed: int = config_field(1, "random seed for sampling_strategy=random")
    use_faiss: bool = config_field(
        False, "whether to search with faiss, which is faster for large corpora (optional dependency faiss)"
    )

    query_prompt: str | None = config_field(
        None, "prompt that is prepended to each anchor; null: the encoder's prompt for queries"
    )
    corpus_prompt: str | None = config_field(
        None, "prompt that is prepended to each text of the corpus; null: the encoder's prompt for documents"
    )
    max_length: int | None = config_field(
        None, "maximum length of texts in tokens; null: the encoder's maximum length", ge=1
    )
    precision: Literal["fp32", "bf16"] = config_field("fp32", "floating-point precision in which the encoder computes")
    batch_size: int = config_field(32, "number of texts (for the reranker: pairs) per forward pass", ge=1)
    cache_folder: str | None = config_field(
        None,
        "directory in which embeddings and reranker scores are cached for later commands, e.g. for mining with "
        "other margins or resuming after an interruption; null: no cache",
    )
    device: str = config_field(
        "auto", "device of the models: auto (a GPU if available), cpu, cuda, or an indexed device such as cuda:1"
    )
    devices: int = config_field(
        1, "number of processes that embed and score texts, each on a separate GPU if there are GPUs", ge=1
    )
    overwrite: bool = config_field(False, "whether to replace an existing output")
    quiet: bool = config_field(False, "whether to show warnings and errors only")


class MiningInput(NamedTuple):
    """Pairs of an anchor and a positive, and the corpus that is searched for negatives. The corpus contains all
    positives, and each text once.
    """

    rows: list[tuple[str, str]]
    corpus: list[str]


def run(cfg: DictConfig, _: Sequence[str] = ()) -> int:
    """Check the config, read the input, mine, and write the output."""
    config = config_of(cfg, MineConfig)
    output = check_values(config)
    check_output_file(output)
    pairs, account = read(config)
    model, reranker, models = load(config)
    identity = {
        "pairs": digest(*pairs),
        **{key: getattr(config, key) for key in (*RULES, *PROMPTS, "seed", "use_faiss")},
        **models,
    }
    lock = lock_output_file(output)
    try:
        if is_finished(output, identity, overwrite=config.overwrite):
            log.info(FINISHED, output)
            return 0
        with kept_scores(config, reranker, models) as scorer:
            mined = mine(config, pairs, model, scorer, vectors_of(config.cache_folder, models["encoder"]))
        account |= {"identity": identity, "left_out": mined.left_out}
        write(output, account, pairs, mined.rows, config.num_negatives)
    finally:
        release_lock(lock)
    return 0


def check_values(config: MineConfig) -> Path:
    require(config, "encoder", "an encoder")
    require(config, "input", "a file of pairs")
    require(config, "output", "FILE.jsonl")
    output = Path(str(config.output))
    if output.suffix != ".jsonl":
        raise InputError(key="output", value=config.output, expected="a file name that ends in .jsonl")
    check_rules(config)
    check_devices(config.devices, config.device)
    if config.column is not None and config.corpus is None:
        raise InputError(
            key="column",
            value=config.column,
            expected="null if corpus is null",
            hint="To name the columns of input, use the key columns.",
        )
    if config.use_faiss and find_spec("faiss") is None:
        raise missing_package("faiss", "faiss", key="use_faiss", value=True)
    check_output_apart(config.input or [], output, about(output))
    return output


def check_rules(config: MineConfig) -> None:
    """Check that the settings for selecting negatives do not exclude every candidate.

    Raises:
        InputError: the settings exclude every text.
    """
    if config.range_max is not None and config.range_max - config.range_min < config.num_negatives:
        raise InputError(
            key="range_max",
            value=config.range_max,
            expected=f"at least {config.range_min + config.num_negatives}, the sum of range_min={config.range_min} and "
            f"num_negatives={config.num_negatives}",
        )
    low, high = config.min_score, config.max_score
    if low is not None and high is not None and low > high:
        raise InputError(key="min_score", value=low, expected=f"at most max_score={high}")


def read(config: MineConfig) -> tuple[MiningInput, dict[str, Any]]:
    """Read the pairs and the corpus, and return them with a record of the files they come from and the numbers of
    rows.
    """
    from contrastive_encoders.datamodules.sources.records import RecordSource
    from contrastive_encoders.datamodules.sources.row_schemas import MINED

    assert config.input is not None
    records = RecordSource(
        config.input,
        MINED,
        columns=config.columns,
        split=config.split,
        on_error=config.on_error,
        max_skipped=config.max_skipped,
        encoding=config.encoding,
        prefix="",
    )
    all_rows = [(record.texts[0], record.texts[1]) for record in records]
    rows = list(dict.fromkeys(all_rows))
    corpus = list(dict.fromkeys([*read_corpus(config), *(positive for _, positive in rows)]))
    duplicates = len(all_rows) - len(rows)
    log.info(
        "%d pairs with %d anchors, corpus of %d texts%s",
        *(len(rows), len({anchor for anchor, _ in rows}), len(corpus)),
        f"; skipped {duplicates} duplicate pairs" if duplicates else "",
    )
    if len(corpus) < 2:
        raise InputError(
            key="corpus", value=None, expected="a file of other texts, since all positives are the same text"
        )
    account = {"source": records.manifest(), "pairs": len(rows), "twice": duplicates, "corpus": len(corpus)}
    return MiningInput(rows, corpus), account


def read_corpus(config: MineConfig) -> list[str]:
    """Return the texts of ``corpus``, which are searched for negatives in addition to the positives."""
    if config.corpus is None:
        return []
    files = [one.path for one in list_files(config.corpus, "corpus", documents="named")]
    if config.column is not None and all(form_of(file) == ".txt" for file in files):
        raise InputError(key="column", value=config.column, expected="null for text files, which have no columns")
    encoding = Encoding(config.encoding, "encoding")
    windows = read_windows(files, config.column or "text", TEXTS_PER_READ, lambda _: True, ADVICE, encoding)
    texts = [text for _, window in windows for text in window if text.strip()]
    if not texts:
        raise InputError(
            key="corpus",
            value=config.corpus,
            expected="files that contain texts",
            hint="Choose other files, or remove corpus.",
        )
    return texts


def load(config: MineConfig) -> "tuple[SentenceTransformer, CrossEncoder | None, dict[str, str]]":
    """Load the encoder and, if set, the reranker. Return them with the values that identify them."""
    import torch
    from transformers.utils import logging as transformers_logging

    from contrastive_encoders.encoders.loading.load import PRECISIONS
    from contrastive_encoders.encoders.loading.sentence_transformers_fallback import (
        LibraryEncoder,
        load_library_cross_encoder,
    )

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
    from contrastive_encoders.encoders.loading.sentence_transformers_folder import not_found, read_json
    from contrastive_encoders.io.installed_models import find_installed

    name = find_installed(name) or name
    path = Path(name).expanduser()
    run_folder(str(path), "encoder")  # raises an error for a run of another version
    if (path / "encoder" / "modules.json").is_file():
        return str(path / "encoder")
    if path.is_file() or not any(read_json(str(path), config) for config in ("modules.json", "config.json")):
        if not path.exists():
            raise not_found(name, "there is no modules.json and no config.json.")
        raise InputError(
            key="encoder",
            value=name,
            expected="a finished run, an exported checkpoint, a directory of sentence-transformers or transformers, "
            "or a Hub id",
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
    model: "SentenceTransformer",
    reranker: "CachedReranker | None",
    cache_folder: str | None,
) -> Mined:
    """Mine negatives with ``mine_hard_negatives`` of sentence-transformers. With a reranker, the scores of the positive
    and of each negative are the reranker's; otherwise they are cosines.

    An anchor that is itself in the corpus is passed as an additional positive of its own, because it must not become a
    negative. A margin considers its score as well.
    """
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

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
            cross_encoder=cast("CrossEncoder | None", reranker),
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


def prompts_of(config: MineConfig, model: "SentenceTransformer") -> dict[str, Any]:
    """Return the prompts for the anchors and for the texts of the corpus. Null selects the encoder's own query and
    document prompts.
    """
    own = EncoderPrompts({name: prompt or "" for name, prompt in model.prompts.items()})
    query, corpus = config.query_prompt, config.corpus_prompt
    return {
        "query_prompt": own.query if query is None else query,
        "corpus_prompt": own.document if corpus is None else corpus,
    }


class CachedReranker:
    """Wrapper of a sentence-transformers cross-encoder that stores each score in a database immediately.

    A command that is resumed after it was killed therefore scores no pair twice. ``file`` is a database of the scores
    of this cross-encoder; None disables saving.
    """

    def __init__(self, model: "CrossEncoder", file: Path | None) -> None:
        import sqlite3

        self.model, self.file, self.base = model, file, None
        if file is not None:
            check_output_folder("cache_folder", file.parent)
            file.parent.mkdir(parents=True, exist_ok=True)
            with self._input_errors():
                self.base = sqlite3.connect(file, timeout=60.0)  # another command may be writing
                self.base.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, score REAL)")
                _, self.newest = self.base.execute("SELECT count(score), max(rowid) FROM scores").fetchone()
        self.known = 0  # scores that the database had when this command began

    def start_multi_process_pool(self, **options: Any) -> Any:
        return self.model.start_multi_process_pool(**options)

    def stop_multi_process_pool(self, pool: Any) -> None:
        self.model.stop_multi_process_pool(pool)

    def predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        """Return the (N,) float32 scores of N pairs, as the library's ``predict`` does."""
        import torch

        if self.base is None:
            return self._computed(pairs, **options)
        keys = [hashlib.blake2b("\0".join(pair).encode(), digest_size=16).digest() for pair in pairs]
        found = dict[bytes, float]()
        with self._input_errors():
            for key in keys:
                for score, place in self.base.execute("SELECT score, rowid FROM scores WHERE pair = ?", (key,)):
                    self.known += key not in found and place <= (self.newest or 0)
                    found[key] = score
        if new := {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in found}:
            scores = self._computed(list(new.values()), **options).tolist()
            with self._input_errors(), self.base:  # a transaction; another command may have written some of them
                self.base.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", zip(new, scores, strict=True))
            found.update(zip(new, scores, strict=True))
        return torch.tensor([found[key] for key in keys])

    def _computed(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        scores = self.model.predict(pairs, **options).float()
        if not scores.isfinite().all():
            raise InputError(key="reranker", expected="a model with finite scores", hint="Choose another reranker.")
        return scores

    @contextlib.contextmanager
    def _input_errors(self) -> Iterator[None]:
        """Context manager that converts errors of the score database to InputError."""
        import sqlite3

        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(
                key="cache_folder",
                value=self.file,
                expected=f"a database file that can be read and written ({error})",
                hint="Free disk space, or set another cache_folder.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                key="cache_folder",
                value=self.file,
                expected=f"an undamaged database of scores ({error})",
                hint="Delete the file. Its scores are then computed again.",
            ) from error


@contextlib.contextmanager
def kept_scores(
    config: MineConfig, model: "CrossEncoder | None", models: Mapping[str, str]
) -> Iterator[CachedReranker | None]:
    """Context manager that yields the reranker with a cache of its scores. Each reranker has its own subfolder of
    ``cache_folder``.
    """
    if model is None:
        yield None
        return
    folder = config.cache_folder
    kept = CachedReranker(model, None if folder is None else Path(folder) / models["reranker"] / "scores.sqlite")
    try:
        yield kept
    finally:
        if kept.known:
            log.info("%d scores of the reranker were read from %s.", kept.known, folder)
        if kept.base is not None:
            kept.base.close()


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
    """Context manager that hides the progress bars of sentence-transformers, which has no option for this, unless
    ``shown`` is true.
    """
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(sys.stderr if shown else nowhere):
        yield


def processes(config: MineConfig, *models: object) -> list[str] | bool:
    """Return a list with the device of each worker process, each of which holds a copy of the models, or False to use
    only this process.
    """
    if config.devices == 1:
        return False
    for model in models:
        if model is not None:
            vars(model)["ends"] = ExitWithParentHook()
    on_gpus = device_of(config.device).startswith("cuda")
    return [f"cuda:{number}" if on_gpus else "cpu" for number in range(config.devices)]


class ExitWithParentHook:
    """Hook, stored as an attribute of a model, that makes the library's worker processes exit with this command. It
    takes effect when the model is unpickled in a worker.
    """

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        exit_with_parent(state["parent"])


def vectors_of(cache_folder: str | None, encoder: str) -> str | None:
    """Return the folder in which sentence-transformers caches the embeddings of ``encoder``, or None if there is no
    cache. Each encoder gets its own folder, because the library distinguishes encoders only by the name on their model
    card. A file that was truncated by a kill is removed from it.
    """
    import numpy as np

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


def write(
    output: Path, account: dict[str, Any], pairs: MiningInput, mined: Iterable[Mapping[str, Any]], num_negatives: int
) -> None:
    """Write the mined rows atomically, and next to them a record: the input files, the number of rows, and the number
    of pairs with too few negatives.
    """
    rows, input_rows = 0, set(pairs.rows)
    with atomic_file(output) as part:
        with part.open("w", encoding="utf-8") as file:
            for row in mined:
                if (row["anchor"], row["positive"]) in input_rows:
                    scores = [round(score, 6) for score in row["scores"]]
                    file.write(json.dumps({**row, "scores": scores}, ensure_ascii=False) + "\n")
                    rows += 1
        if not rows:
            raise InputError(
                key="num_negatives",
                value=num_negatives,
                expected="a smaller number, since no pair has this many negatives",
                hint="Reduce num_negatives, increase range_max, reduce the margin, or use a larger corpus.",
            )
        too_few = len(input_rows) - rows
        # The record is written before the rows, and would be attributed to an output file of another job
        output.unlink(missing_ok=True)
        write_record(about(output), {"version": RECORD_VERSION, **account, "rows": rows, "too_few": too_few})
    for rule, number in account["left_out"].items():
        log.info("%d candidates were excluded by %s.", number, rule)
    log.info(
        "%s: %d rows with %d negatives each; skipped %d pairs with fewer negatives.",
        *(output, rows, num_negatives, too_few),
    )


def about(output: Path) -> Path:
    """Return the path of the record (provenance) that is written next to the output file."""
    return output.with_name(f"{output.name}.json")


def is_finished(output: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Return whether the output file exists and was mined from the same inputs with the same settings.

    Raises:
        InputError: the file was mined with other inputs or settings, or has no record.
    """
    if not output.exists():
        return False
    try:
        record = read_record(about(output))
        before = record["identity"]
    except (OSError, CorruptFileError, KeyError):
        raise InputError(
            key="output",
            value=output,
            expected=f"a new file, or a file of this command, which has a record {about(output).name} next to it",
            hint="Choose another output, or move the file.",
        ) from None
    if overwrite:
        return False
    hint = overwrite_hint("output")
    check_version(record.get("version"), "mined negatives", key="output", value=output, hint=hint)
    if differing := differences(before, json.loads(json.dumps(identity))):
        raise InputError(
            key="output", value=output, expected=f"the settings that the file was mined with: {differing}", hint=hint
        )
    return True


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


main = command_line("mine-negatives", run, MineConfig)
