"""Lightning strategy that shards weights over all processes (``trainer=fsdp``)."""

from typing import Any

from pytorch_lightning.strategies import ModelParallelStrategy

from contracts import InputError


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2 over all processes, without tensor parallelism. `TrainedModule.configure_model` shards the weights.

    A checkpoint is one file, which rank 0 writes with all weights.
    """

    def __init__(self, process_group_backend: str | None = None, **options: Any) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            **options,
        )

    def setup_environment(self) -> None:
        if self.num_nodes * self.num_processes < 2:
            raise InputError(
                "trainer=fsdp shards weights over processes, and there is one. Say devices=N, or leave it out."
            )
        if self.precision_plugin.precision == "16-mixed":
            raise InputError("trainer=fsdp does not scale losses, which precision=fp16 wants. Take precision=bf16.")
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()
