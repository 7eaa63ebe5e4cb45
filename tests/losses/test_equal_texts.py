"""Equal texts are not negatives: the softmax of each row written out, with its negatives chosen one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from contrastive_encoders.losses.contrastive import info_nce, nt_xent
from contrastive_encoders.losses.directions import contrast_in_directions
from contrastive_encoders.losses.duplicate_masking import FILLER, count_negatives, count_negatives_of_views, text_hashes
from tests.distributed import steps

TEMPERATURE = 0.3
ANCHORS = [3, 7, 3, 5, 9, 9]  # ids of texts; two anchors have text 3 and two text 9
POSITIVES = [1, 2, 4, 1, 3, 8]  # 1 of the anchors 3 and 5, and 3 has another positive; one is the text of an anchor
NEGATIVES = [
    7,
    2,
    1,
    1,
    5,
    8,
]  # positives of their own row, of an equal anchor, of others; 7 and 5 are anchors


def vectors(seed: int) -> torch.Tensor:
    return torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def row_loss(row, partner, candidates):
    """Return -log softmax of the partner; candidates are (embedding, whether it is a negative)."""
    logits = [F.cosine_similarity(row, partner, dim=0)]
    logits += [F.cosine_similarity(row, vector, dim=0) for vector, is_negative in candidates if is_negative]
    return -torch.log_softmax(torch.stack(logits) / TEMPERATURE, 0)[0]


def answers() -> set[tuple[int, int]]:
    return set(zip(ANCHORS, POSITIVES, strict=True))


def is_negative(anchor: int, document: int) -> bool:
    """Return whether a document is a negative of an anchor: neither its text nor an answer to it in any row."""
    return document != anchor and (anchor, document) not in answers()


def share_an_anchor(one: int, other: int) -> bool:
    return any((anchor, one) in answers() and (anchor, other) in answers() for anchor in ANCHORS)


def share_a_positive(one: int, other: int) -> bool:
    return any((one, positive) in answers() and (other, positive) in answers() for positive in POSITIVES)


def are_apart(one: int, other: int) -> bool:
    """Return whether two texts of either view are negatives of each other.

    They are not if a row pairs them, or if a text is paired with both.
    """
    pairs = answers() | {(positive, anchor) for anchor, positive in answers()}
    share = any((one, text) in pairs and (other, text) in pairs for text in ANCHORS + POSITIVES)
    return one != other and (one, other) not in pairs and not share


def info_nce_by_hand(a, p, n):
    losses = []
    for i in range(6):
        others = [(p[j], is_negative(ANCHORS[i], POSITIVES[j])) for j in range(6) if j != i]
        others += [(n[j], is_negative(ANCHORS[i], NEGATIVES[j])) for j in range(6)]
        losses.append(row_loss(a[i], p[i], others))
    return torch.stack(losses).mean()


def nt_xent_by_hand(a, p, n):
    rows, texts, losses = [*a, *p], ANCHORS + POSITIVES, []
    for i in range(12):
        partner = (i + 6) % 12
        others = [(rows[j], are_apart(texts[i], texts[j])) for j in range(12) if j not in (i, partner)]
        losses.append(row_loss(rows[i], rows[partner], others))
    return torch.stack(losses).mean()


def directions_by_hand(a, p, n):
    """Compute four directions in one softmax: queries and positives against documents and queries."""
    losses = []
    for i in range(6):
        query, positive, pair = ANCHORS[i], POSITIVES[i], []
        own = {query, positive}

        def is_document_apart(text: int, query: int = query, positive: int = positive, own: set = own) -> bool:
            paired = (positive, text) in answers() or (query, text) in answers()
            return text not in own and not paired and not share_an_anchor(positive, text)

        def is_query_apart(text: int, query: int = query, own: set = own) -> bool:
            paired = (text, query) in answers() or (query, text) in answers()
            return text not in own and not paired and not share_a_positive(query, text)

        def is_query_negative(text: int, query: int = query, positive: int = positive, own: set = own) -> bool:
            return text not in own and (text, positive) not in answers() and (query, text) not in answers()

        for j in range(6):
            pair.append((a[i], n[j], is_negative(query, NEGATIVES[j])))
            if j != i:
                pair.append((p[i], n[j], is_document_apart(NEGATIVES[j])))
                pair.append((a[i], p[j], is_negative(query, POSITIVES[j])))
                pair.append((p[i], p[j], is_document_apart(POSITIVES[j])))
                pair.append((a[i], a[j], is_query_apart(ANCHORS[j])))
                pair.append((p[i], a[j], is_query_negative(ANCHORS[j])))
        own_cosine = F.cosine_similarity(a[i], p[i], dim=0)
        logits = [own_cosine, own_cosine]
        logits += [F.cosine_similarity(row, vector, dim=0) for row, vector, negative in pair if negative]
        losses.append(torch.logsumexp(torch.stack(logits) / TEMPERATURE, 0) - own_cosine / TEMPERATURE)
    return torch.stack(losses).mean()


def ours(name: str, a, p, n, share: slice = slice(None)):
    texts = [torch.tensor(numbers)[share] for numbers in (ANCHORS, POSITIVES, NEGATIVES)]
    a, p, n = a[share], p[share], n[share]
    if name == "nt_xent":
        return nt_xent(a, p, temperature=TEMPERATURE, text_hashes=texts[:2]).loss
    if name == "info_nce":
        return info_nce(a, p, n, temperature=TEMPERATURE, text_hashes=texts).loss
    directions = ["query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"]
    return contrast_in_directions(a, p, n, temperature=TEMPERATURE, directions=directions, text_hashes=texts).loss


BY_HAND = {"nt_xent": nt_xent_by_hand, "info_nce": info_nce_by_hand, "directions": directions_by_hand}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_loss_and_its_gradient_are_the_equation(name):
    found, expected = ([vectors(seed).requires_grad_() for seed in (1, 2, 3)] for _ in range(2))
    loss, by_hand = ours(name, *found), BY_HAND[name](*expected)
    torch.testing.assert_close(loss, by_hand)
    for mine, theirs in zip(
        torch.autograd.grad(loss, found, allow_unused=True),
        torch.autograd.grad(by_hand, expected, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", BY_HAND)
def test_without_equal_texts_nothing_is_left_out(name, monkeypatch):
    for numbers, start in ((ANCHORS, 10), (POSITIVES, 20), (NEGATIVES, 30)):
        monkeypatch.setattr(f"{__name__}.{_name_of(numbers)}", list(range(start, start + 6)))
    given = [vectors(seed) for seed in (1, 2, 3)]
    a, p, n = given
    plain = {
        "nt_xent": lambda: nt_xent(a, p, temperature=TEMPERATURE),
        "info_nce": lambda: info_nce(a, p, n, temperature=TEMPERATURE),
        "directions": lambda: contrast_in_directions(
            a,
            p,
            n,
            temperature=TEMPERATURE,
            directions=["query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"],
        ),
    }[name]()
    assert torch.equal(ours(name, *given), plain.loss)


def _name_of(numbers: list) -> str:
    return next(name for name, value in globals().items() if value is numbers)


def shared(rank: int, world: int) -> dict:
    share = slice(rank * 6 // world, (rank + 1) * 6 // world)
    found = {}
    for name in BY_HAND:
        given = [vectors(seed).requires_grad_() for seed in (1, 2, 3)]
        loss = ours(name, *given, share)
        loss.backward()
        found[name] = loss.detach(), [one.grad for one in given if one.grad is not None]
    return found


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_texts_of_other_processes_count(world, tmp_path):
    alone, ranks = shared(0, 1), steps.together(shared, world, tmp_path)
    for name, (loss, gradients) in alone.items():
        torch.testing.assert_close(sum(rank[name][0] for rank in ranks) / world, loss)
        for place, gradient in enumerate(gradients):
            torch.testing.assert_close(sum(rank[name][1][place] for rank in ranks) / world, gradient)


def test_hashes_are_equal_for_equal_texts_alone():
    random = np.random.default_rng(0)
    texts = [tuple(random.integers(0, 3, random.integers(0, 7)).tolist()) for _ in range(3000)]
    texts += [tuple(range(9000)), tuple(range(9001)), (5,) * 4096, (5,) * 4097]
    lengths = np.array([len(text) for text in texts])
    hashes = text_hashes(torch.tensor([token for text in texts for token in text]), lengths).tolist()
    assert len(set(hashes)) == len(set(texts))
    assert {text: number for text, number in zip(texts, hashes, strict=True)} == dict(zip(texts, hashes, strict=True))
    assert len(set(zip(texts, hashes, strict=True))) == len(set(texts))


def counted(texts, **keys):
    return count_negatives(*map(torch.tensor, texts), **keys).tolist()


def test_the_negatives_of_an_anchor_are_counted():
    wanted = [
        sum(is_negative(ANCHORS[i], POSITIVES[j]) for j in range(6) if j != i)
        + sum(is_negative(ANCHORS[i], NEGATIVES[j]) for j in range(6))
        for i in range(6)
    ]
    assert counted([ANCHORS, POSITIVES, NEGATIVES]) == wanted
    assert counted([ANCHORS, POSITIVES], exclude_equal=False) == [4, 5, 5, 4, 5, 5]  # 1 is a positive twice
    groups = torch.tensor([0, 0, 1, 1, 2, 3])
    assert counted([range(6), range(6, 12)], groups=groups) == [4, 4, 4, 4, 5, 5]
    assert counted([range(6), range(6, 12), range(12, 18)], groups=groups) == [10, 10, 10, 10, 11, 11]
    assert counted([[1, 2, 3], [4, 4, 4]]) == [0, 0, 0]
    assert counted([[1, 2, 3], [4, 4, 4], [4, 4, 5]]) == [1, 1, 1]
    assert counted([[1], [2]]) == [0]
    # 5 is an answer to 1 in the first row, so 5 of the second row is not a negative of 1 in the third
    assert counted([[1, 2, 1], [5, 5, 6]]) == [0, 1, 0]
    assert counted([[1, 2, 1], [5, 6, 7], [8, 5, 9]]) == [3, 5, 3]  # nor if it is a hard negative of 2
    # the list of the first row has 7, an answer to 1 that is the positive of 2
    listed = torch.tensor([[7, FILLER], [FILLER, FILLER], [FILLER, FILLER]])
    assert counted([[1, 2, 1], [5, 7, 6]], accepted=listed) == [0, 2, 0]
    # 4 is another positive of 1, 9 is not a candidate; an empty text fills a row
    accepted = torch.tensor([[5, 4, FILLER], [6, FILLER, FILLER], [7, 9, FILLER]])
    assert counted([[1, 2, 3], [5, 6, 7], [4, FILLER, 8]], accepted=accepted) == [3, 4, 4]


def test_an_anchor_without_a_negative_is_one_without_a_gradient():
    rng = np.random.default_rng(0)
    for _ in range(50):
        texts = [torch.from_numpy(rng.integers(0, 3, 4)) for _ in range(3)]
        anchors, *others = (vectors(seed)[:4].requires_grad_() for seed in range(3))
        for columns in (2, 3):
            loss = info_nce(anchors, *others[: columns - 1], text_hashes=texts[:columns], temperature=TEMPERATURE).loss
            (gradient,) = torch.autograd.grad(loss, anchors)
            assert gradient.any(1).tolist() == [number > 0 for number in count_negatives(*texts[:columns]).tolist()]


def test_the_negatives_of_two_views_are_counted():
    texts = ANCHORS + POSITIVES
    wanted = [sum(are_apart(texts[i], texts[j]) for j in range(12) if j not in (i, (i + 6) % 12)) for i in range(12)]
    views = torch.tensor(ANCHORS), torch.tensor(POSITIVES)
    assert count_negatives_of_views(*views).tolist() == wanted
    # left 1 and 1, right 1 and 2: the last one's other two have the text of its partner
    found = count_negatives_of_views(torch.tensor([1, 1]), torch.tensor([1, 2]), exclude_equal=False)
    assert found.tolist() == [1, 2, 1, 0]
