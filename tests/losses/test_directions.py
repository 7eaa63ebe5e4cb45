"""Contrast in directions against sentence-transformers' ranking loss, and against its equation written term by term."""

import itertools
import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from contrastive_encoders.losses.contrastive import Guide, info_nce
from contrastive_encoders.losses.directions import contrast_in_directions

SUBSETS = [
    ("query_to_doc", *others)
    for count in range(4)
    for others in itertools.combinations(("doc_to_query", "query_to_query", "doc_to_doc"), count)
]


def views(hard: int, pairs: int = 6) -> list[torch.Tensor]:
    drawn = torch.randn(2 + hard, pairs, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return [view.clone().requires_grad_() for view in drawn]


def ours(columns, **options):
    """Call the loss. Hard negatives of an anchor are adjacent rows here, and columns in the library."""
    hard = torch.stack(columns[2:], 1).flatten(0, 1) if len(columns) > 2 else None
    return contrast_in_directions(columns[0], columns[1], hard, temperature=0.05, **options)


@pytest.mark.parametrize("hard", [0, 1, 2])
@pytest.mark.parametrize(
    ("directions", "partition_mode"),
    [*((directions, "joint") for directions in SUBSETS), (SUBSETS[0], "per_direction"), (SUBSETS[1], "per_direction")],
)
def test_value_and_gradient_are_the_librarys(directions, partition_mode, hard):
    library = MultipleNegativesRankingLoss(None, scale=20.0, directions=directions, partition_mode=partition_mode)
    columns = views(hard)
    expected = library.compute_loss_from_embeddings(columns, None)
    wanted = torch.autograd.grad(expected, columns)
    found = ours(columns, directions=directions, partition_mode=partition_mode)
    torch.testing.assert_close(found.loss, expected, rtol=0, atol=1e-6)
    for one, other in zip(torch.autograd.grad(found.loss, columns), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("hard", [1, 3])
@pytest.mark.parametrize("directions", [SUBSETS[0], SUBSETS[-1]], ids="+".join)
def test_hard_negatives_weigh_by_their_cosine_as_the_library_has_it(directions, hard):
    library = MultipleNegativesRankingLoss(
        None,
        scale=20.0,
        directions=directions,
        hardness_mode="hard_negatives",
        hardness_strength=5.0,
    )
    columns = views(hard)
    columns[2:] = [(columns[0] + 0.5 * negative).detach().requires_grad_() for negative in columns[2:]]
    expected = library.compute_loss_from_embeddings(columns, None)
    wanted = torch.autograd.grad(expected, columns)
    found = ours(columns, directions=directions, hardness_strength=5.0)
    torch.testing.assert_close(found.loss, expected, rtol=0, atol=1e-6)
    for one, other in zip(torch.autograd.grad(found.loss, columns), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert not math.isclose(found.loss.item(), ours(columns, directions=directions).loss.item(), rel_tol=1e-2)


def by_the_book(columns, directions, groups, weight, mask=lambda *_: False):
    """Compute each pair's softmax by candidate. ``too_near(of, row, to, other)`` leaves negatives out."""
    unit = {"query": columns[0], "doc": torch.cat(columns[1:])}
    unit = {name: one / one.norm(dim=1, keepdim=True) for name, one in unit.items()}
    count, total = len(columns[0]), torch.zeros((), dtype=torch.float64)
    for row in range(count):
        pair = unit["query"][row] @ unit["doc"][row] / 0.05
        every = pair.exp()
        for direction in directions:
            of, to = direction.split("_to_")
            for other, vector in enumerate(unit[to]):
                own, same = other % count == row, groups[other % count] == groups[row]
                is_hard = to == "doc" and other >= count
                if direction == "query_to_doc" and (own or same) and not is_hard:
                    continue  # the pair itself is counted above
                if direction == "doc_to_query" and same and not own:
                    continue
                if of == to and same:
                    continue
                if mask(of, row, to, other) and not (direction == "doc_to_query" and own):
                    continue
                bonus = weight if direction == "query_to_doc" and own else 0.0
                every = every + (unit[of][row] @ vector / 0.05 + bonus).exp()
        total = total + every.log() - pair
    return total / count


@pytest.mark.parametrize("directions", SUBSETS, ids="+".join)
def test_equal_anchors_and_weights_of_hard_negatives_follow_the_equation(directions):
    columns, groups = views(1), torch.tensor([0, 1, 0, 2, 1, 3])
    found = ours(columns, directions=directions, groups=groups, hard_negative_weight=0.7)
    expected = by_the_book(columns, directions, groups.tolist(), 0.7)
    torch.testing.assert_close(found.loss, expected, rtol=0, atol=1e-9)
    grads = (torch.autograd.grad(loss, columns) for loss in (found.loss, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_a_guide_leaves_out_what_it_finds_nearer_than_the_partner():
    columns, guide = views(1), [view.detach() for view in views(4)[3:]]
    directions = SUBSETS[-1]
    unit = {"query": guide[0], "doc": torch.cat(guide[1:])}
    unit = {name: one / one.norm(dim=1, keepdim=True) for name, one in unit.items()}

    def mask(of, row, to, other):
        return unit[of][row] @ unit[to][other] >= unit["query"][row] @ unit["doc"][row] - 0.1

    found = ours(columns, directions=directions, guide=Guide(guide, absolute_margin=0.1))
    expected = by_the_book(columns, directions, list(range(6)), 0.0, mask)
    torch.testing.assert_close(found.loss, expected, rtol=0, atol=1e-6)
    assert 0 < found.excluded_negatives < 1
    assert not math.isclose(found.loss.item(), ours(columns, directions=directions).loss.item())


def test_one_direction_is_info_nce_and_a_duplicate_pair_is_not_a_negative():
    columns = views(0)
    assert torch.equal(ours(columns).loss, info_nce(*columns, temperature=0.05).loss)
    alike = [view + 3 * torch.eye(6, 8, dtype=torch.float64) * 4 for view in columns]
    assert ours(alike, directions=("query_to_doc", "doc_to_query")).accuracy == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"directions": ("query_to_doc", "forward")}, "'forward'"),
        ({"directions": ("doc_to_query",)}, "^directions="),
        ({"directions": ("query_to_doc", "query_to_query"), "partition_mode": "per_direction"}, "^partition_mode="),
        ({"partition_mode": "apart"}, "^partition_mode=apart"),
    ],
)
def test_invalid_directions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ours(views(0), **options)
