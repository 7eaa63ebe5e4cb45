"""Training objectives. ``NAME.py`` contains the LightningModule, and ``NAME_config.py`` its config without torch.

To add an objective, add these two files and ``configs/model/NAME.yaml``; `find_configs` finds every ``*_config.py``.
A file may contain several objectives, as ``scored_pairs.py`` does. ``contrastive_encoders/__init__.py`` lists public
objectives, and ``training.run_config.DEFAULT_MODELS`` those that are suggested for a kind of data.
"""

from importlib import import_module
from pkgutil import iter_modules

from contrastive_encoders.encoders.model_configs import TrainableConfig


def find_configs() -> dict[str, type[TrainableConfig]]:
    """Return the config class of each value of ``model=NAME``, from all ``*_config.py`` files in this package."""
    modules = (one.name for one in iter_modules(__path__, f"{__name__}.") if one.name.endswith("_config"))
    return {name: config for module in modules for name, config in import_module(module).MODELS.items()}


MODEL_CONFIGS = find_configs()
