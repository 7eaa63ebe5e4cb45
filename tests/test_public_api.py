"""The names of the package: ``import contrastive_encoders``."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

import contrastive_encoders

NAMES = [name for name in contrastive_encoders.__all__ if name != "__version__"]
HEAVY = {
    "torch",
    "transformers",
    "pytorch_lightning",
    "lightning",
    "hydra",
    "omegaconf",
    "numpy",
    "sentence_transformers",
}


def test_the_import_loads_no_library():
    script = (
        "import sys, json, contrastive_encoders as c; dir(c); c.__version__; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "contrastive_encoders" in loaded
    assert loaded & HEAVY == set()
    assert [name for name in loaded if name.startswith("contrastive_encoders.")] == []


@pytest.mark.parametrize("name", NAMES)
def test_exported_names_resolve(name):
    value = getattr(contrastive_encoders, name)
    assert value.__name__ == name
    assert getattr(import_module(value.__module__), name) is value
    assert name in dir(contrastive_encoders)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="Trainr"):
        _ = contrastive_encoders.Trainr
