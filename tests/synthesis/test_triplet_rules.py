"""Rows that become triplets, against the published filter read slowly, line by line."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contrastive_encoders.synthesis.rules.triplet_rules import (
    AGREE,
    COPY,
    CUT,
    EMPTY,
    HYPOTHESIS,
    PREMISE,
    THRESHOLD,
    RuleCounts,
    Rules,
    judge,
)

EIGHT = "one two three four five six seven eight"
FIVE = "nine ten eleven twelve thirteen"
FIVE_MORE = "red green blue white black"


def row(premise=EIGHT, entailment=FIVE, contradiction=FIVE_MORE, p_e=0.95, p_c=0.05, closed=True):
    def candidates(texts, p_true):
        texts, p_true = (texts, p_true) if isinstance(texts, list) else ([texts], [p_true])
        return [{"text": text, "p_true": p, "closed": closed} for text, p in zip(texts, p_true, strict=True)]

    return {
        "premise": premise,
        "entailment": candidates(entailment, p_e),
        "contradiction": candidates(contradiction, p_c),
    }


def published(s0, s1, s2, p1, p2):
    """Return whether a triplet survives: every condition as the published filter states it."""
    probabilities = [[p1, 1 - p1], [p2, round(1 - p2, 6)]]  # of [true, false], in the stored digits
    predictions = [max(range(2), key=lambda answer: pair[answer]) for pair in probabilities]
    if predictions != [0, 1]:
        return False
    if probabilities[0][0] < 0.9 or probabilities[1][1] < 0.9:
        return False
    if len(s0.split()) < 8 or len(s1.split()) < 5 or len(s2.split()) < 5:
        return False
    copies = [other[: len(other) - 1] in s0 or s0[: len(s0) - 1] in other for other in (s1, s2)]
    return not any(copies)


texts = st.one_of(
    st.text(alphabet="ab ", max_size=14).map(str.strip),
    st.lists(st.sampled_from("one two three".split()), max_size=9).map(" ".join),
)
probabilities = st.one_of(st.sampled_from([0.0, 0.1, 0.100001, 0.5, 0.899999, 0.9, 0.900001, 1.0]), st.floats(0, 1))


@settings(max_examples=600, deadline=None)
@given(texts, texts, texts, probabilities, probabilities)
@example(EIGHT, FIVE, FIVE_MORE, 0.9, 0.1)  # exactly at the threshold: taken
@example(EIGHT, FIVE, FIVE_MORE, 0.899999, 0.1)
@example(EIGHT, FIVE, FIVE_MORE, 0.9, 0.100001)
@example(EIGHT, "x", FIVE_MORE, 1.0, 0.0)  # one character: nothing of it remains, and that is in every text
@example(EIGHT, "", FIVE_MORE, 1.0, 0.0)
@example("", FIVE, FIVE_MORE, 1.0, 0.0)
@example(EIGHT, EIGHT + ".", FIVE_MORE, 1.0, 0.0)
@example(EIGHT, EIGHT.upper(), FIVE_MORE, 1.0, 0.0)  # case matters: no copy
@example(EIGHT, "one two three four fivE", FIVE_MORE, 1.0, 0.0)
def test_decisions_are_the_published_ones(s0, s1, s2, p1, p2):
    p1, p2 = round(p1, 6), round(p2, 6)
    verdict = judge(row(s0, s1, s2, p1, p2), Rules())
    assert (not verdict.broken) == published(s0, s1, s2, p1, p2)


def test_each_rule_is_a_switch_of_its_own():
    off = Rules(agree=False, threshold=None, min_premise_words=0, min_hypothesis_words=0, drop_near_copies=False)
    worst = row("a b", "a", "a b", 0.2, 0.9, closed=False)
    assert not judge(worst, off).broken
    assert judge(worst, replace(off, agree=True)).broken == {AGREE}
    assert judge(worst, replace(off, threshold=0.9)).broken == {THRESHOLD}
    assert judge(worst, replace(off, min_premise_words=8)).broken == {PREMISE}
    assert judge(worst, replace(off, min_hypothesis_words=5)).broken == {HYPOTHESIS}
    assert judge(worst, replace(off, drop_near_copies=True)).broken == {COPY}
    assert judge(worst, replace(off, drop_cut=True)).broken == {CUT}
    assert judge(row(entailment=""), off).broken == {EMPTY}, "an empty text teaches nothing"


def test_the_surest_candidate_that_is_no_copy_stands_for_a_row():
    copy = EIGHT + "!"
    verdict = judge(row(entailment=[FIVE, copy, FIVE_MORE], p_e=[0.91, 0.999, 0.95]), Rules())
    assert (verdict.triplet["entailment"], verdict.triplet["p_entailment"]) == (FIVE_MORE, 0.95)
    verdict = judge(row(contradiction=[FIVE, FIVE_MORE], p_c=[0.001, 0.2], entailment="w v x y z"), Rules())
    assert (verdict.triplet["contradiction"], verdict.triplet["p_contradiction"]) == (FIVE, 0.999)
    without = judge(row(entailment=[FIVE, copy], p_e=[0.91, 0.999]), Rules(drop_near_copies=False))
    assert without.triplet["entailment"] == copy
    only = judge(row(entailment=[copy, "x"], p_e=[0.7, 0.6]), Rules())
    assert only.broken == {COPY, THRESHOLD}


def test_counts_say_what_every_rule_leaves_out():
    tally = RuleCounts()
    for p in (0.3, 0.6, 0.85, 0.9, 0.99, 1.0):
        tally.add(judge(row(p_e=p), Rules()))
    tally.add(judge(row(premise="short", p_e=0.3), Rules()))
    assert (tally.rows, tally.accepted) == (7, 3)
    assert tally.rejected == {AGREE: 2, THRESHOLD: 2}
    assert tally.broken == {AGREE: 2, THRESHOLD: 4, PREMISE: 1}
    assert {place: n for place, n in enumerate(tally.sureties) if n} == {60: 1, 85: 1, 90: 1, 95: 2}


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.9])
@pytest.mark.parametrize("agree", [True, False])
def test_rows_counted_at_a_threshold_are_those_that_it_takes(threshold, agree):
    """This includes undecided rows: at one half the discriminator says "true", of a contradiction too."""
    rows = [row(p_e=p, p_c=q) for p in (0.3, 0.5, 0.6, 0.95) for q in (0.05, 0.4, 0.5, 0.7)]
    rows.append(row(entailment="short", p_e=0.95, p_c=0.05))
    tally = RuleCounts()
    for one in rows:
        tally.add(judge(one, Rules(agree=agree)))
    tally.add(judge(row(p_e=None, p_c=None), Rules(agree=agree, threshold=None)))  # not judged: no threshold takes it
    taken = sum(not judge(one, Rules(agree=agree, threshold=threshold)).broken for one in rows)
    assert sum(tally.sureties[round(100 * threshold) :]) == taken > 0


def test_a_candidate_whose_judge_gave_no_answer_is_neither_taken_nor_preferred():
    """It is treated as undecided: the published filter requires both predictions to be the expected ones."""
    for asking in (Rules(), Rules(threshold=None), Rules(agree=False)):
        broken = judge(row(p_e=None), asking).broken
        assert broken == {reason for reason, on in ((AGREE, asking.agree), (THRESHOLD, asking.threshold)) if on}
        verdict = judge(row(entailment=[FIVE, FIVE_MORE], p_e=[None, 0.95]), asking)
        assert (verdict.triplet["entailment"], verdict.broken) == (FIVE_MORE, set())
    assert not judge(row(p_e=None, p_c=None), Rules(agree=False, threshold=None)).broken
