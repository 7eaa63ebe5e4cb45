"""Train an encoder, or a generator of triplets: ``contrastive-encoders train model=declutr data=openwebtext``."""

from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.runtime.module_imports import module_imports
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.resolve import finished_before, resolve


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Execute the training run that Hydra has composed from the overrides; in a multirun, the run of the current
    job.
    """
    resolved = resolve(compose(HydraConfig.get().overrides.task, config=cfg))
    if not finished_before(resolved):
        with module_imports():
            from contrastive_encoders.training.stage_loop import run_stages  # imports torch, which takes seconds
        run_stages(resolved)


main = command_line("train", run, failed=(TrainingError,))
