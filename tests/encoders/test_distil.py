"""Learning from a teacher's embeddings: an entire step against sentence-transformers' losses, and its side effects."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge

from contrastive_encoders.core import InputError, ScoredTripletBatch, SentenceBatch, TripletBatch
from contrastive_encoders.encoders.embedding_distillation import EmbeddingDistillationLoss
from contrastive_encoders.encoders.loading.load import load_encoder
from tests.encoders.test_objectives import (
    LEFT,
    OFF,
    RIGHT,
    ROWS,
    THIRD,
    assert_same_gradients,
    oracle,
    ragged,
    step,
)
from tests.objectives import built
from tests.variations import slow_after

COLUMNS = [LEFT, RIGHT, THIRD]
CHUNKS = pytest.mark.parametrize(
    "chunks", [OFF, {"token_budget": 20, "activation_checkpointing": "on"}], ids=["whole", "in chunks"]
)


def taught(columns, width):
    return torch.randn(5, columns, width, generator=torch.Generator().manual_seed(4))


def batch_of(model, columns, vectors):
    """Return single texts, pairs or triplets, with a teacher's embeddings in 16 bits."""
    texts = ragged(model, *COLUMNS[:columns])
    vectors = vectors.half()
    if columns == 1:
        return SentenceBatch(*texts, ROWS, taught=vectors)
    return TripletBatch(*[*texts, None][:3], torch.arange(5), ROWS, taught=vectors)


def distil(backbone, width, **keys):
    model = built("distil", backbone, teacher="any", **keys)
    model.learn_from_teacher(width, seed=7)
    return model


@pytest.mark.rotates
@CHUNKS
@pytest.mark.parametrize("columns", slow_after(2, [1, 3, 2]))
@pytest.mark.parametrize("distance", ["cosine", "mse"])
@pytest.mark.parametrize("wider", [0, 16], ids=["as wide", "wider"])
def test_the_loss_is_the_librarys(tiny_bert, tmp_path, columns, distance, wider, chunks):
    width = built("distil", tiny_bert, teacher="any").encoder.width + wider
    model = distil(tiny_bert, width, distance=distance, **chunks)
    losses, other = oracle(model, tmp_path)
    vectors = taught(columns, width)
    library = losses.EmbedDistillLoss(other, distance_metric=distance, projection_dim=width if wider else None)
    if wider:
        (projection,) = model.teaching.projections.values()
        library.projection.load_state_dict(projection.state_dict())
    labels = vectors.half().float().squeeze(1)
    loss = library([other.tokenize(column) for column in COLUMNS[:columns]], labels)
    loss.backward()
    found, gradients = step(model, batch_of(model, columns, vectors))
    torch.testing.assert_close(found["loss"], loss.detach(), atol=1e-6, rtol=1e-5)
    assert_same_gradients(gradients, other)
    if wider:
        name = next(name for name in gradients if name.endswith("weight") and name.startswith("teaching."))
        torch.testing.assert_close(gradients[name], library.projection.weight.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", ["simcse", "pairs", "gense"])
def test_a_contrast_gets_its_weight_of_the_distance(objective, tiny_bert, tmp_path):
    """Gradients of the sum are those of the contrast alone, plus the weight times those of the library's distance."""
    keys = {"pooling": "mean"} | ({"mlp": False} if objective == "simcse" else {})
    keys |= {"prompt_suffix": None} if objective == "gense" else {}
    model = built(objective, tiny_bert, teacher="any", teacher_weight=3.0, **keys, **OFF).eval()
    batch = batch_of(model, 3, taught(3, model.encoder.width))
    alone, of_contrast = step(model, batch)
    model.learn_from_teacher(model.encoder.width, seed=7)
    found, gradients = step(model, batch)
    losses, other = oracle(model, tmp_path)
    labels = batch.taught.float()
    distance = losses.EmbedDistillLoss(other)([other.tokenize(column) for column in COLUMNS], labels)
    torch.testing.assert_close(found["metrics"]["distance_to_teacher"], distance.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found["loss"], (alone["loss"] + 3 * distance).detach(), atol=1e-5, rtol=1e-5)
    distance.backward()
    of_distance = {name: (grad - of_contrast[name]) / 3 for name, grad in gradients.items()}
    assert_same_gradients(of_distance, other)


def test_layers_between_encoder_and_contrast_are_not_between_it_and_the_teacher(tiny_bert):
    """This is SimCSE's MLP, which is not exported."""
    model = built("simcse", tiny_bert, teacher="any", **OFF).eval()
    model.learn_from_teacher(model.encoder.width, seed=7)
    batch = batch_of(model, 2, taught(2, model.encoder.width))
    vectors = torch.cat([model.encoder.embed(LEFT), model.encoder.embed(RIGHT)])
    targets = batch.taught.float().transpose(0, 1).flatten(0, 1)
    wanted = 1 - F.cosine_similarity(vectors, targets).mean()
    found, _ = step(model, batch)
    torch.testing.assert_close(found["metrics"]["distance_to_teacher"], wanted, atol=1e-6, rtol=1e-5)


def test_prefixes_have_projections_of_their_own(tiny_bert):
    """The loss is the sum over prefixes, each by the equation."""
    width = 24
    model = distil(tiny_bert, width, matryoshka=[32, 24, 8], matryoshka_weights=[1.0, 0.5, 2.0], **OFF)
    assert sorted(model.teaching.projections) == ["32", "8"]
    batch = batch_of(model, 1, taught(1, width))
    vectors, total = model.encoder.embed(LEFT), 0.0
    for size, weight in ((32, 1.0), (24, 0.5), (8, 2.0)):
        cut = vectors[:, :size]
        if size != width:
            layer = model.teaching.projections[str(size)]
            cut = cut @ layer.weight.T + layer.bias
        rows = [1 - float(a @ b / (a.norm() * b.norm())) for a, b in zip(cut, batch.taught[:, 0].float(), strict=True)]
        total += weight * sum(rows) / len(rows)
    found, _ = step(model, batch)
    assert found["loss"].item() == pytest.approx(total, rel=1e-4)


def test_unit_length_is_that_of_the_encoder(tiny_bert):
    """With the mean squared difference, an encoder that normalizes is compared by its normalized embeddings."""
    model = distil(tiny_bert, 32, distance="mse", normalize=True, **OFF)
    batch = batch_of(model, 1, taught(1, 32))
    wanted = F.mse_loss(model.encoder.embed(LEFT), batch.taught[:, 0].float())
    found, _ = step(model, batch)
    torch.testing.assert_close(found["loss"], wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(model.encoder.embed(LEFT).norm(dim=1), torch.ones(5))


def test_first_weights_of_a_projection_follow_the_seed(tiny_bert):
    first, same = (distil(tiny_bert, 48).teaching.projections["32"].weight for _ in range(2))
    other = built("distil", tiny_bert, teacher="any")
    other.learn_from_teacher(48, seed=8)
    assert torch.equal(first, same)
    assert not torch.equal(first, other.teaching.projections["32"].weight)


@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("loss", ["margin_mse", "kl"])
def test_a_step_on_scores_is_the_librarys(tiny_bert, tmp_path, columns, loss):
    model = built("distil_scores", tiny_bert, loss=loss, temperature=2.0, **OFF)
    losses, other = oracle(model, tmp_path)
    texts = [LEFT, RIGHT, THIRD, LEFT[::-1], RIGHT[::-1]][: columns + 1]
    scores = torch.randn(5, columns, generator=torch.Generator().manual_seed(4)) * 3
    if loss == "kl":
        library = losses.DistillKLDivLoss(other, losses.margin_mse.pairwise_dot_score, temperature=2.0)
    else:
        library = losses.MarginMSELoss(other)
    wanted = library([other.tokenize(column) for column in texts], scores)
    wanted.backward()
    negatives = [column[row] for row in range(5) for column in texts[2:]]
    anchors, positives, third = ragged(model, LEFT, RIGHT, negatives)
    found, gradients = step(model, ScoredTripletBatch(anchors, positives, third, scores, ROWS))
    torch.testing.assert_close(found["loss"], wanted.detach(), atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)


def test_damaged_sentences_are_refused(tiny_bert):
    model = distil(tiny_bert, 32)
    whole, left = ragged(model, LEFT, RIGHT)
    with pytest.raises(InputError) as error:
        model.check_batch(SentenceBatch(whole, np.arange(5), left))
    assert error.value.key == "data.deletion_ratio"


@pytest.mark.parametrize("key", [{"teacher_weight": 0.5}, {"distance": "mse"}])
def test_keys_of_a_teacher_without_one_are_refused(tiny_bert, key):
    with pytest.raises(InputError) as error:
        built("simcse", tiny_bert, **key)
    assert (error.value.key, error.value.value) == next((f"model.{name}", value) for name, value in key.items())
    assert "model.teacher" in error.value.hint


def test_layers_with_an_adapter_are_refused(tiny_bert):
    lora = {"rank": 4, "alpha": None, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
    with pytest.raises(InputError) as error:
        built("distil", tiny_bert, teacher="any", keep_layers=1, lora=lora)
    assert (error.value.key, error.value.value) == ("model.keep_layers", 1)


def test_the_encoder_of_a_student_has_its_layers_alone(tiny_bert):
    whole = load_encoder(tiny_bert, device="cpu")
    model = built("distil", tiny_bert, teacher="any", keep_layers=[1], pooling="mean")
    assert model.transformer.config.num_hidden_layers == 1
    assert not torch.allclose(model.encoder.embed(LEFT), whole.embed(LEFT), atol=1e-3)


@pytest.mark.parametrize("normalize", [False, True])
def test_fitted_projections_are_ridge_regressions(normalize):
    """Truth: scikit-learn's ridge regression, for the full embeddings and a prefix."""
    loss = EmbeddingDistillationLoss([8, 4], 6, "cosine", normalize=normalize, seed=1)
    generator = torch.Generator().manual_seed(3)
    embeddings, taught = torch.randn(50, 8, generator=generator), torch.randn(50, 6, generator=generator)
    loss.fit(embeddings, taught)
    for size in (8, 4):
        inputs = embeddings[:, :size].double().numpy()
        if normalize:
            inputs = inputs / np.linalg.norm(inputs, axis=1, keepdims=True)
        found = Ridge(alpha=0.01 * inputs.var(0).mean() * 50).fit(inputs, taught.double().numpy())
        layer = loss.projections[str(size)]
        np.testing.assert_allclose(layer.weight.detach().numpy(), found.coef_, atol=1e-5)
        np.testing.assert_allclose(layer.bias.detach().numpy(), found.intercept_, atol=1e-5)


@pytest.mark.parametrize("noise", [0, 1e-7])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-10])
@pytest.mark.parametrize("normalize", [False, True])
def test_embeddings_that_differ_by_rounding_alone_give_the_mean_of_the_targets(value, noise, normalize):
    loss = EmbeddingDistillationLoss([8], 12, "cosine", normalize=normalize, seed=1)
    generator = torch.Generator().manual_seed(3)
    taught = torch.randn(2048, 12, generator=generator)
    embeddings = value * (1 + noise * torch.randn(2048, 8, generator=generator))
    loss.fit(embeddings, taught)
    inputs = F.normalize(embeddings, dim=-1) if normalize else embeddings
    torch.testing.assert_close(loss.projections["8"](inputs), taught.mean(0).expand(2048, -1), atol=1e-4, rtol=0)
    assert float(loss.projections["8"].weight.norm()) * float(inputs.abs().max()) < 10


def test_projections_of_equal_embeddings_are_small():
    """A least-squares solution would have huge weights for embeddings that hardly vary, and training would diverge."""
    loss = EmbeddingDistillationLoss([8], 12, "cosine", normalize=True, seed=1)
    generator = torch.Generator().manual_seed(3)
    embeddings = 1 + torch.randn(30, 2, generator=generator) @ torch.randn(2, 8, generator=generator) * 0.1
    taught = torch.randn(30, 12, generator=generator)
    loss.fit(embeddings + torch.randn(30, 8, generator=generator) * 1e-6, taught)
    assert float(loss.projections["8"].weight.norm()) < 1e3
