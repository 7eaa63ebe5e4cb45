"""Configuration keys of a Ray cluster that runs worker processes."""

from dataclasses import dataclass

from contrastive_encoders.core.config_schema import config_field


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Configuration keys of the cluster, and of the resources of each worker."""

    cluster: str | None = config_field(
        None,
        "Ray cluster that runs the workers, whose number is `devices` (`parallel` in races and sweeps); auto: the "
        "cluster to which this machine belongs; ray://HOST:PORT: the cluster at this address; ray: a new cluster on "
        "this machine; null: no cluster, the workers are processes on this machine",
    )
    num_cpus: float | None = config_field(None, "number of CPUs that each worker reserves on the cluster", ge=0)
    num_gpus: float | None = config_field(None, "number of GPUs that each worker reserves on the cluster", ge=0)
