"""In-batch contrastive loss for query-document pairs, with up to four directions of comparison, such as query to
document.

The other directions are document to query, query to query, and document to document.

One direction is multiple-negatives ranking (Henderson et al., 2017). Two directions with a softmax each are the
symmetric form (jina-embeddings-v2, Günther et al., 2023). Four directions in one softmax are the improved contrastive
loss of GTE (Li et al., 2023, eq. 2).

Shape letters: B pairs on this rank, M positives and hard negatives on this rank, C candidates of all ranks, D width.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.contrastive import (
    NEVER_EXCLUDED,
    ContrastiveOutput,
    Guide,
    Matching,
    candidate_groups,
    check_views,
    hard_negatives_each,
    info_nce,
    nearness_of,
    reduce_sums,
    softmax_over_candidates,
    stack_normalized,
)
from contrastive_encoders.losses.duplicate_masking import (
    NO_TEXT,
    EqualTexts,
    equal_labels,
    known_pairs,
    match_answers,
)
from contrastive_encoders.losses.gather import gather_plain, gather_rows

Direction = Literal["query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"]
Partition = Literal["joint", "per_direction"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def check_directions(directions: Sequence[str], partition_mode: str) -> None:
    """Check that the directions and the partition mode are valid in combination.

    Raises:
        ValueError: If a value is unknown or repeated, or if the combination is not supported.
    """
    if unknown := [one for one in directions if one not in DIRECTIONS]:
        raise ValueError(
            f"directions={list(directions)}: expected values from {', '.join(DIRECTIONS)}, got {unknown[0]!r}."
        )
    if "query_to_doc" not in directions or len(set(directions)) < len(directions):
        raise ValueError(
            f"directions={list(directions)}: expected a list that contains query_to_doc, the direction of the "
            f"positive pairs, and no direction twice."
        )
    if partition_mode not in get_args(Partition):
        raise ValueError(f"partition_mode={partition_mode}: expected joint or per_direction.")
    if partition_mode == "per_direction" and {"query_to_query", "doc_to_doc"} & set(directions):
        raise ValueError(
            "partition_mode=per_direction: expected joint, because query_to_query and doc_to_doc do not contain the "
            "positive pairs, so a softmax over one of them alone has no target."
        )


def contrast_in_directions(
    queries_BD: Tensor,
    positives_BD: Tensor,
    hard_negatives_ND: Tensor | None = None,
    *,
    temperature: float,
    directions: Sequence[str] = ("query_to_doc",),
    partition_mode: str = "joint",
    hard_negative_weight: float = 0.0,
    hardness_strength: float = 0.0,
    groups: Tensor | None = None,
    guide: Guide | None = None,
    text_hashes: Sequence[Tensor] | None = None,
    accepted: Tensor | None = None,
) -> ContrastiveOutput:
    """Compute the mean of -log softmax(cosine(query, positive) / temperature) over the pairs of a batch.

    It is computed in float32 (float64 inputs stay float64). The candidates of a pair depend on the directions: for its
    query, they are all documents (positives and hard negatives) and all other queries; for its positive, all queries
    and all documents of other queries. The other arguments are those of `info_nce`.

    Args:
        directions: Directions to include.
        partition_mode: "joint" uses one softmax over all candidates. "per_direction" uses one softmax each for
            query_to_doc and doc_to_query, and averages their losses.
        groups: (B,) int64 groups of queries with the same text, which are treated as one query.

    Raises:
        ValueError: If the shapes do not match, or if the directions define no loss.
    """
    check_directions(directions, partition_mode)
    if partition_mode == "per_direction" or tuple(directions) == ("query_to_doc",):
        forward = info_nce(
            queries_BD,
            positives_BD,
            hard_negatives_ND,
            temperature=temperature,
            hard_negative_weight=hard_negative_weight,
            hardness_strength=hardness_strength,
            groups=groups,
            guide=guide,
            text_hashes=text_hashes,
            accepted=accepted,
        )
        if "doc_to_query" not in directions:
            return forward
        back = None if guide is None else guide._replace(views=[guide.views[1], guide.views[0]])
        turned = None if text_hashes is None else [text_hashes[1], text_hashes[0]]
        backward = info_nce(
            positives_BD,
            queries_BD,
            temperature=temperature,
            groups=groups,
            guide=back,
            text_hashes=turned,
            accepted_by_candidates=accepted,
        )
        return forward._replace(loss=(forward.loss + backward.loss) / 2)
    check_views("contrast_in_directions", queries=queries_BD, positives=positives_BD)
    each = 0 if hard_negatives_ND is None else hard_negatives_each(queries_BD, hard_negatives_ND)
    with torch.autocast(queries_BD.device.type, enabled=False):
        own_BD, own_MD = stack_normalized(queries_BD), stack_normalized(positives_BD, hard_negatives_ND)
        (queries_CD, first_query), (documents_CD, first_document) = gather_rows(own_BD), gather_rows(own_MD)
        row_B = torch.arange(len(own_BD), device=own_BD.device)
        query_B = first_query + row_B if groups is None else groups
        blocks = [one for one in DIRECTIONS if one in directions]
        start_of = _starts(blocks, len(queries_CD), len(documents_CD))
        partner_B = first_document + row_B
        nearness = None
        if guide is not None:
            views = [stack_normalized(view) for view in guide.views]
            candidates = _candidates(blocks, gather_plain(views[0]), gather_plain(torch.cat(views[1:])))
            nearness = nearness_of(guide, torch.cat(views[:2], 1), candidates, partner_B)
        hard_BH = each * row_B[:, None] + torch.arange(each, device=row_B.device) + (first_document + len(own_BD))
        matching = Matching(
            partner_B,
            row_group_R=query_B,
            candidate_group_C=_groups(blocks, query_B, groups, each),
            hard_RH=hard_BH if each else None,
            hard_logit=hard_negative_weight,
            hard_share=hardness_strength * temperature,
            nearness=nearness,
            equal=None if text_hashes is None else _equal(blocks, *text_hashes, accepted_BP=accepted),
            twin_R=start_of["doc_to_query"] + first_query + row_B if "doc_to_query" in blocks else None,
        )
        rows_B2D = torch.cat([own_BD, own_MD[: len(own_BD)]], 1)
        candidates_C2D = _candidates(blocks, queries_CD, documents_CD)
        found = softmax_over_candidates(rows_B2D, candidates_C2D, matching, temperature=temperature)
        return reduce_sums(found, len(candidates_C2D) - len(blocks), "mean", "exact", guide is not None)


def _candidates(blocks: Sequence[str], queries_CD: Tensor, documents_CD: Tensor) -> Tensor:
    """Pad candidates to double width, so that one matmul computes the cosines of all directions.

    A row is the concatenation of a query and its positive. Candidates of the query are padded with zeros on the right,
    and candidates of the positive on the left.
    """
    width = queries_CD.shape[1]
    halves = {"query": (0, width), "doc": (width, 0)}
    values = {"query": queries_CD, "doc": documents_CD}
    return torch.cat([F.pad(values[to], halves[of]) for of, to in (one.split("_to_") for one in blocks)])


def _equal(
    blocks: Sequence[str],
    queries_B: Tensor,
    positives_B: Tensor,
    hard_negatives_N: Tensor | None = None,
    *,
    accepted_BP: Tensor | None = None,
) -> EqualTexts:
    """Return the mask of the candidates, in all directions, that are not negatives for a query and its positive."""
    behind = positives_B[:0] if hard_negatives_N is None else hard_negatives_N
    queries_C, documents_C = gather_plain(queries_B), gather_plain(torch.cat([positives_B, behind]))
    positives_C = gather_plain(positives_B)
    partners_C = gather_plain(torch.cat([queries_B, torch.full_like(behind, NO_TEXT)]))
    answers = known_pairs(queries_B, positives_B, accepted_BP)  # (query, document)
    questions = known_pairs(positives_B, queries_B, None, accepted_BP)  # (document, query)

    def only_in(block: str, texts_C: Tensor) -> Tensor:
        """Return a hash per candidate: ``texts_C`` for the candidates of the direction ``block``, and `NO_TEXT` for all
        others.
        """
        sizes = {"query": len(queries_C), "doc": len(documents_C)}
        none = {to: texts_C.new_full((size,), NO_TEXT) for to, size in sizes.items()}
        return torch.cat([texts_C if one == block else none[one.split("_to_")[1]] for one in blocks])

    candidate_C = torch.cat([queries_C if one.endswith("query") else documents_C for one in blocks])
    found = [match_answers(answers, queries_B, candidate_C)]
    if "doc_to_query" in blocks:
        found.append(match_answers(questions, positives_B, only_in("doc_to_query", queries_C)))
    if "query_to_query" in blocks:
        own_C = only_in("query_to_query", queries_C)
        shared = match_answers(answers, queries_B, only_in("query_to_query", positives_C), equal_labels(own_C))
        found += [match_answers(questions, queries_B, own_C), shared]
    if "doc_to_doc" in blocks:
        own_C = only_in("doc_to_doc", documents_C)
        shared = match_answers(questions, positives_B, only_in("doc_to_doc", partners_C), equal_labels(own_C))
        found += [match_answers(answers, positives_B, own_C), shared]
    return EqualTexts([(queries_B, candidate_C), (positives_B, candidate_C)], found)


def _starts(blocks: Sequence[str], queries: int, documents: int) -> dict[str, int]:
    """Return, for each direction, the index of its first candidate."""
    found, start = {}, 0
    for one in blocks:
        found[one] = start
        start += queries if one.endswith("query") else documents
    return found


def _groups(blocks: Sequence[str], query_B: Tensor, groups: Tensor | None, each: int) -> Tensor:
    """Return the group number of each candidate in all directions; a row excludes the candidates of its group."""
    queries_C = gather_plain(query_B)
    documents_C = gather_plain(torch.cat([query_B, query_B.repeat_interleave(each)]))
    same_anchor_C = candidate_groups(groups, each)
    found = {
        "query_to_doc": torch.full_like(documents_C, NEVER_EXCLUDED) if same_anchor_C is None else same_anchor_C,
        "doc_to_query": torch.full_like(queries_C, NEVER_EXCLUDED) if groups is None else queries_C,
        "query_to_query": queries_C,
        "doc_to_doc": documents_C,
    }
    return torch.cat([found[one] for one in blocks])
