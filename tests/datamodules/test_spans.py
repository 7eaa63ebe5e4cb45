"""Spans against the published sampler (DeCLUTR) and the paper's text; MLM masks: 15 % of the tokens, 80/10/10."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from contrastive_encoders.core import IGNORED_LABEL, InputError
from contrastive_encoders.datamodules.sampling.span_batches import mask_tokens
from contrastive_encoders.datamodules.sampling.spans import SpanRule, align_to_words, sample_spans

PUBLISHED = SpanRule(
    anchors=2, positives=2, min_span=32, max_span=512, anchor_placement="grid", positive_sampling="nearby"
)
VOCABULARY, MASK = 50, 4


def draws(count, num_tokens=2048, **rule):
    rng = np.random.default_rng(0)
    return [sample_spans(num_tokens, PUBLISHED._replace(**rule), rng) for _ in range(count)]


@pytest.mark.parametrize("window", ["grid", "uniform"])
def test_lengths_have_the_published_means_and_range(window):
    spans = draws(20_000, anchor_placement=window)
    anchors = np.concatenate([span.anchor_lengths for span in spans])
    positives = np.concatenate([span.positive_lengths for span in spans])
    # Beta(4, 2) has mean 2/3, Beta(2, 4) 1/3; the floor removes half a token: 32 + 480 * mean - 0.5
    assert anchors.mean() == pytest.approx(351.5, abs=1.5)
    assert positives.mean() == pytest.approx(191.5, abs=1.5)
    for lengths, (a, b) in ((anchors, (4, 2)), (positives, (2, 4))):
        assert lengths.min() >= 32
        assert lengths.max() <= 511
        quarters = np.quantile(lengths, [0.1, 0.5, 0.9])
        assert quarters == pytest.approx(32 + 480 * stats.beta(a, b).ppf([0.1, 0.5, 0.9]), abs=5)


def published_windows(num_tokens, anchors, max_span, rng):
    """Return the candidates as the published code keeps them, with Python lists."""
    candidates, chosen = list(range(0, num_tokens - max_span + 1, max_span)), []
    for i in range(anchors):
        if len(candidates) // (anchors - i) < anchors - i:
            index = rng.choice([0, len(candidates) - 1])
        else:
            index = rng.integers(len(candidates))
        chosen.append(candidates[index])
        del candidates[max(0, index - 1) : index + 2]
    return chosen


@pytest.mark.rotates
@pytest.mark.parametrize(("num_tokens", "anchors"), [(24, 3), (31, 3), (32, 4), (41, 2), (8, 1), (37, 1), (44, 5)])
def test_windows_are_drawn_as_from_the_published_list(num_tokens, anchors):
    rng, oracle_rng = np.random.default_rng(1), np.random.default_rng(2)
    ours, oracle = Counter(), Counter()
    for _ in range(6000):
        spans = sample_spans(num_tokens, SpanRule(anchors, 1, 2, 4, "grid", "nearby"), rng)
        ours[tuple(sorted(spans.anchor_starts // 4))] += 1
        oracle[tuple(sorted(np.array(published_windows(num_tokens, anchors, 4, oracle_rng)) // 4))] += 1
    frequent = [windows for windows, count in (ours + oracle).items() if count >= 20]
    assert len(frequent) >= 2
    table = [[counter[windows] for windows in frequent] for counter in (ours, oracle)]
    assert stats.chi2_contingency(table).pvalue > 1e-4
    assert all(windows in oracle for windows, count in ours.items() if count >= 20)


def test_an_anchor_lies_uniformly_in_its_window():
    spans = draws(20_000, num_tokens=1024, anchors=1)
    starts = np.array([span.anchor_starts[0] % 512 for span in spans])
    slack = np.array([512 - span.anchor_lengths[0] for span in spans])
    assert (starts <= slack).all()
    shares = (starts + np.random.default_rng(3).random(len(starts))) / (slack + 1)
    assert stats.kstest(shares, "uniform").pvalue > 1e-4


def test_two_uniform_anchors_take_every_arrangement_equally_often():
    # Fixed lengths of 2, so 3 spans and 2 gaps of 4 in 18 tokens: C(4 + 3, 3) = 35 arrangements
    rng = np.random.default_rng(5)
    rule = SpanRule(3, 1, 2, 2, "uniform", "nearby")
    seen = Counter(tuple(sample_spans(18, rule, rng).anchor_starts) for _ in range(7000))
    assert len(seen) == 35
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_nearby_positives_touch_the_anchor_and_are_uniform_there():
    shares, around = [], Counter()
    for span in draws(20_000, num_tokens=2048):
        anchor_start, anchor_end = span.anchor_starts[0], span.anchor_starts[0] + span.anchor_lengths[0]
        for start, length in zip(span.positive_starts[:2], span.positive_lengths[:2], strict=True):
            first, last = max(0, anchor_start - length), min(anchor_end, 2048 - length)
            assert first <= start <= last
            shares.append((start - first + 0.5) / (last - first + 1))
            around["left"] += start + length == anchor_start
            around["right"] += start == anchor_end
            around["inside"] += start >= anchor_start and start + length <= anchor_end
            around["longer"] += length > span.anchor_lengths[0]
    assert stats.kstest(shares, "uniform").pvalue > 1e-4
    assert min(around[place] for place in ("left", "right", "inside", "longer")) > 0


@pytest.mark.parametrize("window", ["grid", "uniform"])
@pytest.mark.parametrize("positive", ["adjacent", "subsuming"])
def test_adjacent_touches_and_subsuming_lies_inside(window, positive):
    for span in draws(3000, positives=3, anchor_placement=window, positive_sampling=positive):
        starts, lengths = (np.repeat(values, 3) for values in span[:2])
        left, right = span.positive_starts, span.positive_starts + span.positive_lengths
        if positive == "adjacent":
            assert ((right == starts) | (left == starts + lengths)).all()
            assert (left != 0).all()  # the published code takes no positive at token 0
        else:
            assert ((left >= starts) & (right <= starts + lengths)).all()


@st.composite
def requests(draw):
    """Draw a rule, a document that is long enough for it, and a generator."""
    max_span = draw(st.integers(1, 64))
    rule = SpanRule(
        anchors=draw(st.integers(1, 5)),
        positives=draw(st.integers(1, 4)),
        min_span=draw(st.integers(1, max_span)),
        max_span=max_span,
        anchor_placement=draw(st.sampled_from(["grid", "uniform"])),
        positive_sampling=draw(st.sampled_from(["nearby", "adjacent", "subsuming"])),
    )
    num_tokens = rule.tokens_needed + draw(st.integers(0, 300))
    return num_tokens, rule, np.random.default_rng(draw(st.integers(0, 2**32)))


@given(request=requests())
@settings(max_examples=600, deadline=None)
def test_no_span_passes_a_border(request):
    num_tokens, rule, _ = request
    spans = sample_spans(*request)
    assert [len(values) for values in spans[:2]] == [rule.anchors] * 2
    assert [len(values) for values in spans[2:]] == [rule.anchors * rule.positives] * 2
    for starts, lengths in (spans[:2], spans[2:]):
        assert (starts >= 0).all()
        assert (starts + lengths <= num_tokens).all()
        assert (lengths >= 1).all()
        assert (lengths <= rule.max_span).all()
    assert (spans.anchor_lengths >= rule.min_span).all()
    order = np.argsort(spans.anchor_starts)
    ends = (spans.anchor_starts + spans.anchor_lengths)[order][:-1]
    gaps = spans.anchor_starts[order][1:] - ends
    assert (gaps >= (rule.max_span if rule.anchor_placement == "grid" else 2 * rule.max_span)).all()
    if rule.anchor_placement == "grid":
        assert (spans.anchor_starts % rule.max_span + spans.anchor_lengths <= rule.max_span).all()


@given(request=requests(), word_length=st.integers(1, 12))
@settings(max_examples=600, deadline=None)
def test_aligned_spans_split_no_word(request, word_length):
    num_tokens, rule, rng = request
    starts_word = np.array([False, True])  # id 1 begins a word, id 0 continues it
    ids = (rng.random(num_tokens) < 1 / word_length).astype(np.uint16)
    borders = set(np.flatnonzero(ids).tolist()) | {0, len(ids)}
    spans = sample_spans(*request)
    for starts, lengths in (spans[:2], spans[2:]):
        new_starts, new_lengths = align_to_words(ids, starts, lengths, rule.max_span, starts_word)
        for start, length in zip(new_starts.tolist(), new_lengths.tolist(), strict=True):
            assert start in borders
            assert 1 <= length <= rule.max_span
            assert start + length <= len(ids)
            if start + length not in borders:  # only if one word alone is too long
                following = min(border for border in borders if border > start)
                assert following - start > rule.max_span


def test_short_documents_and_impossible_settings_are_refused():
    with pytest.raises(ValueError, match=r"2047.*2048"):
        sample_spans(2047, PUBLISHED, np.random.default_rng(0))
    assert PUBLISHED.tokens_needed == PUBLISHED._replace(anchor_placement="uniform").tokens_needed == 2048
    with pytest.raises(InputError) as error:
        PUBLISHED._replace(min_span=64, max_span=32).check()
    assert (error.value.key, error.value.value) == ("data.min_span", 64)


def masked(ids, special, seed=0, probability=0.15):
    rng = np.random.default_rng(seed)
    return mask_tokens(ids, special, rng, mask_id=MASK, vocab_size=VOCABULARY, probability=probability)


def test_rates_are_15_percent_and_80_10_10():
    ids = np.full(400_000, 7)
    corrupted, labels = masked(ids, np.zeros(len(ids), dtype=bool))
    predicted = labels != IGNORED_LABEL
    assert stats.binomtest(int(predicted.sum()), len(ids), 0.15).pvalue > 1e-4
    now = corrupted[predicted]
    # A random token is a mask or the token itself once in VOCABULARY each
    counts = [(now == MASK).sum(), (now == 7).sum(), ((now != MASK) & (now != 7)).sum()]
    share = np.array([0.8 + 0.1 / VOCABULARY, 0.1 + 0.1 / VOCABULARY, 0.1 * (VOCABULARY - 2) / VOCABULARY])
    assert stats.chisquare(counts, share * predicted.sum()).pvalue > 1e-4
    others = np.delete(np.bincount(now, minlength=VOCABULARY), [MASK, 7])
    assert stats.chisquare(others).pvalue > 1e-4  # special ids are drawn too, as published


@given(
    ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=60),
    seed=st.integers(0, 999),
    probability=st.floats(0, 0.99),
)
@settings(max_examples=200, deadline=None)
def test_special_tokens_stay_and_labels_are_the_originals(ids, seed, probability):
    ids = np.array(ids, dtype=np.int64)
    special, before = ids < 5, ids.copy()
    corrupted, labels = masked(ids, special, seed, probability=probability)
    assert np.array_equal(ids, before)
    assert np.array_equal(corrupted[special], ids[special])
    assert (labels[special] == IGNORED_LABEL).all()
    predicted = labels != IGNORED_LABEL
    assert np.array_equal(labels[predicted], ids[predicted])
    assert np.array_equal(corrupted[~predicted], ids[~predicted])
    assert corrupted.dtype == labels.dtype == np.int64
