"""Losses of a cross-encoder: against sentence-transformers' classes, the equations written slowly, and two halves."""

import math

import pytest
import torch

from contrastive_encoders.losses.reranking import binary_relevance, listwise

LOGITS_BL = torch.tensor([[0.3, -1.2, 2.0], [4.0, 0.1, -0.5]])
LABELS_BL = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
PAIRS = [[("first anchor", "one"), ("first anchor", "two")], [("second", "three"), ("second", "four")]]


@pytest.fixture(scope="module")
def library(tiny_bert, tmp_path_factory):
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    return CrossEncoder(str(tiny_bert), num_labels=1, device="cpu").eval()


def test_they_are_those_of_sentence_transformers_with_their_gradients(library):
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, ListNetLoss

    queries, documents = [one[0][0] for one in PAIRS], [[pair[1] for pair in one] for one in PAIRS]
    flat = [pair for one in PAIRS for pair in one]
    labels = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])]
    theirs = {
        "binary": lambda: BinaryCrossEntropyLoss(library)(
            [list(side) for side in zip(*flat, strict=True)], torch.cat(labels)
        ),
        "listwise": lambda: ListNetLoss(library)([queries, documents], labels),
    }

    def logits():
        return library(library.preprocess(flat))["scores"].view(-1)

    ours = {
        "binary": lambda: binary_relevance(logits(), torch.cat(labels)),
        "listwise": lambda: listwise(logits().view(2, 2), torch.stack(labels)),
    }
    for name in theirs:
        found = []
        for loss in (ours[name], theirs[name]):
            library.zero_grad()
            value = loss()
            value.backward()
            found.append((value.detach(), [one.grad.clone() for one in library.parameters() if one.grad is not None]))
        torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-7)


def test_they_are_their_equations():
    slowly = 0.0
    for logit, label in zip(LOGITS_BL.flatten().tolist(), LABELS_BL.flatten().tolist(), strict=True):
        probability = 1 / (1 + math.exp(-logit))
        slowly -= label * math.log(probability) + (1 - label) * math.log(1 - probability)
    assert float(binary_relevance(LOGITS_BL.flatten(), LABELS_BL.flatten())) == pytest.approx(slowly / 6, rel=1e-6)
    slowly = 0.0
    for logits, labels in zip(LOGITS_BL.tolist(), LABELS_BL.tolist(), strict=True):
        of_labels = sum(map(math.exp, labels))
        of_logits = sum(map(math.exp, logits))
        slowly -= sum(
            math.exp(label) / of_labels * math.log(math.exp(logit) / of_logits)
            for logit, label in zip(logits, labels, strict=True)
        )
    assert float(listwise(LOGITS_BL, LABELS_BL)) == pytest.approx(slowly / 2, rel=1e-6)


@pytest.mark.parametrize("loss", [lambda a, b: binary_relevance(a.flatten(), b.flatten()), listwise])
def test_the_mean_over_ranks_is_the_value_of_all(loss):
    halves = [loss(LOGITS_BL[row : row + 1], LABELS_BL[row : row + 1]) for row in range(2)]
    torch.testing.assert_close(torch.stack(halves).mean(), loss(LOGITS_BL, LABELS_BL))


def test_half_precision_comes_out_as_float32():
    with torch.autocast("cpu", torch.bfloat16):
        assert binary_relevance(LOGITS_BL[0].bfloat16(), LABELS_BL[0]).dtype == torch.float32
        assert listwise(LOGITS_BL.bfloat16(), LABELS_BL).dtype == torch.float32
