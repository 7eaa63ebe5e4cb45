"""Embed texts: the function `embed`, and the functions that ``contrastive-encoders embed`` calls."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from contrastive_encoders.core import InputError, OutputError, is_address
from contrastive_encoders.core.config_schema import build, plain_value
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.key_suggestions import check_known_keys
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.core.runtime.exit_codes import as_exceptions
from contrastive_encoders.core.runtime.log_output import logs_shown
from contrastive_encoders.core.runtime.worker_loop import Start
from contrastive_encoders.core.runtime.worker_pool import WorkerCrashError, open_pool
from contrastive_encoders.core.runtime.worker_tasks import TaskFailedError, WorkItem
from contrastive_encoders.encoders.loading.load import load_configured
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder, encoder_name, list_of_texts
from contrastive_encoders.export.embed_config import EmbedConfig
from contrastive_encoders.export.input_texts import InputTexts, ListedTexts, open_texts
from contrastive_encoders.export.quantization import EIGHT_BITS, convert, ranges_of
from contrastive_encoders.export.vector_file import ENCODER_SETTINGS, VectorFile
from contrastive_encoders.io.file_discovery import check_output_apart
from contrastive_encoders.io.html_cells import visible_text
from contrastive_encoders.io.output_directory import FINISHED, check_output_file, lock_output_file, release_lock
from contrastive_encoders.io.text_files import Encoding

log = logging.getLogger(__name__)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
COMMAND_KEYS = ("devices", "cluster", "num_cpus", "num_gpus")  # keys for several processes
MIN_TEXTS = 100  # with fewer texts, the ranges are not reliable for other texts


@overload
def embed(
    encoder: str | Path | LoadedEncoder, texts: Iterable[str] | str | Path, output: None = None, **keys: Any
) -> Array: ...


@overload
def embed(
    encoder: str | Path | LoadedEncoder, texts: Iterable[str] | str | Path, output: str | Path, **keys: Any
) -> Path: ...


def embed(
    encoder: str | Path | LoadedEncoder,
    texts: Iterable[str] | Iterable[Path] | str | Path,
    output: str | Path | None = None,
    **keys: Any,
) -> Array | Path:
    """Return the embeddings of texts, or write them to a file, as ``contrastive-encoders embed`` does.

    Args:
        encoder: an encoder that `train` or `load_encoder` returned; the directory of a run or of a
            sentence-transformers or transformers model; a checkpoint, a hub id, or a file of word vectors.
        texts: a list of texts; or the path of a file or a directory of files, as a string or a ``Path``, or a list of
            ``Path``.
        output: ``FILE.npy`` or ``FILE.parquet``. The same call resumes an incomplete file.
        **keys: other keys of ``contrastive-encoders embed``, such as ``role="query"``, ``normalize=True``,
            ``dtype="float16"``, or ``column="title"`` for files.

    Returns:
        If ``output`` is None, an array (texts, width) in the order of the texts, float32 or of type ``dtype``; for
        ``binary`` and ``ubinary``, it has width / 8 columns. If ``output`` is set, the path of the file.

    Raises:
        InputError: a key, a value, or a text is invalid, or a key such as ``pooling`` is set for an encoder that is
            already loaded.
        OutputError: the disk is full or cannot be written to.

    Example:
        >>> from contrastive_encoders import embed, train
        >>> rows = [(f"What is thing {n}?", f"Thing {n} is a boat.") for n in range(16)]
        >>> encoder = train(rows, backbone="tiny", batch_size=8, max_steps=2, quiet=True).encoder
        >>> embed(encoder, ["a boat", "a thing"]).shape
        (2, 256)
        >>> embed(encoder, ["a boat", "a thing"], "vectors.npy", quiet=True)
        PosixPath('vectors.npy')
    """
    known = [one.name for one in fields(EmbedConfig) if one.name not in COMMAND_KEYS]
    check_known_keys(keys, known, in_python=True)
    loaded = encoder if isinstance(encoder, LoadedEncoder) else None
    name = encoder_name(encoder)
    files, listed = _paths_or_texts(texts)
    config = build(EmbedConfig, plain_value({**keys, "encoder": name, "input": files, "output": output}))
    config.check_keys()
    with as_exceptions(), logs_shown(quiet=config.quiet):
        source = listed if listed is not None else _open(config)
        if config.output is None:
            return _vectors(config, source, loaded)
        write_vectors(config, source, loaded)
    return Path(config.output)


def write_vectors(config: EmbedConfig, texts: InputTexts | ListedTexts, loaded: LoadedEncoder | None = None) -> None:
    """Compute the embeddings that the output file does not contain yet, and write them to it.

    Args:
        config: configuration of the embedding.
        texts: texts to embed; those of ``config.input``, or texts in memory.
        loaded: the encoder of the configuration, if it is already loaded.

    Raises:
        InputError: the texts, the encoder, or the output cannot be used.
        OutputError: the disk is full, or worker processes died repeatedly.
    """
    output = Path(str(config.output))
    if config.input is not None:
        check_output_apart(config.input, output, output.with_name(f"{output.name}.json"))
    check_output_file(output)
    rows = _count(config, texts)
    encoder = load_configured(str(config.encoder), config, loaded)
    prompt = None if config.role is None else encoder.prompts.for_role(config.role)
    file = _vector_file(config, texts, rows, encoder, prompt)
    lock = lock_output_file(output) if config.overwrite or not output.exists() else None
    try:
        if file.claim(overwrite=config.overwrite):
            log.info(FINISHED, output)
        else:
            start: Start = partial(_identity, encoder)
            if config.devices > 1 or config.cluster is not None:
                start = partial(load_configured, str(config.encoder), config)
                del encoder  # each process has its own encoder
            _write(config, texts, file, start, prompt)
    finally:
        if lock:
            release_lock(lock)


def _paths_or_texts(texts: Any) -> tuple[list[str] | str | None, ListedTexts | None]:
    """Return (paths, None) if ``texts`` are paths of files, otherwise (None, the texts themselves).

    Raises:
        InputError: an item is neither a text nor a path.
    """
    if isinstance(texts, str | Path):
        if isinstance(texts, str) and not (Path(texts).exists() or has_magic(texts) or is_address(texts)):
            raise InputError(
                key="texts",
                value=texts,
                expected="a file, a directory, or a list of texts",
                hint="Pass one text as a list: [TEXT].",
            )
        return str(texts), None
    if isinstance(texts, list | tuple) and texts and all(isinstance(one, Path) for one in texts):
        return [str(one) for one in texts], None
    return None, ListedTexts(tuple(list_of_texts(texts)))


def _open(config: EmbedConfig) -> InputTexts:
    assert config.input is not None
    return open_texts(config.input, config.column, Encoding(config.encoding, "encoding"))


def _count(config: EmbedConfig, texts: InputTexts | ListedTexts) -> int:
    """Count the texts, and check that there are enough of them.

    Raises:
        InputError: there are no texts, or too few for ranges.
    """
    rows = texts.rows()
    if rows == 0:
        key = "texts" if config.input is None else "input"
        raise InputError(key=key, value=config.input or [], expected="at least one text")
    if rows < MIN_TEXTS and config.dtype in EIGHT_BITS and config.quantization_ranges is None:
        if rows == 1:
            raise InputError(
                key="quantization_ranges",
                value=None,
                expected="FILE.ranges.npy of other embeddings, because a single text has no range",
            )
        log.warning(
            "dtype=%s: the ranges of %d texts may be too narrow. Set quantization_ranges to the ranges of more texts.",
            config.dtype,
            rows,
        )
    return rows


def _vectors(config: EmbedConfig, texts: InputTexts | ListedTexts, loaded: LoadedEncoder | None) -> Array:
    """Embed all texts, one window (block of rows) at a time."""
    rows = _count(config, texts)
    encoder = load_configured(str(config.encoder), config, loaded)
    prompt = None if config.role is None else encoder.prompts.for_role(config.role)
    tasks = _windows(config, texts, config.chunk_rows, lambda _: True)
    blocks = list[Array]()
    with ProgressBar("embedding", "texts", rows, quiet=config.quiet) as progress:
        for _, vectors_ND in _embed_windows(prompt, encoder, tasks):
            blocks.append(vectors_ND)
            progress.to(progress.done + len(vectors_ND))
    vectors_ND = np.concatenate(blocks)
    ranges_2D = None
    if config.dtype in EIGHT_BITS:
        ranges_2D = _ranges(config, vectors_ND.shape[1]) if config.quantization_ranges else ranges_of([vectors_ND])
    return convert(vectors_ND, config.dtype, ranges_2D)


def _ranges(config: EmbedConfig, width: int) -> Array:
    """Read the minimum and the maximum of each dimension, (2, D), from the file ``quantization_ranges``.

    Raises:
        InputError: the file contains something else.
    """
    try:
        ranges = np.load(str(config.quantization_ranges), allow_pickle=False)
        is_valid = ranges.shape == (2, width) and bool(np.isfinite(ranges).all() and (ranges[0] <= ranges[1]).all())
    except (OSError, ValueError, EOFError, TypeError, AttributeError) as error:
        raise InputError(
            f"quantization_ranges={config.quantization_ranges}: cannot be read ({error}).",
            key="quantization_ranges",
            value=config.quantization_ranges,
            expected=f"a readable file of ranges ({error})",
        ) from None
    if not is_valid:
        raise InputError(
            key="quantization_ranges",
            value=config.quantization_ranges,
            expected=f"an array of shape (2, {width}) with the minimum and maximum of each dimension, not "
            f"{ranges.shape}",
            hint=f"Embedding the corpus with dtype={config.dtype} writes this array to OUTPUT.ranges.npy.",
        )
    return ranges.astype(np.float32)  # type: ignore[no-any-return]


def _vector_file(
    config: EmbedConfig, texts: InputTexts | ListedTexts, rows: int, encoder: LoadedEncoder, prompt: str | None
) -> VectorFile:
    """Return the output file. It is identified by all settings and inputs that affect its embeddings."""
    width = int(encoder.embed([""]).shape[1])
    identity = {
        "encoder": encoder.fingerprint,
        ENCODER_SETTINGS: encoder.description,
        "input": texts.name,
        "column": texts.column,
        "rows": rows,
        "width": width,
        "dtype": config.dtype,
        "chunk_rows": config.chunk_rows,
        **({} if config.encoding is None else {"encoding": config.encoding}),
        **({"strip_html": True} if config.strip_html else {}),
        **({} if prompt in (None, encoder.prompt) else {"prompt": prompt}),
    }
    ranges = None if config.quantization_ranges is None else _ranges(config, width)
    if ranges is not None:
        identity["ranges"] = hashlib.sha256(ranges.tobytes()).hexdigest()[:16]
    return VectorFile(Path(str(config.output)), identity, ranges)


def _write(
    config: EmbedConfig, texts: InputTexts | ListedTexts, file: VectorFile, start: Start, prompt: str | None
) -> None:
    """Embed the blocks of texts that are not yet in the file, and rename the file to its final name.

    Raises:
        OutputError: the processes of some windows failed in every attempt.
    """
    resources = (config.devices, config.cluster, config.num_cpus, config.num_gpus)
    with file.open(), open_pool(start, *resources) as pool:
        embedded, done = file.written_rows(), file.written_windows()
        if embedded:
            log.info("%d of %d texts are already embedded.", embedded, file.rows)
        tasks = _windows(config, texts, file.chunk_rows, lambda number: not done[number])
        with ProgressBar("embedding", "texts", file.rows, before=embedded, quiet=config.quiet) as progress:
            try:
                for number, vectors_ND in pool.run(partial(_embed_windows, prompt), tasks, int((~done).sum())):
                    assert number is not None, "workers report only finished windows"
                    file.write(number, vectors_ND)
                    progress.to(progress.done + len(vectors_ND))
            except (TaskFailedError, WorkerCrashError) as error:
                raise OutputError(
                    f"output={file.output}: {error}: the worker processes ended in every attempt, often because of "
                    "insufficient memory. Finished embeddings are kept. To resume, rerun the command with smaller "
                    "chunk_rows or fewer devices."
                ) from error
        file.finish(texts)
    counts = count_of(file.rows, "embedding"), count_of(file.width, "dimension")
    log.info("%s: %s with %s (%s)", config.output, *counts, file.dtype)


def _windows(
    config: EmbedConfig, texts: InputTexts | ListedTexts, size: int, is_needed: Callable[[int], bool]
) -> Iterator[WorkItem]:
    """Yield the windows (blocks of texts) to embed, and at the end log how many texts were empty."""
    rows = empty = 0
    for number, block in texts.windows(size, is_needed):
        block = [visible_text(text) for text in block] if config.strip_html else block
        rows, empty = rows + len(block), empty + sum(not text.strip() for text in block)
        yield WorkItem(number, block)
    if empty:
        log.warning("%s of %s texts are empty; their embeddings are equal.", f"{empty:,}", f"{rows:,}")


def _identity(encoder: LoadedEncoder) -> LoadedEncoder:
    return encoder


def _embed_windows(
    prompt: str | None, encoder: LoadedEncoder, tasks: Iterator[WorkItem]
) -> Iterator[tuple[int, Array]]:
    """Embed windows in a worker process, and yield (number, embeddings) for each."""
    for task in tasks:
        yield task.number, encoder.embed(task.payload, prompt=prompt, progress=False).numpy()
