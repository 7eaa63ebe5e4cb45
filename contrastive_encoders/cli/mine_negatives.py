"""Mine hard negatives: ``contrastive-encoders mine-negatives encoder=... input=... output=...``."""

from collections.abc import Sequence

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core.runtime.signals import exit_on_signals
from contrastive_encoders.io.output_directory import check_output_file
from contrastive_encoders.synthesis.mining.mine_config import MineConfig
from contrastive_encoders.synthesis.mining.mining_input import read_pairs


def run(cfg: DictConfig, _: Sequence[str] = ()) -> int:
    """Check the keys and read the pairs, then mine and write the output; return the exit code."""
    config = config_of(cfg, MineConfig)
    config.check_keys()
    check_output_file(config.file)
    pairs, source = read_pairs(config)
    with exit_on_signals():
        from contrastive_encoders.synthesis.mining.mine import mine_negatives  # imports torch, which takes seconds

    mine_negatives(config, pairs, source)
    return 0


main = command_line("mine-negatives", run, MineConfig)
