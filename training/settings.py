"""The classes of settings that ``configs/`` names, made known to Hydra. It imports no torch, so ``--help`` reads it."""

from command.settings import register
from datamodules.settings import KINDS

for _name, _kind in KINDS.items():
    register(f"data/{_name}", _kind)
