"""Matryoshka: the loss over prefixes is sentence-transformers' and the paper's sum; truncation is the library's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import NTXentLoss

from contrastive_encoders.cli.export import run
from contrastive_encoders.core import (
    IGNORED_LABEL,
    InputError,
    NLIBatch,
    RatedPairs,
    ScoredPairBatch,
    SpanBatch,
    TripletBatch,
)
from contrastive_encoders.encoders.kernels.chunks import concatenate
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.export.onnx_graph import export_onnx
from tests.encoders.test_objectives import (
    LABELS,
    LEFT,
    OFF,
    RIGHT,
    ROWS,
    SCORES,
    THIRD,
    assert_same_gradients,
    oracle,
    ragged,
    step,
)
from tests.in_process import run_here
from tests.objectives import built

SIZES, WEIGHTS = [8, 32, 16], [2.0, 1.0, 0.5]
BY_SIZE = {"matryoshka": SIZES, "matryoshka_weights": WEIGHTS}
CHUNKS = [OFF, {"token_budget": 20, "activation_checkpointing": "on"}]


@pytest.mark.parametrize("chunks", CHUNKS, ids=["whole", "in chunks"])
@pytest.mark.parametrize("name", ["sroberta", "simcse"])
def test_the_loss_is_the_librarys_over_its_own(tiny_bert, tmp_path, name, chunks):
    keys = {"pooling": "mean", "mlp": False, "temperature": 0.1} if name == "simcse" else {}
    model = built(name, tiny_bert, **keys, **BY_SIZE, **chunks)
    losses, other = oracle(model, tmp_path)
    if name == "simcse":
        texts, plain = [LEFT, RIGHT, THIRD], losses.MultipleNegativesRankingLoss(other, scale=10)
        batch = TripletBatch(*ragged(model, *texts), torch.arange(5), ROWS)
    else:
        texts, plain = [LEFT, RIGHT], losses.CosineSimilarityLoss(other)
        batch = ScoredPairBatch(*ragged(model, *texts), SCORES, ROWS)
    found, gradients = step(model, batch)
    loss = losses.MatryoshkaLoss(other, plain, SIZES, WEIGHTS)([other.tokenize(one) for one in texts], SCORES)
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)
    parts = sum(w * found["metrics"][f"loss@{size}"] for size, w in zip(SIZES, WEIGHTS, strict=True))
    torch.testing.assert_close(parts, loss.detach(), atol=1e-5, rtol=1e-5)


def test_sbert_nli_classifies_a_prefix_by_the_weights_of_its_numbers(tiny_bert):
    model = built("sbert_nli", tiny_bert, **BY_SIZE, **OFF)
    left, right = (model.encoder.encode_sequences(one).vectors for one in ragged(model, LEFT, RIGHT))
    expected = torch.zeros(())
    for size, weight in zip(SIZES, WEIGHTS, strict=True):
        u, v = left[:, :size], right[:, :size]
        columns = [at + number for at in (0, 32, 64) for number in range(size)]
        logits = torch.cat([u, v, (u - v).abs()], 1) @ model.classifier.weight[:, columns].T + model.classifier.bias
        expected = expected + weight * F.cross_entropy(logits, LABELS)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    found, gradients = step(model, NLIBatch(*ragged(model, LEFT, RIGHT), LABELS, ROWS))
    torch.testing.assert_close(found["loss"], expected, atol=1e-6, rtol=1e-6)
    for one, other in zip(wanted, gradients.values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("metric_loss", [None, "NTXentLoss"])
def test_declutr_compares_prefixes_of_the_averaged_positives(tiny_bert, metric_loss):
    options = {"mlm_weight": 0.0, "temperature": 0.1, "metric_loss": metric_loss}
    model = built(
        "declutr", tiny_bert, **options, metric_options={"temperature": 0.1} if metric_loss else None, **BY_SIZE, **OFF
    )
    anchors, one, other = ragged(model, LEFT, RIGHT, THIRD)
    vectors = [model.encoder.encode_sequences(part).vectors for part in (anchors, one, other)]
    rows = torch.cat([vectors[0], (vectors[1] + vectors[2]) / 2])
    terms = [NTXentLoss(0.1)(rows[:, :size], torch.arange(5).repeat(2)) for size in SIZES]
    expected = sum(weight * term for weight, term in zip(WEIGHTS, terms, strict=True))
    between = concatenate([model.encoder.tokenize([a, b]) for a, b in zip(RIGHT, THIRD, strict=True)])
    labels = torch.full_like(anchors.ids, IGNORED_LABEL)
    found, _ = step(model, SpanBatch(anchors, anchors.ids, labels, between, ROWS))
    torch.testing.assert_close(found["loss"], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"matryoshka": [64]}, ("model.matryoshka", [64])),
        ({"matryoshka": [8, 8]}, ("model.matryoshka", [8, 8])),
        ({"matryoshka": [8], "matryoshka_weights": [1.0, 2.0]}, ("model.matryoshka_weights", [1.0, 2.0])),
        ({"matryoshka": [32, 8], "mlp": True, "mlp_only_train": True}, ("model.matryoshka", [32, 8])),
    ],
)
def test_invalid_sizes_are_refused(tiny_bert, keys, field):
    with pytest.raises(InputError) as error:
        built("simcse", tiny_bert, **{"mlp": False} | keys)
    assert (error.value.key, error.value.value) == field


def test_scores_of_each_size_are_those_of_vectors_that_are_cut(tiny_bert):
    gold = np.array([5.0, 4.0, 2.5, 1.0, 0.0])
    task = RatedPairs("mine", LEFT, RIGHT, gold, ["mine"] * 5)
    encoder = load_encoder(tiny_bert)
    found = Suite([task], sizes=[16, 8]).run(encoder, intervals=True)
    assert list(found.values) == Suite([task], sizes=[16, 8]).score_names()
    for size in (16, 8):
        alone = Suite([task]).run(load_encoder(tiny_bert, truncate=size), intervals=True)
        for name, value in alone.values.items():
            at_size = name.replace("mine/", f"mine@{size}/")
            assert (found.values[at_size], found.intervals[at_size]) == (value, alone.intervals[name])


def test_a_folder_that_is_cut_is_cut_by_stock_sentence_transformers(tiny_bert, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    encoder = built("sroberta", tiny_bert).encoder
    export_whole(encoder, tmp_path / "whole")
    stock = library.SentenceTransformer(str(tmp_path / "whole"), device="cpu", truncate_dim=8)
    wanted = stock.encode(LEFT)
    run_here("export", run, (f"run={tmp_path / 'whole'}", f"output={tmp_path / 'cut'}", "truncate=8"))
    cut = library.SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    assert cut.truncate_dim == 8
    np.testing.assert_allclose(cut.encode(LEFT), wanted, atol=1e-6)
    for ours in (load_encoder(tmp_path / "cut"), load_encoder(tmp_path / "whole", truncate=8)):
        np.testing.assert_allclose(ours.embed(LEFT), wanted, atol=1e-5)
        assert ours.description["truncate"] == "8"
        assert ours.fingerprint != load_encoder(tmp_path / "whole").fingerprint
    assert load_encoder(tmp_path / "cut", truncate=16).embed([]).shape == (0, 16)
    export_onnx(tmp_path / "graph", ours, int8=False)  # compares its embeddings with the encoder's


def test_vectors_of_length_1_are_cut_and_then_brought_to_length_1(tiny_bert, tmp_path):
    """Truth: stock sentence-transformers' truncation of embeddings that are not normalized, divided by the norm."""
    library = pytest.importorskip("sentence_transformers")
    encoder = built("sroberta", tiny_bert, normalize=True).encoder
    export_whole(encoder, tmp_path / "whole")
    encoder.normalize = False
    export_whole(encoder, tmp_path / "raw")
    raw = library.SentenceTransformer(str(tmp_path / "raw"), device="cpu", truncate_dim=8).encode(LEFT)
    wanted = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    run_here("export", run, (f"run={tmp_path / 'whole'}", f"output={tmp_path / 'cut'}", "truncate=8"))
    stock = library.SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    np.testing.assert_allclose(stock.encode(LEFT), wanted, atol=1e-6)
    ours = load_encoder(tmp_path / "cut")
    for one in (ours, load_encoder(tmp_path / "whole", truncate=8)):
        np.testing.assert_allclose(one.embed(LEFT), wanted, atol=1e-6)
        assert (one.description["truncate"], one.description["normalize"]) == ("8", "true")
    export_onnx(tmp_path / "graph", ours, int8=False)  # compares its embeddings with the encoder's


def export_whole(encoder, folder):
    from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

    export_encoder(folder, **parts_of(encoder))


def test_an_invalid_truncation_is_refused(tiny_bert, tmp_path):
    with pytest.raises(InputError) as error:
        run_here("export", run, (f"run={tiny_bert}", f"output={tmp_path / 'cut'}", "truncate=33"))
    assert (error.value.key, error.value.value) == ("truncate", 33)
    assert not (tmp_path / "cut").exists()
