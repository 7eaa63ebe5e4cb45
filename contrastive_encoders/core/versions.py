"""Versions of this project and of the libraries that its results depend on, read without importing them."""

import importlib.metadata

from contrastive_encoders import __version__

PROJECT = "contrastive-encoders"  # the distribution's name in pyproject.toml
LIBRARIES = ("torch", "transformers", "pytorch-lightning")


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, or ``not installed``. That of this project is the version of
    the code that runs, which may be a checkout that is not installed.
    """
    if distribution == PROJECT:
        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
