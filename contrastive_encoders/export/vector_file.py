"""Resumable writing of a file of embeddings: windows of rows at their offsets, with progress marks.

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
from contrastive_encoders.export.quantization import EIGHT_BITS, quantized, ranges_of, stored, stored_as
from contrastive_encoders.io.atomic import atomic_file, atomic_write
from contrastive_encoders.io.output_directory import differences

VECTOR = "embedding"  # the column of a Parquet file with the embeddings, next to the column of the texts
DONE = b"\1"


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
        self.waits = self.dtype in EIGHT_BITS and ranges_2D is None
        self.written_as = "float32" if self.waits else self.dtype  # dtype in .part
        self.type, self.columns = stored_as(self.written_as, self.width)
        self.part, self.progress, self.about, self.ranges = (
            output.with_name(f"{output.name}{ending}") for ending in (".part", ".progress", ".json", ".ranges.npy")
        )
        self.windows = -(-self.rows // self.chunk_rows)

    def claim(self, *, overwrite: bool) -> bool:
        """Create the files, or find those of the same job. Return whether the job is finished.

        Raises:
            InputError: the files are of another job.
            OutputError: there is not enough space for all embeddings.
            OSError: the files cannot be written.
        """
        if overwrite:
            self._refuse_others()
            ranges = [self.ranges] if "encoder" in _identity_in(self.about) else []
            for path in (self.output, *ranges, self.part, self.progress, self.about):  # the record of their job last
                path.unlink(missing_ok=True)
        if self.output.exists():
            self._check(self.about, self.about.read_bytes() if self.about.is_file() else b"{}")
            if self.progress.is_file():  # left by a kill of a job that had just finished
                self.part.unlink(missing_ok=True)
                self.progress.unlink()
            return True
        if not self.progress.is_file():
            self._refuse_others()
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

    def _refuse_others(self) -> None:
        """Check that the files to replace are of such a job, whose record is next to them."""
        records = {self.output: self.about, self.part: self.progress, self.about: self.about}
        records |= {self.ranges: self.about} if self.dtype in EIGHT_BITS else {}
        for path, record in records.items():
            if os.path.lexists(path) and "encoder" not in _identity_in(record):
                raise InputError(
                    f"output={self.output}: {path.name} is there already, and {record.name} does not say that it is a "
                    "file of vectors of this project, which alone is replaced. Choose another output, or move it away."
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
                f"output={self.output}: {size / 2**30:.1f} GiB of vectors do not fit there ({error.strerror}). Make "
                "room, or choose another output or a smaller dtype."
            ) from None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Context manager in which embeddings can be written."""
        with self.part.open("rb") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            self._first = file.tell()
        self._marks = self.progress.read_bytes().index(b"\n") + 1
        self._vectors, self._record = os.open(self.part, os.O_RDWR), os.open(self.progress, os.O_RDWR)
        try:
            yield
        finally:
            os.close(self._vectors)
            os.close(self._record)

    def done(self) -> np.ndarray:
        """Return (windows,) bool: whether each window is written."""
        marks = os.pread(self._record, self.windows, self._marks)
        return np.frombuffer(marks, dtype=np.uint8).astype(bool)

    def rows_done(self) -> int:
        done = self.done()
        last = self.windows * self.chunk_rows - self.rows if len(done) and done[-1] else 0
        return int(done.sum()) * self.chunk_rows - last

    def write(self, number: int, vectors_ND: np.ndarray) -> None:
        """Write the embeddings of a window, and mark it when they are on the disk."""
        data = np.ascontiguousarray(stored(vectors_ND, self.written_as, self.ranges_2D)).data.cast("B")
        place = self._first + number * self.chunk_rows * self._row_bytes
        while data:
            written = os.pwrite(self._vectors, data, place)
            data, place = data[written:], place + written
        os.fsync(self._vectors)
        os.pwrite(self._record, DONE, self._marks + number)

    def finish(self, texts: InputTexts | ListedTexts) -> None:
        """Rename the file to its final name when all windows are written."""
        atomic_write(self.about, json.dumps(self.identity, indent=1) + "\n")
        if self.dtype in EIGHT_BITS:
            if self.ranges_2D is None:
                self.ranges_2D = ranges_of(self._read(number) for number in range(self.windows))
            with atomic_file(self.ranges) as part, part.open("wb") as file:
                np.save(file, self.ranges_2D)
        if self.output.name.endswith(".parquet"):
            self._write_parquet(texts)
        elif self.waits:
            self._write_quantized()
        else:
            self.part.replace(self.output)
        self.part.unlink(missing_ok=True)
        self.progress.unlink()

    def _write_quantized(self) -> None:
        with atomic_file(self.output) as part, part.open("wb") as file:
            self._write_header(file, *stored_as(self.dtype, self.width))
            for number in range(self.windows):
                file.write(self._final(number).tobytes())

    def _write_parquet(self, texts: InputTexts | ListedTexts) -> None:
        """Write a Parquet file of texts and embeddings with a row group for each window."""
        type_, columns = stored_as(self.dtype, self.width)
        schema = pyarrow.schema(
            [
                (texts.column or "text", pyarrow.string()),
                (VECTOR, pyarrow.list_(pyarrow.from_numpy_dtype(type_), columns)),
            ]
        )
        with atomic_file(self.output) as part, pyarrow.parquet.ParquetWriter(part, schema) as writer:
            for number, block in texts.windows(self.chunk_rows, lambda _: True):
                flat = pyarrow.array(self._final(number).reshape(-1))
                vectors = pyarrow.FixedSizeListArray.from_arrays(flat, columns)
                writer.write_table(pyarrow.Table.from_arrays([pyarrow.array(block), vectors], schema=schema))

    def _final(self, number: int) -> np.ndarray:
        """Return a window in the form of the output."""
        rows = self._read(number)
        return quantized(rows, self.dtype, self.ranges_2D) if self.waits else rows

    def _read(self, number: int) -> np.ndarray:
        """Return a window as it was written."""
        rows, place = (
            min(self.chunk_rows, self.rows - number * self.chunk_rows),
            number * self.chunk_rows * self._row_bytes,
        )
        flat = np.fromfile(self.part, dtype=self.type, count=rows * self.columns, offset=self._first + place)
        return flat.reshape(rows, self.columns)

    @property
    def _row_bytes(self) -> int:
        return self.columns * self.type.itemsize

    def _check(self, path: Path, header: bytes) -> None:
        before = _as_identity(header)
        differing = differences(before, self.identity, shown=str) if before else "it does not say of which"
        if differing:
            raise InputError(
                f"output={self.output}: {path.name} is of another job: {differing}. Choose another output, or say "
                "overwrite=true to throw it away."
            )


def _identity_in(path: Path) -> dict[str, Any]:
    """Return the identity in the record of a finished or unfinished job, or an empty mapping if there is no record."""
    if not path.is_file():
        return {}
    found = path.read_bytes()
    return _as_identity(found) or _as_identity(found.partition(b"\n")[0])


def _as_identity(record: bytes) -> dict[str, Any]:
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
