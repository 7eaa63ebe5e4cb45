"""Checkpoint writing that reports a full disk instead of hanging.

Lightning writes on rank 0 while the other ranks wait at a barrier, so an error on rank 0 would leave them waiting. Here
the error is stored, and the callback, which runs on all ranks, agrees on it afterwards.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from contrastive_encoders.core import NO_ROOM
from contrastive_encoders.io.checkpoint import SHARDS, load_checkpoint, with_full_optimizers


class SafeCheckpointIO(TorchCheckpointIO):
    """Checkpoint plugin that streams a checkpoint to its file and syncs the file to the disk. Lightning's class first
    serializes the entire checkpoint in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error: OSError | None = None

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint as Lightning does. A sharded checkpoint is loaded with the optimizer states of all
        ranks.
        """
        found = super().load_checkpoint(path, weights_only=True)
        if SHARDS not in found:
            return found
        return with_full_optimizers(Path(path), load_checkpoint(path))

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
    """Wrapper of a file that stores the first write error, because torch's writer would convert it to an uninformative
    RuntimeError.
    """

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
        """Do nothing. The owner of the file flushes it, where an error can be reported."""


def reason(error: OSError) -> str:
    """Return the cause of a write error, as text for an error message."""
    if error.errno in NO_ROOM:
        return f"no space left on the device ({error.strerror})"
    return error.strerror or str(error)
