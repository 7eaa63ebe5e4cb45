"""Train one sentence encoder: ``python train.py model=declutr data=openwebtext``.

What a run may be told is in ``configs/train.yaml``; how it goes, stage by stage, in ``training/run.py``.
"""

from cli.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before what takes a moment to import

import sys

from omegaconf import DictConfig

from cli.hydra_main import command_line
from training.failures import TrainingFailed
from training.stages import finished_before, forced


def run(cfg: DictConfig) -> int:
    """Exit status of a whole run."""
    if finished_before(cfg):
        return 0
    from training.run import run  # with torch and Lightning, which take seconds

    return run(cfg)


def main() -> None:
    sys.argv[1:] = forced(sys.argv[1:])
    command_line("train", run, failed=(TrainingFailed,))()


if __name__ == "__main__":
    main()
