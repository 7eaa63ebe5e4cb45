"""Loss and gradient of an entire step: sentence-transformers' losses on the same weights, and the papers' equations."""

import importlib
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from contrastive_encoders.core import InputError, NLIBatch, Ragged, ScoredPairBatch, SentenceBatch, TripletBatch
from contrastive_encoders.encoders.kernels.chunks import Chunk
from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers
from contrastive_encoders.encoders.kernels.unpadded import (
    AttentionPlan,
    first_position,
    pack_sequences,
    use_packed_attention,
)
from contrastive_encoders.export.sentence_transformers import export_encoder
from contrastive_encoders.losses.directions import DIRECTIONS
from tests.objectives import built

LEFT = ["The ferry leaves the harbour.", "Rain fell on the orchard for three days.", "Bread rises.", "Old maps.", "A"]
RIGHT = ["A ferry left.", "It rained.", "Dough in a cold kitchen rises slowly today.", "The choir sings.", "B c"]
THIRD = ["Nobody left the harbour.", "The sun shone.", "The bread is burnt and flat.", "A new map is drawn.", "d"]
DAMAGED = ["ferry the harbour.", "Rain on for days", "rises", "Old maps.", "A"]
SCORES = torch.tensor([0.9, 0.5, 0.9, 0.1, 0.0])
LABELS = torch.tensor([0, 2, 1, 2, 0])
ROWS = np.arange(5)
OFF = {"token_budget": 10**6, "activation_checkpointing": "off"}


def step(model, batch):
    """Return loss, metrics and gradients by name."""
    model.zero_grad()
    found = model.training_step(batch, 0)
    found["loss"].backward()
    return found, {name: weight.grad for name, weight in model.named_parameters()}


def ragged(model, *columns):
    return [model.encoder.tokenize(column) for column in columns]


def oracle(model, folder):
    """Return the same weights as a model of sentence-transformers."""
    library = pytest.importorskip("sentence_transformers")
    losses = importlib.import_module("sentence_transformers.sentence_transformer.losses")
    export_encoder(
        folder / "encoder",
        transformer=model.encoder.trunk,
        tokenizer=model.encoder.tokenizer,
        pooling=model.encoder.pooling,
        head=model.encoder.head,
        max_length=model.encoder.max_length,
    )
    return losses, library.SentenceTransformer(str(folder / "encoder"), device="cpu")


def assert_same_gradients(ours, theirs, transformer="encoder.transformer."):
    expected = {name: weight.grad for name, weight in theirs.named_parameters() if weight.grad is not None}
    pairs = []
    for name, grad in ours.items():
        if name.startswith(transformer):
            found = [g for n, g in expected.items() if n.endswith("." + name.removeprefix(transformer))]
            assert len(found) == 1, name
            pairs.append((grad.flatten(), found[0].flatten()))
    assert len(pairs) > 10
    mine, other = map(torch.cat, zip(*pairs, strict=True))
    assert other.norm() > 1e-3
    assert (mine - other).norm() <= 1e-4 * other.norm()


def test_sroberta_is_the_librarys_cosine_similarity_loss(tiny_bert, tmp_path):
    model = built("sroberta", tiny_bert, **OFF)
    losses, other = oracle(model, tmp_path)
    left, right = ragged(model, LEFT, RIGHT)
    found, gradients = step(model, ScoredPairBatch(left, right, SCORES, ROWS))
    loss = losses.CosineSimilarityLoss(other)([other.tokenize(LEFT), other.tokenize(RIGHT)], SCORES)
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-6, rtol=1e-5)
    assert_same_gradients(gradients, other)


@pytest.mark.parametrize(("name", "library"), [("cosent", "CoSENTLoss"), ("angle", "AnglELoss")])
def test_ranked_scores_are_the_librarys(tiny_bert, tmp_path, name, library):
    model = built(name, tiny_bert, temperature=0.1, **OFF)
    losses, other = oracle(model, tmp_path)
    found, gradients = step(model, ScoredPairBatch(*ragged(model, LEFT, RIGHT), SCORES, ROWS))
    loss = getattr(losses, library)(other, scale=10)([other.tokenize(LEFT), other.tokenize(RIGHT)], SCORES)
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)


@pytest.mark.parametrize("columns", [2, 4])
def test_pairs_in_four_directions_are_the_librarys_multiple_negatives_ranking(tiny_bert, tmp_path, columns):
    model = built("pairs", tiny_bert, directions=list(DIRECTIONS), temperature=0.1, exclude_equal_texts=False, **OFF)
    losses, other = oracle(model, tmp_path)
    texts = [LEFT, RIGHT, THIRD, DAMAGED][:columns]
    negatives = [text for row in zip(*texts[2:], strict=True) for text in row]
    views = [*ragged(model, LEFT, RIGHT, *([negatives] if negatives else [])), None][:3]
    found, gradients = step(model, TripletBatch(*views, torch.arange(5), ROWS))
    directions = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
    ranking = losses.MultipleNegativesRankingLoss(other, scale=10, directions=directions)
    loss = ranking([other.tokenize(column) for column in texts], torch.zeros(5))
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)


@pytest.mark.parametrize("columns", [2, 3, 5])
@pytest.mark.parametrize("mlp_only_train", [None, False], ids=["no mlp", "mlp stays"])
def test_supervised_simcse_is_the_librarys_multiple_negatives_ranking(tiny_bert, tmp_path, columns, mlp_only_train):
    mlp = mlp_only_train is not None
    options = {"pooling": "mean", "mlp": mlp, "mlp_only_train": False, "temperature": 0.1, "exclude_equal_texts": False}
    model = built("simcse", tiny_bert, **options, **OFF)
    losses, other = oracle(model, tmp_path)
    texts = [LEFT, RIGHT, THIRD, DAMAGED, LEFT[::-1]][:columns]
    negatives = [text for row in zip(*texts[2:], strict=True) for text in row]
    views = [*ragged(model, LEFT, RIGHT, *([negatives] if negatives else [])), None][:3]
    found, gradients = step(model, TripletBatch(*views, torch.arange(5), ROWS))
    ranking = losses.MultipleNegativesRankingLoss(other, scale=10)
    loss = ranking([other.tokenize(column) for column in texts], torch.zeros(5))
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)
    if mlp:
        torch.testing.assert_close(gradients["encoder.head.linear.weight"], other[2].linear.weight.grad)


def test_sbert_nli_is_the_librarys_softmax_loss(tiny_bert, tmp_path):
    model = built("sbert_nli", tiny_bert, **OFF)
    losses, other = oracle(model, tmp_path)
    softmax = losses.SoftmaxLoss(other, 32, num_labels=3)
    softmax.classifier.load_state_dict(model.classifier.state_dict())
    found, gradients = step(model, NLIBatch(*ragged(model, LEFT, RIGHT), LABELS, ROWS))
    loss = softmax([other.tokenize(LEFT), other.tokenize(RIGHT)], LABELS)
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-6, rtol=1e-5)
    assert_same_gradients(gradients, other)
    torch.testing.assert_close(gradients["classifier.weight"], softmax.classifier.weight.grad)
    torch.testing.assert_close(gradients["classifier.bias"], softmax.classifier.bias.grad)


@pytest.mark.parametrize("family", ["tiny_bert", "tiny_mlm"])
def test_tsdae_is_the_librarys_denoising_auto_encoder(family, request, tmp_path):
    """The damaged texts are equal; cross-attention and head, which no checkpoint has, are copied from the objective."""
    model = built("tsdae", request.getfixturevalue(family), **OFF).eval()
    losses, other = oracle(model, tmp_path)
    library = losses.DenoisingAutoEncoderLoss(other, tie_encoder_decoder=True).eval()
    library.decoder.load_state_dict(model.decoder.state_dict())
    damaged, whole = ragged(model, DAMAGED, LEFT)
    found, _ = step(model, SentenceBatch(whole, ROWS, damaged))
    loss = library([other.tokenize(DAMAGED), other.tokenize(LEFT)], None)
    loss.backward()
    torch.testing.assert_close(found["loss"], loss, atol=1e-5, rtol=1e-5)
    theirs = {name: weight.grad for name, weight in library.decoder.named_parameters()}
    assert any("crossattention" in name for name in theirs)
    assert {*model.parameters()} == {*model.decoder.parameters()}, "the encoder has no weight of its own"
    tied = dict(model.decoder.named_parameters())
    for name, expected in theirs.items():
        torch.testing.assert_close(tied[name].grad, expected, atol=1e-5, rtol=1e-5, msg=name)
    assert sum(float(grad.norm()) > 1e-4 for grad in theirs.values()) > 20


def test_tsdae_refuses_a_family_that_cannot_be_its_own_decoder(tiny_bert, tmp_path):
    config = transformers.T5Config(vocab_size=1000, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    transformers.T5Model(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        built("tsdae", tmp_path)
    assert (error.value.key, error.value.value) == ("backbone", str(tmp_path))
    assert "t5" in error.value.expected


def by_the_book(anchors, positives, negatives, temperature, weight):
    """Compute SimCSE's loss with its hard negative weight as in its code: added to the own hard negative's logit."""
    total = 0.0
    for i, anchor in enumerate(anchors):
        logits = [float(torch.cosine_similarity(anchor, other, dim=0)) / temperature for other in positives]
        for j, other in enumerate(negatives):
            logits.append(float(torch.cosine_similarity(anchor, other, dim=0)) / temperature + weight * (i == j))
        total -= logits[i] - math.log(sum(map(math.exp, logits)))
    return total / len(anchors)


@pytest.mark.parametrize("weight", [0.0, 1.0, -2.0])
def test_the_hard_negative_weight_is_a_logit_of_the_own_negative(tiny_bert, weight):
    model = built("simcse", tiny_bert, mlp_only_train=False, temperature=0.05, hard_negative_weight=weight, **OFF)
    vectors = [model.encoder.embed(column) for column in (LEFT, RIGHT, THIRD)]
    found, _ = step(model, TripletBatch(*ragged(model, LEFT, RIGHT, THIRD), torch.arange(5), ROWS))
    assert found["loss"].item() == pytest.approx(by_the_book(*vectors, 0.05, weight), rel=1e-4)


@pytest.mark.parametrize("name", ["simcse", "pairs"])
def test_positives_of_a_group_are_no_negatives_of_each_other(tiny_bert, name):
    """The data says that two rows share a meaning; no negative remains, so the loss is 0."""
    model, losses = built(name, tiny_bert, **OFF), []
    for groups in (None, torch.tensor([7, 7])):
        found, _ = step(model, TripletBatch(*ragged(model, LEFT[:2], RIGHT[:2]), None, groups, ROWS[:2]))
        losses.append(found["loss"].item())
    assert losses[0] > 0.1
    assert losses[1] == 0


@pytest.mark.parametrize("name", ["pairs", "simcse"])
def test_equal_texts_are_no_negatives(tiny_bert, name):
    """Two rows share an anchor, two share a positive, and a hard negative is a positive: each is left out."""
    options = {"mlp": False} if name == "simcse" else {}
    model = built(name, tiny_bert, temperature=0.5, **options, **OFF)
    left, right = [LEFT[0], LEFT[0], LEFT[1], LEFT[2]], [RIGHT[0], RIGHT[1], RIGHT[2], RIGHT[2]]
    third = [RIGHT[1], THIRD[1], THIRD[2], LEFT[2]]  # the first is another positive of its anchor
    found, _ = step(model, TripletBatch(*ragged(model, left, right, third), torch.arange(4), ROWS[:4]))
    vectors = [F.normalize(model.encoder.embed(texts), dim=-1) for texts in (left, right, third)]
    negatives = [[2, 3, 5, 6, 7], [2, 3, 5, 6, 7], [0, 1, 4, 5, 6, 7], [0, 1, 4, 5, 6]]  # of positives and third texts
    losses = []
    for row, others in enumerate(negatives):
        cosines = torch.cat([vectors[1], vectors[2]]) @ vectors[0][row] / 0.5
        losses.append(-torch.log_softmax(cosines[[row, *others]], 0)[0])
    torch.testing.assert_close(found["loss"], torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_the_two_views_of_a_sentence_have_dropout_masks_of_their_own(tiny_mlm_with_dropout):
    """The sentences are encoded twice, then the equation is applied; the layers run by hand, from the same seed."""
    model = built("simcse", tiny_mlm_with_dropout, temperature=0.05, exclude_equal_texts=False, **OFF).train()
    sentences = model.encoder.tokenize(["The ferry leaves."] * 4)  # equal lengths: one chunk, in this order
    torch.manual_seed(3)
    found, _ = step(model, SentenceBatch(sentences, ROWS[:4]))
    trunk, tokens = model.encoder.trunk, len(sentences.ids) // 4
    row = pack_sequences(np.full(8, tokens), Chunk(np.arange(8), tokens), torch.device("cpu"))
    inputs = AttentionPlan(True, first_position(trunk), "").inputs(sentences.ids.repeat(2), row)
    torch.manual_seed(3)
    with fast_layers(trunk), use_packed_attention(trunk):  # the same dropout
        states = trunk(**inputs).last_hidden_state.view(8, tokens, -1)[:, 0]
    vectors = torch.tanh(states.detach() @ model.mlp.linear.weight.T + model.mlp.linear.bias)
    vectors = vectors.detach()
    assert (vectors[:4] - vectors[4:]).abs().amax(1).min() > 1e-4
    expected = by_the_book(vectors[:4], vectors[4:], [], 0.05, 0)
    assert found["loss"].item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_an_mlp_for_training_alone_leaves_the_vectors_as_they_are(tiny_bert):
    without, trained_only, kept = (
        built("simcse", tiny_bert, **options) for options in ({"mlp": False}, {}, {"mlp_only_train": False})
    )
    assert torch.equal(without.encoder.embed(LEFT), trained_only.encoder.embed(LEFT))
    expected = torch.tanh(kept.encoder.head.linear(without.encoder.embed(LEFT)))
    torch.testing.assert_close(kept.encoder.embed(LEFT), expected)
    batch = TripletBatch(*ragged(without, LEFT, RIGHT), None, torch.arange(5), ROWS)
    found, gradients = step(trained_only, batch)  # the head of the other sees the rows in another order
    assert found["loss"].item() == pytest.approx(step(kept, batch)[0]["loss"].item(), rel=1e-6)
    assert gradients["mlp.linear.weight"].abs().max() > 0


def test_first_weights_come_from_the_seed_alone(tiny_bert):
    drawn = []
    for seed, noise in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(noise)
        models = [built(name, tiny_bert, seed=seed) for name in ("simcse", "sbert_nli", "tsdae")]
        cross = models[2].decoder.base_model.encoder.layer[0].crossattention.self.value.weight
        drawn.append((models[0].mlp.linear.weight, models[1].classifier.weight, cross))
    for first, second, third in zip(*drawn, strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)


MODELS = {
    "tsdae": ("tsdae", {}, lambda m: SentenceBatch(ragged(m, LEFT)[0], ROWS, ragged(m, DAMAGED)[0])),
    "sroberta": ("sroberta", {}, lambda m: ScoredPairBatch(*ragged(m, LEFT, RIGHT), SCORES, ROWS)),
    "sbert_nli": ("sbert_nli", {}, lambda m: NLIBatch(*ragged(m, LEFT, RIGHT), LABELS, ROWS)),
    "simcse": ("simcse", {}, lambda m: SentenceBatch(*ragged(m, LEFT), ROWS)),
    "simcse_sup": (
        "simcse",
        {"mlp_only_train": False, "hard_negative_weight": 1.0, "pooling": "mean", "temperature": 0.5},
        lambda m: TripletBatch(*ragged(m, LEFT, RIGHT, THIRD), torch.arange(5), ROWS),
    ),
}


@pytest.mark.rotates
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("activation_checkpointing", ["on", "off", "layers"])
def test_chunks_have_the_loss_and_gradient_of_the_whole_batch(
    tiny_bert, tiny_mlm_with_dropout, name, activation_checkpointing
):
    """With dropout, recomputed chunks are compared with kept ones: other chunks would draw other masks."""
    objective, options, batch_of = MODELS[name]
    dropout = name == "simcse"
    backbone = str(tiny_mlm_with_dropout if dropout else tiny_bert)
    whole = built(
        objective, backbone, **options, token_budget=20 if dropout else 10**6, activation_checkpointing="off"
    ).train()
    chunked = built(
        objective, backbone, **options, token_budget=20, activation_checkpointing=activation_checkpointing
    ).train()
    torch.manual_seed(1)
    expected, gradients = step(whole, batch_of(whole))
    torch.manual_seed(1)
    found, others = step(chunked, batch_of(chunked))
    torch.testing.assert_close(found["loss"], expected["loss"], rtol=1e-5, atol=1e-6)
    assert all(grad is not None for grad in gradients.values()), "DDP refuses weights that get no gradient"
    ours, theirs = (torch.cat([grads[name].flatten() for name in gradients]) for grads in (others, gradients))
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
    assert found["spent"]["examples"] == 5
    assert found["spent"]["real_tokens"] == sum(map(int, _lengths(name, chunked)))


def _lengths(name, model):
    columns = {"tsdae": [DAMAGED, LEFT], "simcse": [LEFT, LEFT], "simcse_sup": [LEFT, RIGHT, THIRD]}.get(
        name, [LEFT, RIGHT]
    )
    return [len(ids) for column in columns for ids in model.encoder.tokenizer(column)["input_ids"]]


def test_single_sentences_without_dropout_are_refused(tiny_bert):
    model = built("simcse", tiny_bert).train()
    with pytest.raises(InputError) as error:
        model.training_step(SentenceBatch(*ragged(model, LEFT), ROWS), 0)
    assert error.value.key == "model.dropout"
    assert "model.dropout=0.1" in error.value.hint


def test_only_tsdae_accepts_damaged_sentences(tiny_bert, tiny_mlm_with_dropout):
    model = built("tsdae", tiny_bert)
    with pytest.raises(InputError) as error:
        model.training_step(SentenceBatch(*ragged(model, LEFT), ROWS), 0)
    assert (error.value.key, error.value.value) == ("data.deletion_ratio", None)
    assert "data.deletion_ratio=0.6" in error.value.hint
    model = built("simcse", tiny_mlm_with_dropout)
    with pytest.raises(InputError) as error:
        model.training_step(SentenceBatch(ragged(model, LEFT)[0], ROWS, ragged(model, DAMAGED)[0]), 0)
    assert error.value.key == "data.deletion_ratio"
    assert "data.deletion_ratio=null" in error.value.hint


@pytest.mark.parametrize("temperature", [0, math.nan])
def test_an_invalid_temperature_is_refused(tiny_bert, temperature):
    with pytest.raises(InputError) as error:
        built("simcse", tiny_bert, temperature=temperature)
    assert error.value.key == "model.temperature"


def test_a_sequence_may_be_as_short_as_its_special_tokens(tiny_bert):
    model = built("sroberta", tiny_bert)
    empty = Ragged(*model.encoder.tokenize(["", ""]))
    found, _ = step(model, ScoredPairBatch(empty, empty, torch.tensor([1.0, 0.0]), ROWS[:2]))
    assert found["loss"].item() == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("name", ["sroberta", "simcse", "sbert_nli", "tsdae"])
def test_dropout_is_on_from_the_first_step(tiny_bert, name):
    """from_pretrained returns a model in evaluation mode, and Lightning keeps the mode of the model."""
    model = built(name, tiny_bert)
    assert all(module.training for module in model.modules())
    model.encoder.embed(LEFT)
    assert all(module.training for module in model.modules())
