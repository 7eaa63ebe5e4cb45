"""Suggestions on how to improve a run, derived from its measurements.

Each sentence first states the fact, and then the settings for the next run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.training.data_summary import is_unread

MAX_REASONS = 3
MIN_EXAMPLES = 1_000
MIN_CUT = 0.05  # of the tokens: above this share a larger max_length is worthwhile
MIN_COPIES = 0.05  # of the examples
MIN_LOSSES = 8  # of a curve that is long enough to judge its end
NEARLY_ALL = 95.0  # of 100 points
COLLAPSE = 0.5  # of the score: above this loss the learning rate was far too high
MAX_MORE_ITEMS = 10  # at most this factor more test items
# of the total decrease of the loss: more in the last quarter is still falling, certainly less is a floor
FALLING = 0.05


class Facts(NamedTuple):
    """Facts about a run from which suggestions are derived. A default means that the fact is unknown."""

    examples: int
    steps: int
    worse: bool = False  # according to the verdict
    limits: str = ""  # settings that remove the limits other than max_steps, e.g. max_epochs=null
    stops_early: bool = False  # a score determines the number of steps
    rate: float | None = None
    losses: Sequence[float] = ()  # as they were logged
    scores: Sequence[float] = ()  # the headline score before training and at each scoring after it; higher is better
    length: int | None = None  # the maximum length to which texts were truncated
    cut: float = 0.0  # share of the tokens after it
    longer: str = ""  # a value of data.max_length that truncates less; empty if the encoder reads no more
    copies: float = 0.0  # share of the examples that repeat an earlier row of the files
    unknown: str = ""  # what the tokenizer cannot read, if it matters
    multilingual: str = ""  # the setting of a backbone that can
    more: str = ""  # a setting that gives more examples
    files: str = ""  # the files of the examples
    items: int = 0  # number of queries, or pairs of texts, in the score
    unit: str = "queries"  # or "pairs"
    doubt: float = 0.0  # half of the 95 % confidence interval of its change
    key_prefix: str = ""  # prefix of the keys of a stage: stages.NAME.


def suggestions(facts: Facts) -> list[str]:
    """Return at most three suggestions on how to improve a run, the most important first."""
    key = facts.key_prefix
    found = list[str]()
    first, last = (facts.scores[0], facts.scores[-1]) if facts.scores else (0.0, 0.0)
    if facts.worse and facts.rate and first - last > COLLAPSE * abs(first):  # no other cause is known
        return [
            f"The score fell by more than half. Use a much lower learning rate: {key}model.lr={facts.rate / 100:.1e}."
        ]
    fell = len(facts.scores) > 1 and all(score < first for score in facts.scores[1:])
    if facts.unknown:
        found.append(f"{facts.unknown}. Use a multilingual backbone: {facts.multilingual}.")
    if not facts.worse and first >= NEARLY_ALL:
        found.append(
            f"The score was {first:.1f} of 100 before training, so these texts leave little room for improvement. "
            f"Evaluate on more difficult texts: {key}evaluation.custom_tasks=[FILE]."
        )
    elif items := _num_conclusive_items(facts, last - first):
        found.append(
            f"{facts.items:,} {facts.unit} are too few to distinguish {last - first:+.1f} from chance; about {items:,} "
            f"would be enough. Evaluate on more: {key}evaluation.custom_tasks=[FILE]."
        )
    if fell and (facts.worse or len(facts.scores) > 2) and facts.rate:  # one slightly lower score may be chance
        found.append(
            "Every score during training is lower than the score before it. Use a lower learning rate: "
            f"{key}model.lr={facts.rate / 3:.1e}."
        )
    if facts.cut >= MIN_CUT and facts.longer:
        found.append(
            f"Texts are truncated to {facts.length} tokens, which removes {facts.cut:.0%} of all tokens. Increase the "
            f"limit: {key}data.max_length={facts.longer}."
        )
    match end_of(facts.losses):
        # otherwise the objective does not agree with the score
        case "falling" if not (facts.worse or facts.stops_early):
            settings = [f"{key}{one}" for one in (f"max_steps={2 * facts.steps}", *facts.limits.split())]
            found.append(f"The loss was still decreasing at the end. Train longer: {' '.join(settings)}.")
        case "still" if not (facts.worse or fell):  # otherwise it did learn, and too fast
            found.append(
                f"The loss did not decrease by more than its noise in {facts.steps:,} steps. The encoder may already "
                "fit these texts, or the learning rate is too low"
                f"{f': {key}model.lr={3 * facts.rate:.1e}' if facts.rate else ''}."
            )
        case "floor" if not facts.stops_early:
            found.append(
                f"The loss did not decrease in the second half of the {facts.steps:,} steps. Use more texts, or fewer "
                f"steps: {key}max_steps={max(1, facts.steps // 2)}."
            )
    if facts.copies >= MIN_COPIES and facts.files:
        found.append(
            f"{facts.copies:.0%} of the examples are copies of other examples and add no information. Remove the "
            f"copies from {facts.files}."
        )
    if facts.examples < MIN_EXAMPLES and not facts.unknown:
        setting = f": {key}{facts.more}" if facts.more else ""
        found.append(f"{facts.examples:,} examples are few. Train on more{setting}.")
    return found[:MAX_REASONS]


def _num_conclusive_items(facts: Facts, gain: float) -> int:
    """Return the number of test items, rounded to two digits, with which the 95 % confidence interval of a gain of this
    size would exclude 0. Return 0 if more items are not advisable.
    """
    if facts.worse or not facts.items or gain <= 0 or not gain <= facts.doubt <= gain * MAX_MORE_ITEMS**0.5:
        return 0
    return int(float(f"{1.1 * facts.items * (facts.doubt / gain) ** 2:.1e}"))


def end_of(losses: Sequence[float]) -> str:
    """Classify how the loss ended: ``falling`` (still decreasing), ``floor`` (no further decrease), ``still`` (never
    decreased), or an empty string if none of these is certain.

    Means of quarters are compared using their standard errors, since the loss of a batch is noisy. A floor also needs
    evidence: the confidence interval of the decrease in the last half must be within `FALLING` of the total decrease.
    """
    if len(losses) < MIN_LOSSES:
        return ""
    first, _, third, fourth = (np.asarray(part, np.float64) for part in np.array_split(losses, 4))
    total, recent = _difference(first, fourth), _difference(third, fourth)
    if recent.sign > 0 and recent.mean >= FALLING * total.mean:
        return "falling"
    if recent.sign < 0 or total.sign < 0:
        return ""
    if total.sign == 0:
        return "still"
    return "floor" if abs(recent.mean) + recent.doubt <= FALLING * total.mean else ""


class _Difference(NamedTuple):
    mean: float
    doubt: float  # two standard errors

    @property
    def sign(self) -> int:
        """The sign of the mean difference, or 0 if the difference is not statistically significant."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.doubt else 0


def _difference(one: np.ndarray, other: np.ndarray) -> _Difference:
    error = np.sqrt(sum(part.var(ddof=1) / len(part) for part in (one, other)))
    return _Difference(float(one.mean() - other.mean()), 2 * float(error))


def manifest_facts(manifest: Mapping[str, Any], reads: int | None = None) -> dict[str, Any]:
    """Return the `Facts` fields that can be read from a data manifest.

    Args:
        manifest: the data manifest. The manifest of a mixture contains that of each source.
        reads: maximum number of tokens that the encoder reads.
    """
    parts = list((manifest.get("parts") or {"": manifest}).values())
    found: dict[str, Any] = {"examples": sum(int(part["used"]) for part in parts)}
    if kept := sum(part.get("kept", 0) for part in parts):
        found["copies"] = sum(part.get("repeated", 0) - part.get("relabeled", 0) for part in parts) / kept
    unread = [counts for part in parts if (counts := part.get("unknown_tokens")) and is_unread(counts)]
    if unread:
        found["unknown"] = _unread(unread)
    cuts = [cut for part in parts for cut in part.get("cuts", ())]
    if cuts and "parts" not in manifest:  # each part of a mixture has its own maximum length
        largest = max(cuts, key=lambda cut: cut["share_behind"])
        found |= {"cut": largest["share_behind"], "length": largest["max_length"]}
        if (
            largest["wanted"] is None and reads is not None and reads > largest["max_length"]
        ):  # otherwise both determined it
            found["longer"] = "null" if largest["of"] == "texts" else str(min(reads, 2 * largest["max_length"]))
    return found


def _unread(counts: Sequence[Mapping[str, Any]]) -> str:
    """Describe the fraction of unknown tokens, and the fraction of rows that the tokenizer cannot represent."""
    unknown, tokens, affected, rows = (
        sum(one[key] for one in counts) for key in ("unknown", "tokens", "rows_affected", "rows")
    )
    tokens_unknown = f"{unknown / max(1, tokens):.1%} of the tokens are unknown to the tokenizer, and "
    return (
        f"{tokens_unknown if unknown else ''}{affected / max(1, rows):.1%} of the rows have a text that the tokenizer "
        "cannot represent"
    )
