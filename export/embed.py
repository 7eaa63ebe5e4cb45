"""Turn a file of texts into a file of vectors: ``python -m export.embed encoder=... input=... output=...``."""

from command.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from omegaconf import DictConfig

from command.children import run_ranks, works_for_another
from command.devices import check_devices, device_of
from command.line import command_line
from command.processes import find_ranks, from_rank_zero
from contracts import InputError
from files.listing import check_output_apart
from files.ownership import check_output_file, hold_file, let_go, lock_of, work_for
from files.progress import Progress

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    import numpy as np

    from encoders.load import LoadedEncoder
    from export.texts_of import Texts
    from export.vector_file import VectorFile

log = logging.getLogger("export.embed")

FEW = 100  # texts, whose ranges say little of others
# oneDNN, and PyTorch's layer over it, keep code and buffers for 1,024 shapes each, and every window brings new shapes:
# memory would grow for dozens of windows. Both are read when torch first computes.
for cache, shapes in (("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"), ("LRU_CACHE_CAPACITY", "16")):
    os.environ.setdefault(cache, shapes)


class Keys(TypedDict):
    encoder: str | None
    input: str | Sequence[str] | None
    column: str | None
    output: str | None
    pooling: str | None
    prompt: str | None
    max_length: int | None
    truncate: int | None
    normalize: bool | None
    precision: Literal["fp32", "bf16"]
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
    ranges: str | None
    device: str
    devices: int
    window: int
    overwrite: bool
    quiet: bool


def run(cfg: DictConfig) -> int:
    """Check, load, compute what is missing; the exit status."""
    check_values(cfg)
    from export.texts_of import open_texts

    rank, world = find_ranks()
    check_output_apart(cfg.input, Path(cfg.output), Path(f"{cfg.output}.json"))
    texts = open_texts(cfg.input, cfg.column)
    check_output_file(Path(cfg.output))
    rows = texts.rows()
    if rows == 0:
        raise InputError(f"input={cfg.input} is empty; wanted at least one text.")
    if rows < FEW and cfg.dtype.endswith("int8") and cfg.ranges is None:
        if rows == 1:
            raise InputError(f"dtype={cfg.dtype}: one text has no ranges. Say ranges=FILE.ranges.npy of other vectors.")
        log.warning("dtype=%s: ranges of %d texts are narrow; ranges=FILE.ranges.npy takes others'.", cfg.dtype, rows)
    encoder = load(cfg)
    file, finished = claim(cfg, texts, rows, encoder)
    if finished:
        log.info("%s is finished. overwrite=true computes it again.", cfg.output)
        return 0
    if cfg.devices > 1 and world == 1:  # once all is checked: each of them would say what is wrong
        del encoder
        status = run_ranks("export.embed", cfg.devices, once=("overwrite",))
        if status == 0:
            let_go(lock_of(file.output))
        return status
    file.open()
    try:
        before = file.rows_done()
        if before:
            log.info("%d of %d are there already.", before, rows)
        with Progress("embedding", "texts", rows, before=before, quiet=cfg.quiet or rank > 0) as progress:
            compute(encoder, texts, file, rank, world, progress)
        if file.finish(texts):
            log.info("%s: %d vectors of %d %s numbers", cfg.output, rows, file.width, file.dtype)
            let_go(lock_of(file.output))
    finally:
        file.close()
    return 0


def check_values(cfg: DictConfig) -> None:
    for key, what in (("encoder", "whose vectors"), ("input", "a file of texts"), ("output", "FILE.npy or .parquet")):
        if cfg[key] is None:
            raise InputError(f"{key} is not set: {what}; say {key}=...")
    for key in ("window", "devices"):
        if cfg[key] < 1:
            raise InputError(f"{key}={cfg[key]}: wanted at least 1.")
    check_devices(cfg.devices, cfg.device)
    if cfg.ranges is not None and not cfg.dtype.endswith("int8"):
        raise InputError(f"ranges={cfg.ranges}: dtype={cfg.dtype} knows none; they are of dtype=int8 and uint8.")
    if not cfg.output.endswith((".npy", ".parquet")):
        raise InputError(f"output={cfg.output}: wanted a name that ends in .npy or .parquet.")


def load(cfg: DictConfig) -> "LoadedEncoder":
    from encoders import load_encoder

    options = {key: cfg[key] for key in ("pooling", "prompt", "max_length", "truncate", "normalize", "precision")}
    return load_encoder(cfg.encoder, **options, device=device_of(cfg.device))


def read_ranges(path: str, dtype: str, width: int) -> "np.ndarray":
    """(2, D), the least and the greatest value of each dimension.

    Raises:
        InputError: the file holds something else.
    """
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        is_right = found.shape == (2, width) and bool(np.isfinite(found).all() and (found[0] <= found[1]).all())
    except (OSError, ValueError, EOFError, TypeError, AttributeError) as error:
        raise InputError(f"ranges={path}: cannot be read ({error}).") from None
    if not is_right:
        raise InputError(
            f"ranges={path}: wanted the least and the greatest value of each of {width} numbers, an array of shape "
            f"(2, {width}); got {found.shape}. dtype={dtype} of the corpus writes such a file beside its own, "
            "OUTPUT.ranges.npy."
        )
    return found.astype(np.float32)


def claim(cfg: DictConfig, texts: "Texts", rows: int, encoder: "LoadedEncoder") -> tuple["VectorFile", bool]:
    """The file, and whether it is finished; where there are several processes the first one decides."""
    from export.vector_file import VectorFile

    identity = {
        "encoder": encoder.fingerprint,
        "input": texts.name,
        "column": texts.column,
        "rows": rows,
        "width": int(encoder.embed([""]).shape[1]),
        "dtype": cfg.dtype,
        "window": cfg.window,
    }
    ranges = None if cfg.ranges is None else read_ranges(cfg.ranges, cfg.dtype, identity["width"])
    if ranges is not None:
        identity["ranges"] = hashlib.sha256(ranges.tobytes()).hexdigest()[:16]
    file = VectorFile(Path(cfg.output), identity, ranges)
    lock = lock_of(file.output)

    def decide(writer: bool) -> list[bool]:
        begins = writer and not works_for_another() and (cfg.overwrite or not file.output.exists())
        if begins:
            hold_file(file.output)
        try:
            return [file.claim(overwrite=cfg.overwrite)]
        except BaseException:
            let_go(lock)
            raise

    (finished,) = from_rank_zero(decide)
    if works_for_another():
        work_for(lock)
    return file, finished


def compute(
    encoder: "LoadedEncoder", texts: "Texts", file: "VectorFile", rank: int, world: int, progress: Progress
) -> None:
    """Every ``world``-th window, unless it is there. Which, does not depend on what other processes have done."""
    done = file.done()
    for number, block in texts.windows(file.window, lambda number: number % world == rank and not done[number]):
        file.write(number, encoder.embed(block, progress=False).numpy())
        progress.to(file.rows_done())


main = command_line("export.embed", run, Keys)

if __name__ == "__main__":
    main()
