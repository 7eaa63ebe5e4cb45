"""A resumable train loader of Lightning. Each iteration yields the rest of an epoch: this rank's examples of each
global batch.

The position of the stream is two numbers, the epoch and the batches consumed in it, which are the same on every rank.
They determine the content of all following batches. Lightning stores ``state_dict()`` in every checkpoint.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sampling.example_order import ExampleOrder


class Batches(Protocol):
    """Dataset whose item (epoch, k) contains this rank's examples of global batch k of the epoch. An item is the same
    in any worker process.
    """

    identity: dict[str, Any]  # properties that must be the same to resume a stream

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is the same on every rank."""
        ...

    def __getitem__(self, key: tuple[int, int], /) -> Any: ...


class BatchStream:
    """Data loader that yields the remaining batches of the current epoch. The next iteration is the next epoch.

    Args:
        whole: Dataset with the batches of all ranks together.
        data_id: Identity of the content of the data, for instance a hash.

    Raises:
        InputError: The state to resume from belongs to other data.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        whole: Batches | None = None,
        epoch: int = 0,
        data_id: str = "",
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self._whole = batches if whole is None else whole
        self._batches, self._identity, self._data_id = batches, batches.identity, data_id
        self._epoch, self._consumed, self._resumed = epoch, 0, False
        self._num_workers, self._pin_memory = num_workers, pin_memory

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is the same on every rank.

        Lightning prefetches from a loader without length.
        """
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        # As a generator, this advances nothing before the first batch is requested, however often Lightning calls
        # iter().
        # Lightning also stops requesting at the last batch, so nothing may rely on the end of the loop.
        if self._consumed and not (self._resumed and self._consumed < len(self)):
            self._epoch, self._consumed = self._epoch + 1, 0
        self._resumed = False
        for batch in self._loader(self._epoch, self._consumed):
            if isinstance(batch, InputError):
                raise batch
            self._consumed += 1
            yield batch

    def global_batches(self) -> Iterator[Any]:
        """Yield batches endlessly, starting at the first epoch. Each batch contains the examples of all ranks."""
        return (self._whole[epoch, place] for epoch in itertools.count() for place in range(len(self)))

    def _loader(self, epoch: int, start: int) -> DataLoader:
        return DataLoader(
            _ErrorsAsItems(self._batches),
            batch_size=None,
            sampler=((epoch, k) for k in range(start, len(self))),
            collate_fn=_identity_collate,
            num_workers=self._num_workers,
            pin_memory=self._pin_memory,
            generator=torch.Generator(),  # the loader draws a seed for its workers, apart from the training generator
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from: the epoch, the number of batches consumed in it, and values that identify
        the data.
        """
        return {"epoch": self._epoch, "consumed": self._consumed, **self._identity, "data_id": self._data_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the position in the epoch, so that the stream continues after the last consumed batch.

        A state without data_id, as in older checkpoints, is accepted unchecked.
        """
        other = [
            f"{key} was {state.get(key)} and is {value}"
            for key, value in self._identity.items()
            if state.get(key) != value
        ]
        if other:
            raise InputError(
                key="resume",
                expected=f"a checkpoint with the same data settings, but {'; '.join(other)}",
                hint="Resume with the config and data of that run, or start a new run in another output_dir.",
            )
        if state.get("data_id", self._data_id) != self._data_id:
            raise InputError(
                location="data",
                expected=f"the same content as when the checkpoint was written (digest {state['data_id'][:12]})",
                value=self._data_id[:12],
                hint="Restore the data of that run, or start a new run in another output_dir.",
            )
        self._epoch, self._consumed, self._resumed = state["epoch"], state["consumed"], True


def stream_for(trainer: Any, batches: Callable[[int, int], Batches], **options: Any) -> BatchStream:
    """Create the batch stream for a trainer's rank. ``batches(rank, world)`` returns the dataset of a rank's batches.
    If ``trainer`` is None, the stream is for a single process.
    """
    if trainer is None:
        return BatchStream(batches(0, 1), **options)
    pin_memory = trainer.strategy.root_device.type == "cuda"
    share = batches(trainer.global_rank, trainer.world_size)
    return BatchStream(share, whole=batches(0, 1), epoch=trainer.current_epoch, pin_memory=pin_memory, **options)


class EpochBatches(Dataset):
    """Dataset of the batches of an epoch; ``build(pass_index, examples)`` makes a batch of examples, in the given
    order.

    An epoch may pass over the data several times. Pass ``epoch * passes + i`` has its own order and random draws.
    """

    def __init__(self, build: Callable[[int, np.ndarray], Any], order: ExampleOrder, passes: int = 1) -> None:
        self.build, self.order, self.passes = build, order, passes
        self.identity = {"seed": order.seed, "batch_size": order.batch_size, "examples": order.examples}
        self.identity |= {"passes": passes, **({} if order.drop_last else {"drop_last": False})}
        self.identity |= {"groups": len(order.groups)} if order.groups else {}

    def __len__(self) -> int:
        return len(self.order) * self.passes

    def __getitem__(self, key: tuple[int, int]) -> Any:
        epoch, k = key
        pass_index = epoch * self.passes + k // len(self.order)
        return self.build(pass_index, self.order.batch(pass_index, k % len(self.order)))


class _ErrorsAsItems(Dataset):
    """Dataset that returns an `InputError` as an item instead of raising it.

    Otherwise, torch would replace the error of a worker by one without fields, whose message is a traceback.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        try:
            return self.batches[key]
        except InputError as error:
            return error


def _identity_collate(batch: Any) -> Any:
    """Return the batch unchanged; torch's default conversion would turn NumPy arrays into tensors."""
    return batch
