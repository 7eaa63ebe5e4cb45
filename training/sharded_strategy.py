"""Lightning's strategy for weights that are sharded over all processes (``trainer=fsdp``)."""

from typing import Any

from pytorch_lightning.strategies import ModelParallelStrategy


class ShardedStrategy(ModelParallelStrategy):
    """All processes are one group, over which `TrainedModule.configure_model` shards the weights."""

    def __init__(self, process_group_backend: str | None = None, **options: Any) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            **options,
        )

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()
