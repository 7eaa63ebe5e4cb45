"""Checkpoint writing that reports a full disk instead of hanging.

Lightning writes on rank 0 while the others wait at a barrier: an error raised there would leave them waiting. Here the
error is kept and the callback, which all ranks are in, agrees on it afterwards.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from contrastive_encoders.core import NO_ROOM
from contrastive_encoders.io.checkpoint import SHARDS, load_checkpoint, with_whole_optimizers


class SafeCheckpointIO(TorchCheckpointIO):
    """Streams to the file (Lightning's own collects the whole checkpoint in memory first) and syncs it to the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.error: OSError | None = None

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Lightning's, and of a checkpoint in shards all of it."""
        found = super().load_checkpoint(path, weights_only=True)
        if SHARDS not in found:
            return found
        return with_whole_optimizers(Path(path), load_checkpoint(path))

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: str | Path, storage_options: Any = None) -> None:
        self.error = None
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                sink = _Sink(file)
                torch.save(dict(checkpoint), cast(IO[bytes], sink))  # only write and flush are used
                if sink.error is not None:
                    raise sink.error
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.error = error
            path.unlink(missing_ok=True)


class _Sink:
    """A file that remembers the first write that failed: torch's writer would turn it into an opaque RuntimeError."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """The owner of the file flushes it, where an error can be reported."""


def reason(error: OSError) -> str:
    """What to tell the user, in words."""
    if error.errno in NO_ROOM:
        return f"there is no room left ({error.strerror})"
    return error.strerror or str(error)
