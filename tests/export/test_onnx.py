"""The ONNX graph gives the encoder's embeddings, in a process without torch and this project."""

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from contrastive_encoders.cli.export import run
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.dense import TanhHead
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.export.formats import FORMATS
from contrastive_encoders.export.onnx_graph import GRAPH, INT8_GRAPH, export_onnx, onnx_example
from tests.export.texts import TORTURE
from tests.in_process import run_here
from tests.variations import slow_after

ROOT = Path(__file__).resolve().parents[2]
needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")),
    reason="the extra onnx is not installed",
)


def command(*overrides: str) -> None:
    run_here("export", run, overrides)


def by_the_example(folder: Path, code: str, graph: str = GRAPH):
    """Return ``embed`` of the example, run in this process."""
    names: dict = {}
    exec(
        code.strip("`").removeprefix("python").replace("PATH_OF_THIS_FOLDER", str(folder)).replace(GRAPH, graph), names
    )
    return names["embed"]


@pytest.mark.rotates
@needs_onnx
@pytest.mark.parametrize(
    ("family", "pooling"),
    slow_after(
        6,
        zip(
            itertools.cycle(["tiny_mlm", "tiny_bert"]),
            [name for name, pooler in POOLERS.items() if not pooler.decodes and not pooler.is_shipped],
        ),
    ),
)
def test_the_graph_gives_the_vectors_of_the_encoder(request, tmp_path, family, pooling):
    encoder = load_encoder(request.getfixturevalue(family), pooling=pooling, max_length=100)
    encoder.normalize = pooling == "mean"
    embed = by_the_example(export_onnx(tmp_path / "o", encoder, int8=False), onnx_example(encoder))
    found = embed(TORTURE)
    np.testing.assert_allclose(found, encoder.embed(TORTURE), atol=1e-5, rtol=0)
    for text, row in zip(TORTURE, found, strict=True):  # batch and length are dynamic
        np.testing.assert_allclose(embed([text])[0], row, atol=1e-5)


@needs_onnx
def test_a_head_and_a_prompt_belong_to_it(tiny_bert, tmp_path):
    encoder = load_encoder(tiny_bert, pooling="cls", prompt="say: ")
    encoder.head = TanhHead(32, seed=1, std=0.4)
    embed = by_the_example(export_onnx(tmp_path / "o", encoder, int8=False), onnx_example(encoder))
    np.testing.assert_allclose(embed(TORTURE), encoder.embed(TORTURE), atol=1e-5, rtol=0)


@needs_onnx
@pytest.mark.parametrize(
    ("pooling", "suffix"), [("first_decoder", ""), ("first_decoder", " Say it:"), ("mean", " So:")]
)
def test_a_t5_with_its_decoder_and_a_prompt_behind_the_text(tiny_t5, tmp_path, pooling, suffix):
    encoder = load_encoder(tiny_t5, pooling=pooling, prompt="a: ", prompt_suffix=suffix, max_length=40)
    embed = by_the_example(export_onnx(tmp_path / "o", encoder, int8=False), onnx_example(encoder))
    np.testing.assert_allclose(embed(TORTURE), encoder.embed(TORTURE), atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def minilm_folder(minilm_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("minilm") / "o"
    command(f"run={minilm_path}", f"output={folder}", "format=onnx")
    return folder


@pytest.mark.rotates
@needs_onnx
def test_the_example_of_the_folder_runs_without_torch(minilm_path, minilm_folder, tmp_path):
    card = (minilm_folder / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", card, flags=re.DOTALL).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    code = code.replace("PATH_OF_THIS_FOLDER", str(minilm_folder)).replace('["A sentence.", "Another one."]', "texts")
    before = (
        "import json, sys\nsys.modules['torch'] = sys.modules['transformers'] = None\ntexts = json.load(open('t'))\n"
    )
    (tmp_path / "t").write_text(json.dumps(TORTURE))
    (tmp_path / "script.py").write_text(f"{before}{code}\nnp.save('vectors.npy', vectors)\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = load_encoder(minilm_path).embed(TORTURE)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-5, rtol=0)


@needs_onnx
def test_eight_bits_are_smaller_and_near(minilm_path, minilm_folder):
    encoder, folder = load_encoder(minilm_path), minilm_folder
    assert (folder / INT8_GRAPH).stat().st_size < 0.7 * (folder / GRAPH).stat().st_size
    texts = [text for text in TORTURE if text.strip()]
    embed = by_the_example(folder, onnx_example(encoder), INT8_GRAPH)
    cosines = torch.cosine_similarity(torch.from_numpy(embed(texts)), encoder.embed(texts))
    assert 0.95 < cosines.min() < 0.999999


@needs_onnx
def test_a_graph_that_is_wrong_is_not_kept(tiny_bert, tmp_path, monkeypatch):
    encoder = load_encoder(tiny_bert)
    monkeypatch.setattr(
        "contrastive_encoders.encoders.kernels.onnx_graph.run_graph", lambda *_: np.zeros((3, 32), dtype=np.float32)
    )
    with pytest.raises(RuntimeError, match="graph"):
        export_onnx(tmp_path / "o", encoder)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_without_the_extra_its_installation_is_advised(monkeypatch, name):
    for module in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, module, None if module == name else sys)
    with pytest.raises(InputError) as refused:
        FORMATS["onnx"].check()
    assert (refused.value.key, refused.value.value) == ("format", "onnx")
    assert "contrastive-encoders[onnx]" in refused.value.hint
