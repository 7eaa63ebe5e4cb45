"""Find hard negatives for pairs: ``python -m datamodules.mine encoder=... input=... output=...``."""

from command.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from filelock import FileLock
from omegaconf import DictConfig

from command.children import run_ranks, works_for_another
from command.devices import check_devices, device_of
from command.line import command_line
from command.processes import Ranks, find_ranks, from_rank_zero, launched
from contracts import InputError
from files.listing import check_output_apart, form_of, list_files
from files.manifest import Damaged, read_record, write_record
from files.ownership import check_output_file, differences, hold_file, let_go, lock_of, work_for
from files.rows import read_windows
from files.whole import whole_file

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from datamodules.mining import Mined, MiningRules, Pairs
    from export.vector_file import VectorFile

log = logging.getLogger("datamodules.mine")

TEXTS_AT_ONCE = 8192  # of the corpus, while it is read
ADVICE = " Say column=NAME, or correct the row."


class Keys(TypedDict):
    encoder: str | None
    input: str | Sequence[str] | None
    columns: Sequence[str] | None
    split: str
    on_error: Literal["fail", "skip"]
    corpus: str | Sequence[str] | None
    column: str | None
    output: str | None
    negatives: int
    range_min: int
    range_max: int | None
    absolute_margin: float | None
    relative_margin: float | None
    sampling: Literal["top", "random"]
    seed: int
    index: str | None
    index_effort: int | None
    pooling: str | None
    prompt: str | None
    corpus_prompt: str | None
    max_length: int | None
    precision: Literal["fp32", "bf16"]
    device: str
    devices: int
    window: int
    overwrite: bool
    quiet: bool


def run(cfg: DictConfig) -> int:
    """Check, embed what is missing, search, write. Several processes embed; who finds all vectors there searches."""
    output = check_values(cfg)
    rules = rules_of(cfg)
    check_output_file(output)
    pairs, account = read(cfg)
    identity = {"pairs": digest(pairs.anchors, pairs.corpus, pairs.positives), **rules._asdict()}
    encoders = load(cfg)
    if cfg.index is not None:
        identity |= {"index": cfg.index, "index_effort": cfg.index_effort}
    identity |= {side: encoder.fingerprint for side, encoder in encoders.items()}
    texts = {"anchors": pairs.anchors, "corpus": pairs.corpus}
    try:
        files = {side: vector_file(cfg, encoders[side], side, texts[side]) for side in texts}
        if claim(cfg, output, identity, files):
            log.info("%s is finished. overwrite=true mines it again.", output)
            return 0
        ranks = find_ranks()
        if cfg.devices > 1 and ranks.world == 1:
            if status := run_ranks("datamodules.mine", cfg.devices, once=("overwrite",)):
                return status
        else:
            for side, file in files.items():
                embed(encoders[side], texts[side], file, ranks)
        account |= {"identity": identity}
        if not (works_for_another() and launched() is None):  # else the command that started this one goes on
            search(cfg, output, account, pairs, rules, files)
    finally:
        let_go(lock_of(output))
    return 0


def claim(cfg: DictConfig, output: Path, identity: dict[str, Any], files: "Mapping[str, VectorFile]") -> bool:
    """Whether it is finished; else the files of vectors are there. Of several processes the first one decides."""

    def decide(writer: bool) -> list[bool]:
        if not writer or works_for_another():
            return [False]
        hold_file(output)
        if is_finished(output, identity, overwrite=cfg.overwrite):
            return [True]
        for file in files.values():
            file.output.parent.mkdir(exist_ok=True)
            file.claim(overwrite=cfg.overwrite)
        return [False]

    (finished,) = from_rank_zero(decide)
    if works_for_another():
        work_for(lock_of(output))
    return bool(finished)


def search(
    cfg: DictConfig,
    output: Path,
    account: dict[str, Any],
    pairs: "Pairs",
    rules: "MiningRules",
    files: "Mapping[str, VectorFile]",
) -> None:
    """Find and write the negatives, unless vectors are missing, which another process computes, or has used already."""
    import numpy as np

    from datamodules.mining import mine
    from datamodules.nearest import ExactSearch, IndexSearch

    vectors, lock = files["corpus"].output.parent, output.with_name(f".{output.name}.search.lock")
    with FileLock(lock):  # beside the vectors: who waits for it would make their folder again
        if not all(file.output.exists() for file in files.values()):
            if not vectors.is_dir():
                lock.unlink()
            return
        anchors, corpus = (np.load(files[side].output, mmap_mode="r") for side in ("anchors", "corpus"))
        device = device_of(cfg.device)
        exact = cfg.index is None
        nearest = ExactSearch(corpus, device) if exact else IndexSearch(corpus, cfg.index, cfg.index_effort, cfg.seed)
        write(output, account, pairs, mine(pairs, anchors, corpus, rules, nearest, device), rules.negatives)
        shutil.rmtree(vectors)
        lock.unlink()
    log.info(
        "%s: %d rows with %d negatives each; %d pairs got fewer and are left out.",
        *(output, account["rows"], rules.negatives, account["too_few"]),
    )


def check_values(cfg: DictConfig) -> Path:
    for key, what in (("encoder", "whose vectors"), ("input", "a file of pairs"), ("output", "FILE.jsonl")):
        if cfg[key] is None:
            raise InputError(f"{key} is not set: {what}; say {key}=...")
    output = Path(cfg.output)
    if output.suffix != ".jsonl":
        raise InputError(f"output={cfg.output}: wanted a name that ends in .jsonl.")
    for key in ("window", "devices"):
        if cfg[key] < 1:
            raise InputError(f"{key}={cfg[key]}: wanted at least 1.")
    check_devices(cfg.devices, cfg.device)
    if cfg.column is not None and cfg.corpus is None:
        raise InputError(f"column={cfg.column} is of the corpus, and there is none; columns= names those of input.")
    if cfg.index_effort is not None and (cfg.index is None or cfg.index_effort < 1):
        raise InputError(f"index_effort={cfg.index_effort}: wanted 1 or more, beside index=...")
    if cfg.index is not None and find_spec("faiss") is None:
        raise InputError(
            f"index={cfg.index} needs faiss. Install it: pip install 'contrastive-encoders[faiss]'; index=null "
            "compares every text."
        )
    check_output_apart(cfg.input, output, about(output))
    return output


def rules_of(cfg: DictConfig) -> "MiningRules":
    from datamodules.mining import MiningRules

    rules = MiningRules(**{key: cfg[key] for key in MiningRules._fields})
    rules.check()
    return rules


def read(cfg: DictConfig) -> tuple["Pairs", dict[str, Any]]:
    """The pairs with their corpus, and the account of what was read."""
    from datamodules.mining import pairs_of
    from datamodules.record_kinds import MINED
    from datamodules.records import RecordSource

    paths = cfg.input if isinstance(cfg.input, str) else list(cfg.input)
    columns = None if cfg.columns is None else list(cfg.columns)
    records = RecordSource(paths, MINED, columns=columns, split=cfg.split, on_error=cfg.on_error)
    more: list[str] = []
    if cfg.corpus is not None:
        given = cfg.corpus if isinstance(cfg.corpus, str) else list(cfg.corpus)
        files = [one.path for one in list_files(given, "corpus", documents="named")]
        if cfg.column is not None and all(form_of(file) == ".txt" for file in files):
            raise InputError(f"column={cfg.column}: a text file has lines and no columns; leave column out.")
        windows = read_windows(files, cfg.column or "text", TEXTS_AT_ONCE, lambda _: True, ADVICE)
        more = [text for _, window in windows for text in window if text.strip()]
    pairs = pairs_of((record.texts for record in records), more)
    distinct = sum(map(len, pairs.positives))
    log.info(
        "%d pairs of %d anchors, a corpus of %d texts%s",
        *(distinct, len(pairs.anchors), len(pairs.corpus)),
        f"; {pairs.read - distinct} pairs were there twice" if pairs.read > distinct else "",
    )
    if len(pairs.corpus) < 2:
        raise InputError(f"input={cfg.input}: its positives are one text, so there are no negatives. Say corpus=FILE.")
    counts = {"pairs": distinct, "twice": pairs.read - distinct, "corpus": len(pairs.corpus)}
    return pairs, {"source": records.manifest(), **counts}


def load(cfg: DictConfig) -> dict[str, Any]:
    """The encoder of anchors and that of the corpus: one, unless their prompts differ."""
    from encoders import load_encoder

    options = {key: cfg[key] for key in ("pooling", "max_length", "precision")} | {"device": device_of(cfg.device)}
    anchors = load_encoder(cfg.encoder, prompt=cfg.prompt, **options)
    same = cfg.prompt == cfg.corpus_prompt
    return {
        "anchors": anchors,
        "corpus": anchors if same else load_encoder(cfg.encoder, prompt=cfg.corpus_prompt, **options),
    }


def vector_file(cfg: DictConfig, encoder: Any, side: str, texts: list[str]) -> "VectorFile":
    """(texts, width) float32, in a file that a killed command goes on with."""
    from export.vector_file import VectorFile

    path = Path(f"{cfg.output}.vectors") / f"{side}.npy"
    width = int(encoder.embed([""]).shape[1])
    identity = {"encoder": encoder.fingerprint, "texts": digest(texts), "rows": len(texts), "width": width}
    return VectorFile(path, {**identity, "dtype": "float32", "window": cfg.window})


def embed(encoder: Any, texts: list[str], file: "VectorFile", ranks: Ranks) -> None:
    """Every so many-th window, unless it is there."""
    import numpy as np

    from export.texts_of import Texts

    try:
        file.open()
    except FileNotFoundError:  # it is finished
        return
    try:
        if before := file.rows_done():
            log.info("%s: %d of %d texts are embedded already.", file.output.stem, before, len(texts))
        for number in np.flatnonzero(~file.done()).tolist():
            if number % ranks.world == ranks.rank:
                window = texts[number * file.window : (number + 1) * file.window]
                file.write(number, encoder.embed(window, progress=False).numpy())
        file.finish(Texts((), None))
    finally:
        file.close()


def write(output: Path, account: dict[str, Any], pairs: "Pairs", mined: "Iterable[Mined]", negatives: int) -> None:
    """The rows, whole or not at all, and what lies beside them; how many, and how many pairs got too few negatives,
    goes into ``account``.
    """
    rows = too_few = 0
    with whole_file(output) as part:
        with part.open("w", encoding="utf-8") as file:
            for one in mined:
                found = pairs.positives[one.anchor]
                if len(one.negatives) < negatives:
                    too_few += len(found)
                    continue
                taken = {f"negative_{n}": pairs.corpus[place] for n, place in enumerate(one.negatives, start=1)}
                for place, score in zip(found, one.positive_scores, strict=True):
                    row = {"anchor": pairs.anchors[one.anchor], "positive": pairs.corpus[place], **taken}
                    scores = [round(each, 6) for each in (score, *one.negative_scores)]
                    file.write(json.dumps(row | {"scores": scores}, ensure_ascii=False) + "\n")
                    rows += 1
        if not rows:
            raise InputError(
                f"output={output}: no anchor got {negatives} negatives. Ask for fewer, widen range_max, lower the "
                "margin, or give a larger corpus."
            )
        account |= {"rows": rows, "too_few": too_few}
        # Of another job: the record, which comes before the rows, would be taken for its
        output.unlink(missing_ok=True)
        write_record(about(output), account)


def about(output: Path) -> Path:
    """What lies beside a finished file."""
    return output.with_name(f"{output.name}.json")


def is_finished(output: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Whether the file is there, and of this job.

    Raises:
        InputError: it is of another job, or of none.
    """
    if not output.exists():
        return False
    try:
        before = read_record(about(output))["identity"]
    except (OSError, Damaged, KeyError):
        raise InputError(
            f"output={output} is there already, and {about(output).name} does not say that it was mined, as what is "
            "replaced must be. Choose another output, or move it away."
        ) from None
    if overwrite:
        return False
    if differing := differences(before, json.loads(json.dumps(identity))):
        raise InputError(
            f"output={output} is of another job: {differing}. Choose another output, or say overwrite=true to throw it "
            "away."
        )
    return True


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


main = command_line("mine", run, Keys)

if __name__ == "__main__":
    main()
