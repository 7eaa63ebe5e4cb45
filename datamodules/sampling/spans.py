"""Sampling of anchor and positive spans (Giorgi et al. 2021, section 3.1).

Pure functions of a document's length and a generator. Beta-distributed lengths: anchors lean long, positives short.
"""

from typing import NamedTuple, get_args

import numpy as np

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import Positive, Window

_SEARCH = 32  # tokens looked at together for the next word start; words are shorter, mostly


class Spans(NamedTuple):
    """Starts and lengths in tokens; positives grouped by anchor: [p11, p12, p21, p22]."""

    anchor_starts: np.ndarray  # (A,) int64
    anchor_lengths: np.ndarray  # (A,) int64
    positive_starts: np.ndarray  # (A * P,) int64
    positive_lengths: np.ndarray  # (A * P,) int64


class SpanRule(NamedTuple):
    """How spans are drawn from a document.

    ``window="grid"`` is the published code: an anchor lies within one of the windows [0, max_span), [max_span, ...).
    ``window="uniform"`` is the paper's text: anywhere, anchors of one document at least 2 * max_span tokens apart.
    """

    anchors: int
    positives: int  # of each anchor
    min_span: int
    max_span: int
    window: Window
    positive: Positive

    @property
    def tokens_needed(self) -> int:
        """The shortest document that spans can be drawn from.

        The grid wants 2 * A windows. The paper's text keeps anchors apart: A spans and A - 1 gaps must fit.
        """
        windows = max(2 * self.anchors, 3 * self.anchors - 2 if self.window == "uniform" else 0)
        return windows * self.max_span

    def check(self) -> None:
        """InputError where no document could satisfy the rule."""
        if self.anchors < 1 or self.positives < 1:
            raise InputError(
                f"data.anchors_per_document and data.positives_per_anchor: wanted at least 1 of each, "
                f"got {self.anchors} and {self.positives}."
            )
        if not 1 <= self.min_span <= self.max_span:
            raise InputError(
                f"data.min_span, data.max_span: wanted 1 <= min_span <= max_span, got {self.min_span}, {self.max_span}."
            )
        for key, choices in (("window", get_args(Window)), ("positive", get_args(Positive))):
            if (value := getattr(self, key)) not in choices:
                raise InputError(f"data.{key}: wanted one of {', '.join(choices)}, got {value!r}.")


def sample_spans(num_tokens: int, rule: SpanRule, rng: np.random.Generator) -> Spans:
    """Draw A anchors and P positives of each from a document of ``num_tokens`` tokens.

    Raises ValueError for a document that is shorter than the rule needs.
    """
    anchors, positives, min_span, max_span, window, positive = rule
    if num_tokens < rule.tokens_needed:
        raise ValueError(
            f"a document of {num_tokens} tokens is too short for {anchors} anchors of up to {max_span} tokens: "
            f"{rule.tokens_needed} are needed; drop shorter documents or lower max_span"
        )
    # Three calls draw everything: a call costs more than the numbers it returns
    anchor_betas = rng.beta(4, 2, size=anchors).tolist()
    positive_betas = rng.beta(2, 4, size=anchors * positives).tolist()
    uniforms = iter(rng.random(2 * anchors + anchors * positives).tolist())

    lengths = [int(beta * (max_span - min_span) + min_span) for beta in anchor_betas]
    place = _on_the_grid if window == "grid" else _far_apart
    starts = place(num_tokens, lengths, max_span, [next(uniforms) for _ in range(2 * anchors)])

    near_starts, near_lengths = [], []
    for i, (beta, uniform) in enumerate(zip(positive_betas, uniforms, strict=True)):
        start, length = starts[i // positives], lengths[i // positives]
        near_start, near_length = _POSITIVES[positive](num_tokens, start, length, min_span, max_span, beta, uniform)
        near_starts.append(near_start)
        near_lengths.append(near_length)
    return Spans(*(np.array(values, dtype=np.int64) for values in (starts, lengths, near_starts, near_lengths)))


def _among(uniform: float, count: int) -> int:
    """A uniform number in [0, 1) -> a uniform integer in 0..count-1."""
    return min(int(uniform * count), count - 1)


def _on_the_grid(num_tokens: int, lengths: list[int], max_span: int, uniforms: list[float]) -> list[int]:
    """A window for each anchor, then an offset in it.

    A chosen window leaves the list of candidates with its neighbours in that list. Where the list is short for the
    anchors to come, the first or the last candidate is taken, so that the rest stays in one piece.
    """
    starts: list[int] = []
    gone: list[int] = []  # windows no longer in the list, ascending; the list itself may be long
    windows = num_tokens // max_span
    for i, length in enumerate(lengths):
        left, to_come = windows - len(gone), len(lengths) - i
        if left // to_come < to_come:
            index = (left - 1) * _among(uniforms[2 * i], 2)
        else:
            index = _among(uniforms[2 * i], left)
        near = [_remaining(j, gone) for j in range(max(0, index - 1), min(left, index + 2))]
        window = near[0] if index == 0 else near[1]
        starts.append(window * max_span + _among(uniforms[2 * i + 1], max_span - length + 1))
        gone = sorted(gone + near)
    return starts


def _remaining(index: int, gone: list[int]) -> int:
    """The window at ``index`` in the list of those not ``gone``."""
    for window in gone:
        index += window <= index
    return index


def _far_apart(num_tokens: int, lengths: list[int], max_span: int, uniforms: list[float]) -> list[int]:
    """Anchors from left to right, at least 2 * max_span tokens between them; one anchor is uniform over the document.

    Nothing is rejected. With the lengths drawn, ``slack`` tokens are left to share out between the spans; every way
    to do so is one choice of A numbers among slack + A, and Floyd's method draws such a set uniformly.
    """
    gap = 2 * max_span
    slack = num_tokens - sum(lengths) - gap * (len(lengths) - 1)
    chosen: set[int] = set()
    for i, uniform in enumerate(uniforms[: len(lengths)]):
        top = slack + i  # slack + A numbers in all, and the largest of the last draw is slack + A - 1
        number = _among(uniform, top + 1)
        chosen.add(top if number in chosen else number)
    starts, used = [], 0
    for i, (number, length) in enumerate(zip(sorted(chosen), lengths, strict=True)):
        starts.append(number - i + used)
        used += length + gap
    return starts


def _nearby(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Overlapping, touching or inside the anchor, clipped to the document."""
    size = int(beta * (max_span - min_span) + min_span)
    first, last = max(0, start - size), min(start + length, num_tokens - size)
    return first + _among(uniform, last - first + 1), size


def _subsuming(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Inside the anchor."""
    size = int(beta * (length - min_span) + min_span)
    return start + _among(uniform, length - size + 1), size


def _adjacent(
    num_tokens: int, start: int, length: int, min_span: int, max_span: int, beta: float, uniform: float
) -> tuple[int, int]:
    """Touching the anchor on one side.

    As in the published code a positive to the left does not begin at token 0, except where there is no other place.
    """
    room = min(max_span, max(start, num_tokens - start - length))
    low = min(min_span, room)
    size = int(beta * (room - low) + low)
    places = [start - size] if start - size > 0 else []
    if start + length + size <= num_tokens:
        places.append(start + length)
    places = places or [0]
    return places[_among(uniform, len(places))], size


_POSITIVES = {"nearby": _nearby, "subsuming": _subsuming, "adjacent": _adjacent}


def align_to_words(
    ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, max_span: int, starts_word: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Move both borders of each span on to the next word start, so that no word is split.

    ``ids`` are the document's, ``starts_word`` says for each id of the vocabulary whether it begins a word. Moving all
    borders by one rule keeps what touches touching and what lies inside inside. A span that would become longer than
    ``max_span`` ends at the last word start that fits; one within a single word becomes that word. Only a word of more
    than ``max_span`` tokens is split.
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
    """The first word start at or after ``at``; the document's end counts as one, and so does its beginning."""
    if at == 0:
        return 0
    for begin in range(at, len(ids), _SEARCH):
        flags = starts_word[ids[begin : begin + _SEARCH]]
        if flags.any():
            return begin + int(flags.argmax())
    return len(ids)


def _last_start(ids: np.ndarray, at: int, starts_word: np.ndarray) -> int:
    """The last word start at or before ``at``, which lies inside the document."""
    for end in range(at + 1, 0, -_SEARCH):
        flags = starts_word[ids[max(0, end - _SEARCH) : end]][::-1]
        if flags.any():
            return end - 1 - int(flags.argmax())
    return 0
