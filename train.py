"""Train one sentence encoder: ``python train.py model=declutr data=openwebtext``.

What a run may be told is in ``contrastive_encoders/training/run_config.py``; how it goes, stage by stage, in ``contrastive_encoders/training/stage_loop.py``.
"""

from contrastive_encoders.runtime.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line
from contrastive_encoders.core.errors import TrainingFailed
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.stages import finished_before


def train(cfg: DictConfig) -> None:
    """Compose the run of this command line, and train it."""
    asked = compose(HydraConfig.get().overrides.task, whole=cfg)
    if not finished_before(asked):
        from contrastive_encoders.training.stage_loop import run_stages  # with torch and Lightning, which take seconds

        run_stages(asked)


main = command_line("train", train, failed=(TrainingFailed,))

if __name__ == "__main__":
    main()
