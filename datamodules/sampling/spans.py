"""Sampling of anchor and positive spans (Giorgi et al. 2021, section 3.1).

These are pure functions of a document's length and a random generator. Lengths follow beta distributions: anchors tend
to be long, positives short.
"""

from typing import NamedTuple

import numpy as np

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import AnchorPlacement, PositiveSampling

_SEARCH = 32  # tokens searched at a time for the next word start; most words are shorter


class Spans(NamedTuple):
    """Start positions and lengths of spans, in tokens. Positives are grouped by anchor: [p11, p12, p21, p22]."""

    anchor_starts: np.ndarray  # (A,) int64
    anchor_lengths: np.ndarray  # (A,) int64
    positive_starts: np.ndarray  # (A * P,) int64
    positive_lengths: np.ndarray  # (A * P,) int64


class SpanRule(NamedTuple):
    """Parameters that determine how spans are sampled from a document.

    ``anchor_placement="grid"`` follows the published code: an anchor is inside one of the windows [0, max_span),
    [max_span, ...). ``anchor_placement="uniform"`` follows the paper's text: anchors are anywhere, at least 2 *
    max_span tokens apart within a document.
    """

    anchors: int
    positives: int  # per anchor
    min_span: int
    max_span: int
    anchor_placement: AnchorPlacement
    positive_sampling: PositiveSampling

    @property
    def tokens_needed(self) -> int:
        """Return the minimum length, in tokens, of a document from which spans can be drawn.

        The grid needs 2 * A windows. With the paper's distance between anchors, A spans and A - 1 gaps must fit.
        """
        windows = max(2 * self.anchors, 3 * self.anchors - 2 if self.anchor_placement == "uniform" else 0)
        return windows * self.max_span

    def check(self) -> None:
        """Raise `InputError` if the minimum length of a span exceeds the maximum length."""
        if self.min_span > self.max_span:
            raise InputError(
                key="data.min_span", value=self.min_span, expected=f"at most data.max_span={self.max_span}"
            )


def sample_spans(num_tokens: int, rule: SpanRule, rng: np.random.Generator) -> Spans:
    """Draw A anchor spans, and P positive spans for each anchor, from a document of ``num_tokens`` tokens.

    Raises:
        ValueError: The document is shorter than the rule needs.
    """
    anchors, positives, min_span, max_span, placement, sampling = rule
    if num_tokens < rule.tokens_needed:
        raise ValueError(
            f"a document of {num_tokens} tokens is too short for {anchors} anchors of up to {max_span} tokens: "
            f"{rule.tokens_needed} are needed; drop shorter documents or lower max_span"
        )
    # Draw everything in three calls, since a call costs more than the numbers it returns
    anchor_betas = rng.beta(4, 2, size=anchors).tolist()
    positive_betas = rng.beta(2, 4, size=anchors * positives).tolist()
    uniforms = iter(rng.random(2 * anchors + anchors * positives).tolist())

    lengths = [int(beta * (max_span - min_span) + min_span) for beta in anchor_betas]
    place = _grid_starts if placement == "grid" else _distant_starts
    starts = place(num_tokens, lengths, max_span, [next(uniforms) for _ in range(2 * anchors)])

    near_starts, near_lengths = [], []
    for i, (beta, uniform) in enumerate(zip(positive_betas, uniforms, strict=True)):
        start, length = starts[i // positives], lengths[i // positives]
        near_start, near_length = _POSITIVES[sampling](num_tokens, start, length, min_span, max_span, beta, uniform)
        near_starts.append(near_start)
        near_lengths.append(near_length)
    return Spans(*(np.array(values, dtype=np.int64) for values in (starts, lengths, near_starts, near_lengths)))


def _uniform_index(uniform: float, count: int) -> int:
    """Map a uniform number in [0, 1) to a uniform integer in 0..count-1."""
    return min(int(uniform * count), count - 1)


def _grid_starts(num_tokens: int, lengths: list[int], max_span: int, uniforms: list[float]) -> list[int]:
    """Draw the start of each anchor: first a window of the grid, then an offset within this window.

    A chosen window is removed from the list of candidates together with its neighbors in that list. If few candidates
    remain for the next anchors, the first or last candidate is taken, so that the rest stays contiguous.
    """
    starts: list[int] = []
    removed: list[int] = []  # removed windows, ascending; the full list may be long
    windows = num_tokens // max_span
    for i, length in enumerate(lengths):
        left, num_next = windows - len(removed), len(lengths) - i
        if left // num_next < num_next:
            index = (left - 1) * _uniform_index(uniforms[2 * i], 2)
        else:
            index = _uniform_index(uniforms[2 * i], left)
        near = [_remaining(j, removed) for j in range(max(0, index - 1), min(left, index + 2))]
        window = near[0] if index == 0 else near[1]
        starts.append(window * max_span + _uniform_index(uniforms[2 * i + 1], max_span - length + 1))
        removed = sorted(removed + near)
    return starts


def _remaining(index: int, removed: list[int]) -> int:
    """Return the number of the window at position ``index`` among the windows that are not in ``removed``."""
    for window in removed:
        index += window <= index
    return index


def _distant_starts(num_tokens: int, lengths: list[int], max_span: int, uniforms: list[float]) -> list[int]:
    """Draw the starts of anchors, which are at least 2 * max_span tokens apart.

    A single anchor is uniform over the document.

    No draw is rejected. Given the lengths, ``slack`` tokens remain to be distributed between the spans. Every
    distribution corresponds to one choice of A numbers among slack + A, and Floyd's method draws such a set uniformly.
    """
    gap = 2 * max_span
    slack = num_tokens - sum(lengths) - gap * (len(lengths) - 1)
    chosen: set[int] = set()
    for i, uniform in enumerate(uniforms[: len(lengths)]):
        top = slack + i  # slack + A numbers in total, and the upper limit of the last draw is slack + A - 1
        number = _uniform_index(uniform, top + 1)
        chosen.add(top if number in chosen else number)
    starts, used = [], 0
    for i, (number, length) in enumerate(zip(sorted(chosen), lengths, strict=True)):
        starts.append(number - i + used)
        used += length + gap
    return starts


def _nearby(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Draw a positive within the document that overlaps or touches the anchor, or is inside the anchor."""
    size = int(beta * (max_span - min_span) + min_span)
    first, last = max(0, start - size), min(start + length, num_tokens - size)
    return first + _uniform_index(uniform, last - first + 1), size


def _subsuming(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Draw a positive inside the anchor."""
    size = int(beta * (length - min_span) + min_span)
    return start + _uniform_index(uniform, length - size + 1), size


def _adjacent(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Draw a positive that touches the anchor on one side.

    As in the published code, a positive on the left does not begin at token 0 unless there is no other position.
    """
    room = min(max_span, max(start, num_tokens - start - length))
    low = min(min_span, room)
    size = int(beta * (room - low) + low)
    places = [start - size] if start - size > 0 else []
    if start + length + size <= num_tokens:
        places.append(start + length)
    places = places or [0]
    return places[_uniform_index(uniform, len(places))], size


_POSITIVES = {"nearby": _nearby, "subsuming": _subsuming, "adjacent": _adjacent}


def align_to_words(
    ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, max_span: int, starts_word: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Move the start and the end of each span forward to the next word start, so that no word is split.

    All borders follow the same rule, so spans that touch still touch, and spans inside other spans stay inside. A span
    that would become longer than ``max_span`` ends at the last word start that fits. A span within a single word
    becomes that word. Only words of more than ``max_span`` tokens are split.

    Args:
        ids: Token ids of the document.
        starts_word: For each id of the vocabulary, whether it begins a word.
    """
    new_starts, new_lengths = np.empty_like(starts), np.empty_like(lengths)
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        first, last = _next_start(ids, start, starts_word), _next_start(ids, start + length, starts_word)
        if first == last:
            first = _last_start(ids, start, starts_word)
        if last - first > max_span:
            last = _last_start(ids, first + max_span, starts_word)
            last = last if last > first else first + max_span
        new_starts[i], new_lengths[i] = first, last - first
    return new_starts, new_lengths


def _next_start(ids: np.ndarray, at: int, starts_word: np.ndarray) -> int:
    """Return the position of the first word start at or after ``at``. Both ends of the document are word starts."""
    if at == 0:
        return 0
    for begin in range(at, len(ids), _SEARCH):
        flags = starts_word[ids[begin : begin + _SEARCH]]
        if flags.any():
            return begin + int(flags.argmax())
    return len(ids)


def _last_start(ids: np.ndarray, at: int, starts_word: np.ndarray) -> int:
    """Return the position of the last word start at or before ``at``; ``at`` must be inside the document."""
    for end in range(at + 1, 0, -_SEARCH):
        flags = starts_word[ids[max(0, end - _SEARCH) : end]][::-1]
        if flags.any():
            return end - 1 - int(flags.argmax())
    return 0
