"""Runs from backbones of sentence-transformers, up to an index that compares by dot product.

Truth: stock sentence-transformers on the exported folder.
"""

import itertools
import json

import numpy as np
import pytest

from contrastive_encoders.cli.export import run
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.results import read_results
from tests.data import write_rows
from tests.encoders.test_behind_pooling import NORMALIZE, dense, made
from tests.forks import run_command
from tests.in_process import run_here
from tests.integration.conftest import NOUNS

library = pytest.importorskip("sentence_transformers")
ASKED = [f"Where is the {one} of the {other}?" for one in NOUNS for other in NOUNS]
TOLD = [
    f"The {other} has its {one} in the north, and {number} more."
    for number, (one, other) in enumerate((one, other) for one in NOUNS for other in NOUNS)
]
RUN = ["model=simcse", "data=qa", "model.mlp=false", "model.pooling=mean", "batch_size=8", "data.max_length=24"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "faq.jsonl"
    rows = [{"question": one, "answer": other} for one, other in zip(ASKED, TOLD, strict=True)]
    return f"data.path={write_rows(path, rows)}"


def reciprocal_rank(queries, documents):
    """Return the mean over queries; query i belongs to document i."""
    scores = queries @ documents.T
    return float((1 / (scores >= scores.diagonal()[:, None]).sum(1)).mean())


def encoded(folder, texts):
    return library.SentenceTransformer(str(folder), device="cpu").encode(texts)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow  # MiniLM is trained
def test_what_is_trained_from_minilm_serves_an_index_by_dot_product(minilm_path, pairs, command, tmp_path):
    folder = tmp_path / "run"
    outcome = command(*RUN, pairs, f"backbone={minilm_path}", "max_steps=2", f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    vectors = {"stock": encoded(folder / "encoder", ASKED)}
    vectors |= {"run": load_encoder(folder).embed(ASKED).numpy()}
    vectors |= {"checkpoint": load_encoder(folder / "checkpoints" / "best.ckpt").embed(ASKED).numpy()}
    (tmp_path / "texts.txt").write_text("\n".join(ASKED))
    overrides = [
        "-m",
        "contrastive_encoders",
        "embed",
        f"encoder={folder}",
        f"input={tmp_path}/texts.txt",
        f"output={tmp_path}/v.npy",
    ]
    done = run_command(overrides, tmp_path)
    assert done.returncode == 0, done.stderr
    vectors |= {"embed": np.load(tmp_path / "v.npy")}
    for name, found in vectors.items():
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(found, vectors["stock"], atol=1e-5, rtol=0, err_msg=name)
    assert np.abs(vectors["stock"] - encoded(minilm_path, ASKED)).max() > 1e-4  # it was trained
    told = encoded(folder / "encoder", TOLD)
    by_dot, by_cosine = reciprocal_rank(vectors["stock"], told), reciprocal_rank(unit(vectors["stock"]), unit(told))
    assert by_dot == pytest.approx(by_cosine, abs=1e-3)
    assert read_results(folder / "results.json")["embeddings"] == {"width": 384, "pooling": "mean", "normalize": True}
    top = json.loads((folder / "encoder" / "config_sentence_transformers.json").read_text())
    assert top["similarity_fn_name"] == "cosine"


@pytest.mark.slow  # two stages on two processes
def test_stages_on_two_processes_carry_layers_and_length_on(tiny_bert, pairs, command, tmp_path):
    """The second stage trains an adapter, and the layer next to it."""
    pytest.importorskip("peft")
    backbone = made(tmp_path / "made", tiny_bert, dense(32, 12), NORMALIZE)
    stages = [f"+stages.{name}.max_steps={steps}" for name, steps in (("first", 2), ("second", 1))]
    stages += ["stages.second.model.lora.rank=2"]
    folder = tmp_path / "run"
    outcome = command(
        *RUN,
        pairs,
        *stages,
        f"backbone={backbone}",
        "devices=2",
        "model.lr=0.003",
        "quiet=true",
        f"output_dir={folder}",
    )
    assert outcome.status == 0, outcome.err
    found = [encoded(one, NOUNS) for one in (backbone, folder / "stage-first/encoder", folder / "encoder")]
    for before, after in itertools.pairwise(found):
        assert after.shape == (len(NOUNS), 12)
        np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, atol=1e-5)
        assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(load_encoder(folder).embed(NOUNS), found[-1], atol=1e-5, rtol=0)
    last = load_encoder(folder / "stage-second" / "checkpoints" / "best.ckpt")
    np.testing.assert_allclose(last.embed(NOUNS), found[-1], atol=1e-5, rtol=0)
    overrides = (f"run={folder / 'stage-second'}", f"output={tmp_path / 'adapter'}", "format=adapter")
    run_here("export", run, overrides)
    np.testing.assert_allclose(encoded(tmp_path / "adapter", NOUNS), found[-1], atol=1e-5, rtol=0)
