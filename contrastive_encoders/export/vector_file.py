"""Write a file of embeddings in windows of rows. Each finished window is marked, so that an interrupted job can be
resumed.

``OUTPUT.part`` is a complete .npy file from the start. ``OUTPUT.progress`` describes the job in its first line,
followed by a byte for each window. Both survive a kill, and an unfinished window is computed again. Only one process
writes.

The ranges of 8-bit numbers are stored next to the output in ``OUTPUT.ranges.npy``. If no ranges are given, they are
computed from all embeddings, which are stored as floats in OUTPUT.part until the last one is written.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.parquet

from contrastive_encoders.core import NO_ROOM, InputError, OutputError
from contrastive_encoders.export.input_texts import InputTexts, ListedTexts
from contrastive_encoders.export.quantization import EIGHT_BITS, convert, quantize, ranges_of, storage_format
from contrastive_encoders.io.atomic import atomic_file, atomic_write
from contrastive_encoders.io.output_directory import differences

EMBEDDING_COLUMN = "embedding"  # the column of a Parquet file with the embeddings, next to the column of the texts
ENCODER_SETTINGS = "encoder_settings"  # entry of the identity that only describes differences of the encoders
WRITTEN_MARK = b"\1"


class VectorFile:
    """A file of embeddings that is written in windows.

    Args:
        output: path of the file.
        identity: everything that determines the embeddings, including rows, width, dtype, and window; a file with
            another identity is refused.
        ranges_2D: ranges for dtype int8 or uint8, if they are known in advance.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any], ranges_2D: np.ndarray | None = None) -> None:
        self.output, self.identity = output, json.loads(json.dumps(identity))
        self.rows, self.width, self.chunk_rows = identity["rows"], identity["width"], identity["chunk_rows"]
        self.dtype, self.ranges_2D = identity["dtype"], ranges_2D
        self.is_deferred = self.dtype in EIGHT_BITS and ranges_2D is None
        self.part_dtype = "float32" if self.is_deferred else self.dtype  # dtype in .part
        self.type, self.columns = storage_format(self.part_dtype, self.width)
        self.part, self.progress, self.record_path, self.ranges = (
            output.with_name(f"{output.name}{ending}") for ending in (".part", ".progress", ".json", ".ranges.npy")
        )
        self.windows = -(-self.rows // self.chunk_rows)

    def claim(self, *, overwrite: bool) -> bool:
        """Create the files of the job, or find the existing ones. Return whether the job is finished.

        Raises:
            InputError: the files are of another job.
            OutputError: there is not enough space for all embeddings.
            OSError: the files cannot be written.
        """
        if overwrite:
            self._check_replaceable()
            ranges = [self.ranges] if "encoder" in _read_identity(self.record_path) else []
            for path in (
                self.output,
                *ranges,
                self.part,
                self.progress,
                self.record_path,
            ):  # the record of their job last
                path.unlink(missing_ok=True)
        if self.output.exists():
            self._check(self.record_path, self.record_path.read_bytes() if self.record_path.is_file() else b"{}")
            if self.progress.is_file():  # left by a kill of a job that had just finished
                self.part.unlink(missing_ok=True)
                self.progress.unlink()
            return True
        if not self.progress.is_file():
            self._check_replaceable()
        if self.progress.is_file() and self.part.is_file():
            self._check(self.progress, self.progress.read_bytes().split(b"\n", 1)[0])
            return False
        # A kill between the two leaves only the record, with which the same command creates OUTPUT.part again
        atomic_write(self.progress, json.dumps(self.identity).encode() + b"\n" + bytes(self.windows))
        new = self.part.with_name(f"{self.part.name}.new")
        with new.open("wb") as file:
            self._write_header(file, self.type, self.columns)
            self._reserve(file, file.tell() + self.rows * self._row_bytes)
        new.replace(self.part)
        return False

    def _write_header(self, file: IO[bytes], type_: np.dtype, columns: int) -> None:
        shape = {"descr": np.lib.format.dtype_to_descr(type_), "fortran_order": False, "shape": (self.rows, columns)}
        np.lib.format.write_array_header_1_0(file, shape)

    def _check_replaceable(self) -> None:
        """Check that the files to replace belong to an embedding job, according to the record next to each file."""
        records = {self.output: self.record_path, self.part: self.progress, self.record_path: self.record_path}
        records |= {self.ranges: self.record_path} if self.dtype in EIGHT_BITS else {}
        for path, record in records.items():
            if os.path.lexists(path) and "encoder" not in _read_identity(record):
                raise InputError(
                    key="output",
                    value=self.output,
                    expected=f"a new path, or files of this command, but {record.name} does not list {path.name} as a "
                    "file of embeddings",
                    hint=f"Choose a different output, or move {path.name}.",
                )

    def _reserve(self, file: IO[bytes], size: int) -> None:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            Path(file.name).unlink()
            self.progress.unlink()
            if error.errno not in NO_ROOM:
                raise
            raise OutputError(
                f"output={self.output}: {size / 2**30:.1f} GiB of embeddings do not fit at this path "
                f"({error.strerror}). Free space, or choose a different output or a smaller dtype."
            ) from None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Context manager that opens the temporary files, so that embeddings can be written."""
        self._header_bytes = self.part.stat().st_size - self.rows * self._row_bytes
        self._marks = self.progress.stat().st_size - self.windows
        with self.part.open("r+b") as self._vectors, self.progress.open("r+b") as self._record:
            yield

    def written_windows(self) -> np.ndarray:
        """Return whether each window has been written, as a bool array (windows,)."""
        return np.fromfile(self.progress, dtype=np.uint8, offset=self._marks).astype(bool)

    def written_rows(self) -> int:
        written = self.written_windows()
        last = self.windows * self.chunk_rows - self.rows if len(written) and written[-1] else 0
        return int(written.sum()) * self.chunk_rows - last

    def write(self, number: int, vectors_ND: np.ndarray) -> None:
        """Write the embeddings of a window, and mark the window as written when they are on the disk."""
        self._vectors.seek(self._header_bytes + number * self.chunk_rows * self._row_bytes)
        self._vectors.write(np.ascontiguousarray(convert(vectors_ND, self.part_dtype, self.ranges_2D)).data)
        self._vectors.flush()
        os.fsync(self._vectors.fileno())
        self._record.seek(self._marks + number)
        self._record.write(WRITTEN_MARK)
        self._record.flush()

    def finish(self, texts: InputTexts | ListedTexts) -> None:
        """Write the final file from ``OUTPUT.part``, and delete the temporary files. All windows (blocks of rows) must
        have been written.
        """
        atomic_write(self.record_path, json.dumps(self.identity, indent=1) + "\n")
        if self.dtype in EIGHT_BITS:
            if self.ranges_2D is None:
                self.ranges_2D = ranges_of(self._read(number) for number in range(self.windows))
            with atomic_file(self.ranges) as part, part.open("wb") as file:
                np.save(file, self.ranges_2D)
        if self.output.name.endswith(".parquet"):
            self._write_parquet(texts)
        elif self.is_deferred:
            self._write_quantized()
        else:
            self.part.replace(self.output)
        self.part.unlink(missing_ok=True)
        self.progress.unlink()

    def _write_quantized(self) -> None:
        with atomic_file(self.output) as part, part.open("wb") as file:
            self._write_header(file, *storage_format(self.dtype, self.width))
            for number in range(self.windows):
                file.write(self._final(number).tobytes())

    def _write_parquet(self, texts: InputTexts | ListedTexts) -> None:
        """Write a Parquet file of texts and embeddings, with one row group for each window."""
        type_, columns = storage_format(self.dtype, self.width)
        schema = pyarrow.schema(
            [
                (texts.column or "text", pyarrow.string()),
                (EMBEDDING_COLUMN, pyarrow.list_(pyarrow.from_numpy_dtype(type_), columns)),
            ]
        )
        with atomic_file(self.output) as part, pyarrow.parquet.ParquetWriter(part, schema) as writer:
            for number, block in texts.windows(self.chunk_rows, lambda _: True):
                flat = pyarrow.array(self._final(number).reshape(-1))
                vectors = pyarrow.FixedSizeListArray.from_arrays(flat, columns)
                writer.write_table(pyarrow.Table.from_arrays([pyarrow.array(block), vectors], schema=schema))

    def _final(self, number: int) -> np.ndarray:
        """Return the embeddings of a window, converted to the data type of the output."""
        rows = self._read(number)
        return quantize(rows, self.dtype, self.ranges_2D) if self.is_deferred else rows

    def _read(self, number: int) -> np.ndarray:
        """Return the embeddings of a window as they are stored in the temporary file ``part``."""
        first = number * self.chunk_rows
        return np.array(np.load(self.part, mmap_mode="r")[first : first + self.chunk_rows])

    @property
    def _row_bytes(self) -> int:
        return self.columns * self.type.itemsize

    def _check(self, path: Path, header: bytes) -> None:
        previous = _parse_identity(header)
        changes = _describe_changes(previous, self.identity) if previous else "its record is missing"
        if changes:
            raise InputError(
                key="output",
                value=self.output,
                expected="a new file, or a file that was written with the same config",
                hint=f"{path.name} was written with another config: {changes}. Choose a different output, or set "
                "overwrite=true to delete the file.",
            )


def _read_identity(path: Path) -> dict[str, Any]:
    """Read the settings that identify an embedding job, finished or not, from its record; {} if there is no record."""
    if not path.is_file():
        return {}
    content = path.read_bytes()
    return _parse_identity(content) or _parse_identity(content.partition(b"\n")[0])


def _describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the differences between two jobs; empty if there are none. If the encoders differ in their settings, the
    settings are shown instead of the fingerprints.
    """
    before, now = dict(before), dict(now)
    there, here = (_named_settings(job.pop(ENCODER_SETTINGS, {})) for job in (before, now))
    changed = differences(there, here, shown=_shown) if there and before["encoder"] != now["encoder"] else ""
    if changed:
        del before["encoder"], now["encoder"]
    return "; ".join(one for one in (changed, differences(before, now, shown=_shown)) if one)


def _named_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of an encoder's description under the names of the corresponding keys of the command, without
    ``kind``.
    """
    renamed = {"encoder" if name == "backbone" else name: value for name, value in description.items()}
    return {name: value for name, value in renamed.items() if name != "kind"}


def _shown(value: object) -> str:
    return json.dumps(value) if value in ("", None) else str(value)


def _parse_identity(record: bytes) -> dict[str, Any]:
    try:
        identity = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    return identity if isinstance(identity, dict) else {}
