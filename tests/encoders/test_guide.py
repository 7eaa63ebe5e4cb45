"""Negatives left out by a guide equal those of sentence-transformers' GISTEmbed losses; the guide is not saved."""

import pytest
import torch
import torch.nn.functional as F

from contrastive_encoders.core import InputError, SpanBatch, TripletBatch
from contrastive_encoders.encoders.kernels.chunks import concatenate
from contrastive_encoders.losses.contrastive import Guide, info_nce, nt_xent
from tests.encoders.test_matryoshka import export_whole
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

MARGINS = [("absolute", 0.0), ("absolute", 0.02), ("relative", 0.03)]


@pytest.fixture(scope="module")
def guide(tiny_mlm, tmp_path_factory):
    """Make a folder with another encoder that has another vocabulary."""
    folder = tmp_path_factory.mktemp("guide") / "encoder"
    export_whole(built("sroberta", tiny_mlm, pooling="max").encoder, folder)
    return folder


@pytest.mark.rotates
@pytest.mark.parametrize(("strategy", "margin"), MARGINS)
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize(
    "chunks", [OFF, {"token_budget": 20, "activation_checkpointing": "on"}], ids=["whole", "in chunks"]
)
def test_the_loss_is_the_librarys(tiny_bert, guide, tmp_path, strategy, margin, columns, chunks):
    keys = {"guide": str(guide), f"guide_{strategy}_margin": margin, "mlp": False, "pooling": "mean"}
    model = built("simcse", tiny_bert, temperature=0.1, **keys, **chunks)
    losses, other = oracle(model, tmp_path)
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(guide), device="cpu")
    texts = [LEFT, RIGHT, THIRD][:columns]
    options = {"temperature": 0.1, "margin_strategy": strategy, "margin": margin}
    cached = losses.CachedGISTEmbedLoss if chunks is not OFF else losses.GISTEmbedLoss
    gist = cached(other, library, **options, contrast_anchors=False, contrast_positives=False)
    loss = gist([other.tokenize(column) for column in texts], torch.zeros(5))
    loss.backward()
    batch = TripletBatch(*[*ragged(model, *texts), None][:3], torch.arange(5), ROWS)
    found, gradients = step(model, batch)
    torch.testing.assert_close(found["loss"], loss.detach(), atol=1e-5, rtol=1e-5)
    assert_same_gradients(gradients, other)
    assert 0 < found["metrics"]["excluded_negatives"] < 1


def gist_both_ways(left, right, of_guide, temperature, margin):
    """Compute NT-Xent over GISTEmbed's masks, one row at a time (Solatorio 2024, eq. 3 to 6)."""
    rows, guides = F.normalize(torch.cat([left, right])), F.normalize(torch.cat(of_guide))
    terms, n = [], len(rows)
    for i in range(n):
        partner = (i + n // 2) % n
        most = guides[i] @ guides[partner] - margin
        kept = [k for k in range(n) if k == partner or (k != i and guides[i] @ guides[k] <= most)]
        logits = rows[kept] @ rows[i] / temperature
        terms.append(torch.logsumexp(logits, 0) - logits[kept.index(partner)])
    return torch.stack(terms).mean()


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_nt_xent_leaves_out_by_the_rule_in_both_directions(margin):
    generator = torch.Generator().manual_seed(3)
    left, right, *of_guide = torch.randn(4, 9, 6, generator=generator, dtype=torch.float64)
    left.requires_grad_()
    found = nt_xent(left, right, temperature=0.2, guide=Guide(of_guide, absolute_margin=margin))
    expected = gist_both_ways(left, right, of_guide, 0.2, margin)
    torch.testing.assert_close(found.loss, expected, rtol=1e-10, atol=0)
    wanted = torch.autograd.grad(expected, left)
    torch.testing.assert_close(torch.autograd.grad(found.loss, left), wanted, rtol=1e-9, atol=1e-12)
    assert 0 < found.excluded_negatives < 1


def test_declutr_s_guide_reads_what_was_not_masked(tiny_bert, guide):
    model = built("declutr", tiny_bert, guide=str(guide), mlm_weight=1.0, temperature=0.1, **OFF)
    (anchors,) = ragged(model, [text.lower() for text in LEFT])
    masked = anchors._replace(ids=anchors.ids.flip(0))
    around = concatenate([model.encoder.tokenize([a.lower(), b.lower()]) for a, b in zip(RIGHT, THIRD, strict=True)])
    found, _ = step(model, SpanBatch(anchors, masked.ids, anchors.ids, around, ROWS))
    vectors = [model.encoder.encode_sequences(one).vectors for one in (masked, around)]
    of_guide = [model.guide.encoder.embed([text.lower() for text in texts]) for texts in (LEFT, RIGHT, THIRD)]
    averaged = [vectors[1].unflatten(0, (5, 2)).mean(1), (of_guide[1] + of_guide[2]) / 2]
    expected = gist_both_ways(vectors[0], averaged[0], [of_guide[0], averaged[1]], 0.1, 0.0)
    torch.testing.assert_close(found["metrics"]["contrastive"], expected.detach(), atol=1e-5, rtol=1e-5)
    assert 0 < found["metrics"]["excluded_negatives"] < 1


def test_equal_texts_are_no_negatives_whatever_their_last_digit():
    anchors, positives = torch.eye(4), torch.eye(4).roll(1, 0)
    of_guide = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    of_positives = of_guide + 0.5
    of_positives[3] = of_positives[2] * (1 + 1e-7)  # the positive of row 2 again
    found = info_nce(
        anchors[2:3],
        positives[2:3],
        positives[3:],
        temperature=0.1,
        guide=Guide([of_guide[2:3], of_positives[2:3], of_positives[3:]]),
    )
    assert found.loss == 0
    assert found.excluded_negatives == 1


def test_the_guide_is_not_trained_and_in_no_checkpoint(tiny_bert, guide):
    with_guide, plain = built("simcse", tiny_bert, guide=str(guide)), built("simcse", tiny_bert)
    assert with_guide.state_dict().keys() == plain.state_dict().keys()
    assert not any(weight.requires_grad for weight in with_guide.guide.encoder.parameters())


@pytest.mark.parametrize(
    ("name", "keys", "field"),
    [
        ("simcse", {"guide_relative_margin": 0.1}, ("model.guide_relative_margin", 0.1)),
        ("declutr", {"guide": "x", "metric_loss": "SupConLoss"}, ("model.guide", "x")),
        ("declutr", {"guide": "x", "contrastive_weight": 0.0}, ("model.guide", "x")),
    ],
)
def test_settings_that_conflict_with_a_guide_are_refused(tiny_bert, name, keys, field):
    with pytest.raises(InputError) as error:
        built(name, tiny_bert, **keys)
    assert (error.value.key, error.value.value) == field


def test_error_about_a_guide_names_its_key(tiny_bert):
    with pytest.raises(InputError) as refused:
        built("simcse", tiny_bert, guide="/no/such/folder")
    assert refused.value.key == "model.guide"
    assert "encoder=" not in str(refused.value)
