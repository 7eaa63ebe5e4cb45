"""Dense layers and Normalize of a backbone's folder stay part of the encoder that is trained from it.

Truth: stock sentence-transformers, which wrote the folder and opens the exported one.
"""

import importlib
import json
import re
import shutil

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM

from contrastive_encoders.cli.export import run
from contrastive_encoders.core import InputError, ScoredPairBatch, TripletBatch
from contrastive_encoders.encoders.kernels.onnx_graph import open_graph, run_graph
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.onnx_graph import export_onnx
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.encoders.test_load import TEXTS, by_the_library
from tests.encoders.test_objectives import LEFT, OFF, RIGHT, ROWS, SCORES, ragged, step
from tests.in_process import run_here
from tests.objectives import built

pytest.importorskip("sentence_transformers")
MEAN = {"pooling": "mean"}
OBJECTIVES = {
    "declutr": {},
    "gense": {"prompt_suffix": None},
    "sbert_nli": {},
    "simcse": {"mlp": False},
    "sroberta": {},
}
LORA = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}


def made(folder, backbone, *behind, pooling="mean"):
    """Make a folder with sentence-transformers; ``behind`` are its modules after the pooling, by name and options."""
    from sentence_transformers import SentenceTransformer

    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    base = importlib.import_module("sentence_transformers.base.modules")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        parts = [base.Transformer(str(backbone)), modules.Pooling(32, pooling_mode=pooling)]
        parts += [getattr(modules, name)(**options) for name, options in behind]
        SentenceTransformer(modules=parts, device="cpu").save(str(folder), create_model_card=False)
    return folder


def dense(width, into, activation=torch.nn.Tanh, **options):
    return "Dense", {"in_features": width, "out_features": into, "activation_function": activation(), **options}


NORMALIZE = ("Normalize", {})


@pytest.fixture(scope="module")
def folder(tiny_bert, tmp_path_factory):
    """Make a folder with two layers of another width each, and normalization."""
    behind = [dense(32, 24), dense(24, 12, torch.nn.Identity, bias=False), NORMALIZE]
    return made(tmp_path_factory.mktemp("made") / "folder", tiny_bert, *behind)


def exported(model, folder):
    return export_encoder(folder, **parts_of(model.encoder))


def same(found, expected, atol=1e-5):
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), atol=atol, rtol=0)


@pytest.mark.parametrize("activation", [torch.nn.Identity, torch.nn.ReLU, torch.nn.PReLU, torch.nn.GELU])
def test_a_folder_with_layers_is_our_own_encoder(tiny_bert, tmp_path, activation):
    folder = made(tmp_path / "made", tiny_bert, dense(32, 7, activation))
    encoder = load_encoder(folder)
    assert encoder.description["kind"] == "sentence-transformers"
    same(encoder.embed(TEXTS), by_the_library(folder))
    assert encoder.embed([]).shape == (0, 7)


@pytest.mark.rotates
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("normalize", [None, False])
def test_every_objective_keeps_what_stands_behind_the_pooling(folder, tmp_path, name, normalize):
    model = built(
        name,
        folder,
        **MEAN,
        **OBJECTIVES[name],
        **({"mlm_weight": 0.0} if name == "declutr" else {}),
        normalize=normalize,
    )
    layers = dict(model.encoder.head.named_parameters())
    assert {tuple(weight.shape) for weight in layers.values()} == {(24, 32), (24,), (12, 24)}
    assert all(weight.requires_grad for weight in layers.values())
    whole = exported(model, tmp_path / "encoder")
    found, stock = model.encoder.embed(TEXTS), by_the_library(whole)
    same(found, stock)
    if normalize is None:
        same(found, by_the_library(folder))  # nothing was trained yet
        same(found.norm(dim=1), torch.ones(len(TEXTS)))
    else:
        assert (found.norm(dim=1) - 1).abs().min() > 0.01
        same(torch.nn.functional.normalize(found), by_the_library(folder))


@pytest.mark.parametrize("name", ["sroberta", "simcse"])
def test_loss_and_gradients_are_those_of_the_library_whether_vectors_are_normalized_or_not(folder, name):
    from sentence_transformers import SentenceTransformer

    losses = importlib.import_module("sentence_transformers.sentence_transformer.losses")
    library, steps = SentenceTransformer(str(folder), device="cpu"), []
    keys = {"mlp": False, "temperature": 0.1} if name == "simcse" else {}
    loss = losses.MultipleNegativesRankingLoss(library, scale=10) if keys else losses.CosineSimilarityLoss(library)
    expected = loss([library.tokenize(one) for one in (LEFT, RIGHT)], SCORES)
    expected.backward()
    for normalize in (True, False):
        model = built(name, folder, **MEAN, **keys, normalize=normalize, **OFF)
        texts = ragged(model, LEFT, RIGHT)
        batch = TripletBatch(*texts, None, torch.arange(5), ROWS) if keys else ScoredPairBatch(*texts, SCORES, ROWS)
        steps.append(step(model, batch))
    (one, gradients), (other, same_gradients) = steps
    torch.testing.assert_close(one["loss"], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one["loss"], other["loss"], atol=0, rtol=0)
    for place, module in enumerate(("2", "3")):
        wanted = library[int(module)].linear.weight.grad
        assert wanted.norm() > 1e-3
        for found in (gradients, same_gradients):
            same(found[f"encoder.head.{place}.linear.weight"], wanted)


def saved(model, path):
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(path)
    return path


@pytest.mark.rotates
@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("name", ["sroberta", "declutr"])
def test_a_checkpoint_has_them_also_beside_adapters(folder, tmp_path, lora, name):
    """DeCLUTR without its contrastive part trains no layer after the pooling, but keeps it."""
    only_mlm = {"contrastive_weight": 0.0} if name == "declutr" else {}
    own = {"lora": lora} if lora else {}
    model = built(name, folder if name == "sroberta" else with_lm_head(folder, tmp_path), **MEAN, **only_mlm, **own)
    head = list(model.encoder.head.parameters())
    assert [weight.requires_grad for weight in head] == [name == "sroberta"] * len(head)
    with torch.no_grad():
        head[0].mul_(2)  # as if it was trained
    found = load_encoder(saved(model, tmp_path / "checkpoints" / "best.ckpt"))
    same(found.embed(TEXTS), model.encoder.embed(TEXTS))
    same(found.embed(TEXTS).norm(dim=1), torch.ones(len(TEXTS)))
    assert (found.embed(TEXTS) - by_the_library(folder)).abs().max() > 1e-3


def with_lm_head(folder, tmp_path):
    """Return the same modules around weights that have a language model head."""
    copy = shutil.copytree(folder, tmp_path / "with_head")
    model = AutoModelForMaskedLM.from_config(AutoModel.from_pretrained(folder).config)
    model.base_model.load_state_dict(AutoModel.from_pretrained(folder).state_dict(), strict=False)
    model.save_pretrained(copy)
    return copy


def test_another_pooling_drops_the_layers_with_a_warning(folder, caplog):
    model = built("sroberta", folder, pooling="cls")
    assert model.encoder.head is None
    assert model.encoder.normalize
    assert "pooling=mean" in caplog.text
    assert "model.pooling=cls" in caplog.text


def test_simcse_keeps_the_layer_of_the_backbone_in_place_of_a_new_one(tiny_bert, tmp_path):
    folder = made(tmp_path / "made", tiny_bert, dense(32, 32), NORMALIZE, pooling="cls")
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    model = built("simcse", folder, mlp=True, mlp_only_train=False)
    same(model.encoder.head.linear.weight, weights["linear.weight"], atol=0)
    model = built("simcse", folder, mlp=True, mlp_only_train=True)
    same(model.encoder.head.linear.weight, weights["linear.weight"], atol=0)
    assert not torch.equal(model.mlp.linear.weight, weights["linear.weight"])


def test_export_keeps_them_in_every_format_that_can(folder, tmp_path):
    expected = by_the_library(folder)
    run_here("export", run, (f"run={folder}", f"output={tmp_path / 'library'}"))
    same(by_the_library(tmp_path / "library"), expected)
    encoder = load_encoder(folder)
    export_onnx(tmp_path / "graph", encoder, int8=False)
    ids, lengths, _ = encoder.tokenize(TEXTS[:1])
    session = open_graph(tmp_path / "graph" / "model.onnx")
    found = run_graph(session, ids.numpy()[None], np.ones((1, lengths[0]), np.int64))
    same(found, expected[:1])
    with pytest.raises(InputError) as refused:
        run_here("export", run, (f"run={folder}", f"output={tmp_path / 'plain'}", "format=transformers"))
    assert (refused.value.key, refused.value.value) == ("format", "transformers")


def changed(folder, path, **entries):
    settings = json.loads((folder / path).read_text())
    (folder / path).write_text(json.dumps(settings | entries))


@pytest.mark.parametrize(
    ("behind", "change", "part"),
    [
        (
            [("LayerNorm", {"dimension": 32}), NORMALIZE],
            {},
            "LayerNorm",
        ),
        ([NORMALIZE, dense(32, 8)], {}, "Normalize"),
        ([dense(32, 32)], {"use_residual": True}, "residual"),
        ([dense(32, 8)], {"activation_function": "theirs.Swish"}, r"theirs\.Swish"),
        ([dense(32, 8)], {"out_features": 9}, r"2_Dense.*\[9, 32\].*\[8, 32\]"),
    ],
)
def test_unsupported_modules_after_the_pooling_are_refused(tiny_bert, tmp_path, behind, change, part):
    folder = made(tmp_path / "made", tiny_bert, *behind)
    if change:
        changed(folder, "2_Dense/config.json", **change)
    with pytest.raises(InputError) as error:
        built("sroberta", folder)
    assert (error.value.key or error.value.location.partition("=")[0]) == "backbone"
    assert str(folder) in str(error.value)
    assert re.search(part, str(error.value))


def test_tsdae_needs_embeddings_of_the_width_of_its_decoder(folder, tiny_bert, tmp_path):
    with pytest.raises(InputError) as error:
        built("tsdae", folder, pooling="mean")
    assert (error.value.key, error.value.value) == ("backbone", str(folder))
    assert all(number in error.value.expected for number in ("32", "12"))
    square = made(tmp_path / "made", tiny_bert, dense(32, 32), NORMALIZE)
    model = built("tsdae", square, pooling="mean")
    same(model.encoder.embed(TEXTS), by_the_library(square))
