"""Return of fragmented memory to the system during training on a CPU."""

from typing import Any

import pytorch_lightning as pl

from contrastive_encoders.encoders.base_module import TrainedModule
from contrastive_encoders.io.results import current_memory_bytes
from contrastive_encoders.runtime.malloc import allocated_memory, return_free_memory

MAX_FREE = 2**31  # bytes of free resident memory; returning them more often costs page faults


class FragmentedMemory(pl.Callback):
    """Callback that returns free memory to the system before a chunk is computed, on CPUs only.

    In glibc 2.36, an aligned allocation cannot use a free block of its own size (bug 14581). The heap then grows
    with each chunk of a batch, with MiniLM by 0.2 GiB per 4,096 tokens, although the activations of only one chunk are
    in use.
    """

    def __init__(self) -> None:
        self.hook: Any = None
        self.other_memory = 0  # code, and memory of other allocators

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        allocated = allocated_memory()
        if trainer.strategy.root_device.type != "cpu" or allocated is None or not isinstance(pl_module, TrainedModule):
            return
        self.other_memory = current_memory_bytes() - allocated
        embeddings: Any = pl_module.transformer.get_input_embeddings()  # called once for each chunk, before its layers
        self.hook = embeddings.register_forward_pre_hook(self._before_chunk)

    def _before_chunk(self, embeddings: Any, inputs: Any) -> None:
        if not embeddings.training:
            return
        if current_memory_bytes() - self.other_memory - (allocated_memory() or 0) > MAX_FREE:
            return_free_memory()

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
