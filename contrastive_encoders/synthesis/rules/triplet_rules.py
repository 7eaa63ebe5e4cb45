"""Rules that select triplets from scored rows, as published; each rule can be disabled.

A row is accepted if it violates no enabled rule. All rules are checked for every row, so the number of rows that each
rule alone would reject is also known. Of several candidates for a direction, one is chosen: among those that violate no
rule about texts, the judged candidate with the highest probability of the required answer. Without the text rules, a
copy of the premise, which always follows from the premise, would win.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypedDict

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.core.gense_prompts import Direction
from contrastive_encoders.synthesis.shards.store import RejectedText

ABSENT, EMPTY, CUT, AGREE, THRESHOLD, PREMISE, HYPOTHESIS, COPY = (
    "no candidate",
    "empty",
    "cut off",
    "discriminator disagrees",
    "below the threshold",
    "premise too short",
    "hypothesis too short",
    "near-copy",
)
UNJUDGED_HINT = "Set rules.agree=false rules.threshold=null to keep texts that are not judged."


REASONS = (ABSENT, EMPTY, CUT, AGREE, THRESHOLD, PREMISE, HYPOTHESIS, COPY)  # the first that applies is the reason
OTHER_TEXT_REJECTED = "left out with the other text"  # for a text that violates no rule itself
ANSWER_BINS = 20  # bins
SURETY_BINS = 100  # of the probability that both texts are what they were written for
DECISION_BOUNDARY = 0.5


class Triplet(TypedDict):
    """A line of the triplet dataset."""

    premise: str
    entailment: str
    contradiction: NotRequired[str]  # missing if contradictions are not requested
    p_entailment: float | None  # P("true") that the entailment follows; None: not judged
    p_contradiction: NotRequired[float | None]  # P("false") of the contradiction


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Configuration keys of the rules for triplets. The defaults are published (Chen et al. 2022, and their code)."""

    agree: bool = config_field(
        True,
        "whether the discriminator must agree with the label: the likelier answer must be true for an entailment, and "
        "false for a contradiction",
    )
    threshold: float | None = config_field(
        0.9,
        "minimum probability of the required answer (true for an entailment, false for a contradiction); null: no "
        "minimum",
        ge=0,
        le=1,
    )
    min_premise_words: int = config_field(8, "minimum number of words of a premise; 0: no minimum", ge=0)
    min_hypothesis_words: int = config_field(5, "minimum number of words of a hypothesis; 0: no minimum", ge=0)
    drop_near_copies: bool = config_field(
        True,
        "whether to drop triplets with near-copies: the premise contains a hypothesis without its last character, or "
        "a hypothesis contains the premise without its last character",
    )
    drop_cut: bool = config_field(
        False, "whether to drop texts that were truncated at max_new_tokens (not in the published code)"
    )

    def broken_by_text(self, premise: str, text: str, closed: bool) -> set[str]:
        """Return the violated rules among those that depend only on the texts, not on the discriminator's answer."""
        broken = set()
        if not text or text.isspace():
            broken.add(EMPTY)  # no switch: an empty text has no training value, and readers reject it
        if self.drop_cut and not closed:
            broken.add(CUT)
        if len(text.split()) < self.min_hypothesis_words:
            broken.add(HYPOTHESIS)
        if self.drop_near_copies and (text[:-1] in premise or premise[:-1] in text):
            broken.add(COPY)
        return broken

    def switched_on(self) -> list[str]:
        """Return the names of the enabled rules, which are the possible reasons for rejecting a row."""
        on = {
            EMPTY: True,
            CUT: self.drop_cut,
            AGREE: self.agree,
            THRESHOLD: self.threshold is not None,
            PREMISE: self.min_premise_words > 0,
            HYPOTHESIS: self.min_hypothesis_words > 0,
            COPY: self.drop_near_copies,
        }
        return [reason for reason in REASONS if on.get(reason)]

    def asks(self) -> bool:
        """Return whether any enabled rule uses the discriminator's answer."""
        return self.agree or self.threshold is not None

    def broken_by_answer(self, p_true: float | None, wanted: bool) -> set[str]:
        """Return the rules that the discriminator's answer ``p_true`` violates if the required answer is ``wanted``.

        A probability of one half means "true", since the first of two equal logits wins.
        """
        broken = set[str]()
        if self.agree and (p_true is None or (p_true >= DECISION_BOUNDARY) != wanted):
            broken.add(AGREE)
        if self.threshold is not None and (p_true is None or self.surety(p_true, wanted) < self.threshold):
            broken.add(THRESHOLD)
        return broken

    def surety(self, p_true: float | None, wanted: bool) -> float:
        """Return the probability of the required answer (true if ``wanted``), rounded to the stored digits.

        If there is no answer, return 0 if an enabled rule uses it, otherwise 1.
        """
        if p_true is None:
            return 0.0 if self.asks() else 1.0
        return p_true if wanted else round(1 - p_true, 6)


class JudgedRow(NamedTuple):
    """The triplet of a scored row, and the rules that it violates."""

    triplet: Triplet
    broken: set[str]  # reasons; empty: accepted
    surety: float  # the lower of the two probabilities
    choices: dict[Direction, "ChosenCandidate"]


def judge(row: Mapping[str, Any], rules: Rules) -> JudgedRow:
    """Choose the candidates of a scored row, and apply all rules to the resulting triplet."""
    premise: str = row["premise"]
    entailment = _choose(premise, row["entailment"], rules, wanted=True)
    broken, sure = entailment.broken, entailment.surety
    choices: dict[Direction, ChosenCandidate] = {"entailment": entailment}
    if "contradiction" in row:
        contradiction = _choose(premise, row["contradiction"], rules, wanted=False)
        choices["contradiction"] = contradiction
        broken, sure = broken | contradiction.broken, min(sure, contradiction.surety)
        triplet = Triplet(
            premise=premise,
            entailment=entailment.text,
            contradiction=contradiction.text,
            p_entailment=entailment.p,
            p_contradiction=contradiction.p,
        )
    else:
        triplet = Triplet(premise=premise, entailment=entailment.text, p_entailment=entailment.p)
    if len(premise.split()) < rules.min_premise_words:
        broken = broken | {PREMISE}
    return JudgedRow(triplet, broken, sure, choices)


class ChosenCandidate(NamedTuple):
    """The candidate that was chosen for a direction (entailment or contradiction), with the rules that it violates."""

    text: str
    p: float | None  # probability of the required answer
    broken: set[str]
    surety: float


def _choose(premise: str, candidates: Sequence[Mapping[str, Any]], rules: Rules, *, wanted: bool) -> ChosenCandidate:
    best: tuple[bool, bool, float] | None = None
    chosen: Mapping[str, Any] = {}
    for one in candidates:
        broken = rules.broken_by_text(premise, one["text"], one["closed"])
        rank = (not broken, one["p_true"] is not None, rules.surety(one["p_true"], wanted))
        if best is None or rank > best:
            best, chosen, chosen_broken = rank, one, broken
    if best is None:
        return ChosenCandidate("", None, {ABSENT}, 0.0)
    p_true = chosen["p_true"]
    answer = rules.broken_by_answer(p_true, wanted)
    p = None if p_true is None else rules.surety(p_true, wanted)
    return ChosenCandidate(chosen["text"], p, chosen_broken | answer, best[2])


def first_reason(broken: set[str]) -> str:
    return next(reason for reason in REASONS if reason in broken)


def rejected_texts(verdict: JudgedRow) -> Iterator[RejectedText]:
    """Yield the hypotheses of a rejected triplet, each with the first rule that it violates.

    The reason for a hypothesis that violates no rule is `OTHER_TEXT_REJECTED`.
    """
    premise = verdict.triplet["premise"]
    for direction, choice in verdict.choices.items():
        broken = choice.broken | (verdict.broken & {PREMISE})
        if choice.text.strip():
            why = first_reason(broken) if broken else OTHER_TEXT_REJECTED
            yield RejectedText(x1=premise, text=choice.text, label=direction, why=why, p=choice.p)


class RuleCounts:
    """Counts of accepted rows and of rejected rows, the latter for each rule, and histograms of the discriminator's
    answers.
    """

    def __init__(self) -> None:
        self.rows = self.accepted = 0
        self.rejected = Counter[str]()  # by the first reason
        self.broken = Counter[str]()  # by every reason
        self.answers: dict[
            str, list[int]
        ] = {}  # for each direction, in ANSWER_BINS bins of the probability of the required answer
        self.sureties = [0] * (
            SURETY_BINS + 1
        )  # of judged rows that violate at most the threshold, in SURETY_BINS bins and 1.0

    def add(self, verdict: JudgedRow) -> None:
        self.rows += 1
        if verdict.broken:
            self.rejected[first_reason(verdict.broken)] += 1
            self.broken.update(reason for reason in REASONS if reason in verdict.broken)
        else:
            self.accepted += 1
        for direction, choice in verdict.choices.items():
            if choice.p is not None:
                bins = self.answers.setdefault(direction, [0] * ANSWER_BINS)
                bins[min(int(choice.p * ANSWER_BINS), ANSWER_BINS - 1)] += 1
        if verdict.broken <= {THRESHOLD} and all(choice.p is not None for choice in verdict.choices.values()):
            self.sureties[round(verdict.surety * 1e6) // 10_000] += 1
