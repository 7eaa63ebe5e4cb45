"""The command that embeds a file of texts: ``contrastive-encoders embed encoder=... input=... output=...``."""

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.io.file_discovery import check_output_apart
from contrastive_encoders.io.output_directory import check_output_file, hold_file, let_go
from contrastive_encoders.io.text_files import Encoding
from contrastive_encoders.reports.progress import Progress
from contrastive_encoders.runtime.devices import check_devices, device_of
from contrastive_encoders.runtime.process_group import refuse_launcher
from contrastive_encoders.runtime.worker_loop import Start
from contrastive_encoders.runtime.worker_pool import WorkersLost, open_pool
from contrastive_encoders.runtime.worker_tasks import Task, TasksLost

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    import numpy as np

    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
    from contrastive_encoders.export.input_texts import Texts
    from contrastive_encoders.export.vector_file import VectorFile

log = logging.getLogger(__name__)

FEW = 100  # texts, whose ranges say little of others
# oneDNN, and PyTorch's layer over it, keep code and buffers for 1,024 shapes each, and every window brings new shapes:
# memory would grow for dozens of windows. Both are read when torch first computes.
for cache, shapes in (("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"), ("LRU_CACHE_CAPACITY", "16")):
    os.environ.setdefault(cache, shapes)


class Keys(TypedDict):
    encoder: str | None
    input: str | Sequence[str] | None
    column: str | None
    encoding: str | None
    output: str | None
    pooling: str | None
    prompt: str | None
    role: Literal["query", "document"] | None
    max_length: int | None
    truncate: int | None
    normalize: bool | None
    precision: Literal["fp32", "bf16"]
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
    ranges: str | None
    device: str
    devices: int
    cluster: str | None
    num_cpus: float | None
    num_gpus: float | None
    window: int
    overwrite: bool
    quiet: bool


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Check, load, compute what is missing."""
    check_values(cfg)
    from contrastive_encoders.export.input_texts import open_texts

    check_output_apart(cfg.input, Path(cfg.output), Path(f"{cfg.output}.json"))
    texts = open_texts(cfg.input, cfg.column, Encoding(cfg.encoding, "encoding"))
    check_output_file(Path(cfg.output))
    rows = texts.rows()
    if rows == 0:
        raise InputError(f"input={cfg.input} is empty; wanted at least one text.")
    if rows < FEW and cfg.dtype.endswith("int8") and cfg.ranges is None:
        if rows == 1:
            raise InputError(key="ranges", value=None, expected="FILE.ranges.npy of other vectors for a single text")
        log.warning("dtype=%s: ranges of %d texts are narrow; ranges=FILE.ranges.npy takes others'.", cfg.dtype, rows)
    encoder = load(cfg.encoder, cfg.device, options_of(cfg))
    prompt = None if cfg.role is None else encoder.prompts.of(cfg.role)
    file = vector_file(cfg, texts, rows, encoder, prompt)
    output = Path(cfg.output)
    lock = hold_file(output) if cfg.overwrite or not output.exists() else None
    try:
        if file.claim(overwrite=cfg.overwrite):
            log.info("%s is finished. overwrite=true computes it again.", output)
        else:
            start: Start = partial(already_loaded, encoder)
            if cfg.devices > 1 or cfg.cluster is not None:
                start = partial(load, cfg.encoder, cfg.device, options_of(cfg))
                del encoder  # each process has its own
            write(cfg, texts, file, start, prompt)
    finally:
        if lock:
            let_go(lock)


def check_values(cfg: DictConfig) -> None:
    refuse_launcher()
    for key, what in (("encoder", "whose vectors"), ("input", "a file of texts"), ("output", "FILE.npy or .parquet")):
        if cfg[key] is None:
            raise InputError(f"{key} is not set: {what}; say {key}=...")
    if cfg.role is not None and cfg.prompt is not None:
        raise InputError(key="role", value=cfg.role, expected="null, as prompt is set", hint="Leave one of them out.")
    for key in ("window", "devices"):
        if cfg[key] < 1:
            raise InputError(f"{key}={cfg[key]}: wanted at least 1.")
    if cfg.cluster is None:
        check_devices(cfg.devices, cfg.device)
    if cfg.ranges is not None and not cfg.dtype.endswith("int8"):
        raise InputError(f"ranges={cfg.ranges}: dtype={cfg.dtype} knows none; they are of dtype=int8 and uint8.")
    if not cfg.output.endswith((".npy", ".parquet")):
        raise InputError(f"output={cfg.output}: wanted a name that ends in .npy or .parquet.")


def options_of(cfg: DictConfig) -> dict[str, Any]:
    return {key: cfg[key] for key in ("pooling", "prompt", "max_length", "truncate", "normalize", "precision")}


def load(name: str, device: str, options: Mapping[str, Any]) -> "LoadedEncoder":
    """Load an encoder on the device of this process."""
    from contrastive_encoders.encoders import load_encoder

    return load_encoder(name, **options, device=device_of(device))


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


def vector_file(
    cfg: DictConfig, texts: "Texts", rows: int, encoder: "LoadedEncoder", prompt: str | None
) -> "VectorFile":
    """The file that is to be written, with all that decides its vectors."""
    from contrastive_encoders.export.vector_file import VectorFile

    identity = {
        "encoder": encoder.fingerprint,
        "input": texts.name,
        "column": texts.column,
        "rows": rows,
        "width": int(encoder.embed([""]).shape[1]),
        "dtype": cfg.dtype,
        "window": cfg.window,
        **({} if cfg.encoding is None else {"encoding": cfg.encoding}),
        **({} if prompt in (None, encoder.prompt) else {"prompt": prompt}),
    }
    ranges = None if cfg.ranges is None else read_ranges(cfg.ranges, cfg.dtype, identity["width"])
    if ranges is not None:
        identity["ranges"] = hashlib.sha256(ranges.tobytes()).hexdigest()[:16]
    return VectorFile(Path(cfg.output), identity, ranges)


def write(cfg: DictConfig, texts: "Texts", file: "VectorFile", start: Start, prompt: str | None) -> None:
    """Embed the windows that are missing, and give the file its name.

    Raises:
        OutputError: the processes of some windows ended each time that these were tried.
    """
    with file.opened(), open_pool(start, cfg.devices, cfg.cluster, cfg.num_cpus, cfg.num_gpus) as pool:
        before, done = file.rows_done(), file.done()
        if before:
            log.info("%d of %d are there already.", before, file.rows)
        tasks = (Task(number, block) for number, block in texts.windows(file.window, lambda number: not done[number]))
        with Progress("embedding", "texts", file.rows, before=before, quiet=cfg.quiet) as progress:
            try:
                for number, vectors_ND in pool.run(partial(embed_windows, prompt), tasks, int((~done).sum())):
                    assert number is not None, "nothing is reported in between"
                    file.write(number, vectors_ND)
                    progress.to(progress.done + len(vectors_ND))
            except (TasksLost, WorkersLost) as error:
                raise OutputError(
                    f"output={file.output}: {error}: processes ended each time, mostly for want of memory. What is "
                    "there is kept; with a smaller window or fewer devices, the same command goes on."
                ) from error
        file.finish(texts)
    log.info("%s: %d vectors of %d %s numbers", cfg.output, file.rows, file.width, file.dtype)


def already_loaded(encoder: "LoadedEncoder") -> "LoadedEncoder":
    return encoder


def embed_windows(
    prompt: str | None, encoder: "LoadedEncoder", tasks: Iterator[Task]
) -> Iterator[tuple[int, "np.ndarray"]]:
    """Yield the vectors of each window; the work of `write`."""
    for task in tasks:
        yield task.number, encoder.embed(task.payload, prompt=prompt, progress=False).numpy()


main = command_line("embed", run, Keys)
