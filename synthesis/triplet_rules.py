"""Which scored rows become triplets: the published rules, each a switch, and which candidates stand for a row.

A row is taken if no rule that is switched on is broken. All are looked at for every row, so it is also known how many
each breaks alone. Of several candidates the one stands for its direction that breaks no rule about texts, and of those
the one that the discriminator is surest of: else a copy of the premise, which always follows from it, would win.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from contracts import InputError

EMPTY, CUT, AGREE, THRESHOLD, PREMISE, HYPOTHESIS, COPY = (
    "empty",
    "cut off",
    "discriminator disagrees",
    "below the threshold",
    "premise too short",
    "hypothesis too short",
    "near-copy",
)
REASONS = (EMPTY, CUT, AGREE, THRESHOLD, PREMISE, HYPOTHESIS, COPY)  # the first that applies is the reason
ABOUT_P = {AGREE, THRESHOLD}
BINS = 100  # of the probability that both texts are what they were written for
HALF = 0.5


class Triplet(TypedDict):
    """A line of the data set."""

    premise: str
    entailment: str
    contradiction: str
    p_entailment: float  # P("true") that the entailment follows
    p_contradiction: float  # P("false") of the contradiction


class Rules(NamedTuple):
    """The defaults are the published ones (Chen et al. 2022, and their code)."""

    agree: bool = True  # the likelier answer is "true" for the entailment and "false" for the contradiction
    threshold: float | None = 0.9  # that answer's probability is at least so much; None: off
    min_premise_words: int = 8  # 0: off
    min_hypothesis_words: int = 5
    drop_near_copies: bool = True  # a text without its last character stands within the other
    drop_cut: bool = False  # texts that did not end by themselves (not published)

    def check(self) -> None:
        """InputError for settings that mean nothing."""
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise InputError(f"rules.threshold={self.threshold}: wanted a probability from 0 to 1, or null for none.")
        for name in ("min_premise_words", "min_hypothesis_words"):
            if getattr(self, name) < 0:
                raise InputError(f"rules.{name}={getattr(self, name)}: wanted 0 (no limit) or more.")

    def broken_by_text(self, premise: str, text: str, closed: bool) -> set[str]:
        """What a written text breaks, whatever the discriminator says."""
        broken = set()
        if not text or text.isspace():
            broken.add(EMPTY)  # no switch: nothing can be learnt from it, and readers refuse it
        if self.drop_cut and not closed:
            broken.add(CUT)
        if len(text.split()) < self.min_hypothesis_words:
            broken.add(HYPOTHESIS)
        if self.drop_near_copies and (text[:-1] in premise or premise[:-1] in text):
            broken.add(COPY)
        return broken

    def broken_by_answer(self, p_true: float, wanted: bool) -> set[str]:
        """What the discriminator's answer breaks. At one half it says "true", as the first of two equal logits wins."""
        broken = set()
        if self.agree and (p_true >= HALF) != wanted:
            broken.add(AGREE)
        if self.threshold is not None and surety(p_true, wanted) < self.threshold:
            broken.add(THRESHOLD)
        return broken


def surety(p_true: float, wanted: bool) -> float:
    """Probability of the wanted answer, in the digits that are kept."""
    return p_true if wanted else round(1 - p_true, 6)


class Verdict(NamedTuple):
    """On one row."""

    triplet: Triplet
    broken: set[str]  # reasons; empty: it is taken
    surety: float  # the lower of the two probabilities


def judge(row: Mapping[str, Any], rules: Rules) -> Verdict:
    """A scored row -> what it gives, and whether that is taken."""
    premise: str = row["premise"]
    text_e, p_e, broken_e = _choose(premise, row["entailment"], rules, wanted=True)
    text_c, p_c, broken_c = _choose(premise, row["contradiction"], rules, wanted=False)
    broken = broken_e | broken_c
    if len(premise.split()) < rules.min_premise_words:
        broken.add(PREMISE)
    triplet = Triplet(premise=premise, entailment=text_e, contradiction=text_c, p_entailment=p_e, p_contradiction=p_c)
    return Verdict(triplet, broken, min(p_e, p_c))


def _choose(
    premise: str, candidates: Sequence[Mapping[str, Any]], rules: Rules, *, wanted: bool
) -> tuple[str, float, set[str]]:
    """Text, probability of the wanted answer, and what it breaks."""
    best: tuple[bool, float] | None = None
    for one in candidates:
        broken = rules.broken_by_text(premise, one["text"], one["closed"])
        rank = (not broken, surety(one["p_true"], wanted))
        if best is None or rank > best:
            best, chosen, chosen_broken = rank, one, broken
    answer = rules.broken_by_answer(chosen["p_true"], wanted)
    return chosen["text"], surety(chosen["p_true"], wanted), chosen_broken | answer


class Tally:
    """Counts over rows."""

    def __init__(self) -> None:
        self.rows = self.accepted = 0
        self.rejected = Counter[str]()  # by the first reason
        self.broken = Counter[str]()  # by every one
        self.sureties = [0] * (BINS + 1)  # of the rows that break no rule about texts, in BINS bins and 1.0

    def add(self, verdict: Verdict) -> None:
        self.rows += 1
        if verdict.broken:
            self.rejected[next(reason for reason in REASONS if reason in verdict.broken)] += 1
            self.broken.update(verdict.broken)
        else:
            self.accepted += 1
        if verdict.broken <= ABOUT_P:
            self.sureties[round(verdict.surety * 1e6) // 10_000] += 1
