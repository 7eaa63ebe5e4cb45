"""What to try where training has made nothing better, by what the run itself shows: plain numbers in, sentences out.

Each sentence says the fact first, and then the words to type.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

MOST = 3
FEW = 1_000  # examples
CUT = 0.05  # of the tokens: from this on it is worth reading more of a text
COPIES = 0.05  # of the examples
POINTS = 8  # of a curve whose end says something
NEARLY_ALL = 95.0  # of 100 points
FAR_TOO_FAST = 0.5  # of the score: from this loss on the rate was no near miss
MORE_QUERIES = 10  # times as many, at most
FALLING = 0.05  # of what the loss has lost in all: from this on, in the last quarter, it is still falling


class Facts(NamedTuple):
    """Of one run; what is not given is not known."""

    examples: int
    steps: int
    worse: bool = False  # told apart from what it began from
    epochs_said: bool = False  # max_epochs bounds the run, too
    rate: float | None = None
    losses: Sequence[float] = ()  # as they were logged
    scores: Sequence[float] = ()  # the headline before training and at each scoring since; more is better
    length: int | None = None  # that texts were cut at
    cut: float = 0.0  # share of the tokens that lie behind it
    longer: str = ""  # a length to type that cuts less; empty where the encoder reads no more
    copies: float = 0.0  # share of the examples that are there already
    queries: int = 0  # or pairs of texts, that the score is of
    doubt: float = 0.0  # half of the 95 % interval of its change
    before: str = ""  # of a key of a stage: stages.NAME.


def to_try(facts: Facts) -> list[str]:
    """At most three, the strongest reason first."""
    key = facts.before
    found = list[str]()
    first, last = (facts.scores[0], facts.scores[-1]) if facts.scores else (0.0, 0.0)
    if facts.worse and facts.rate and first - last > FAR_TOO_FAST * abs(first):  # nothing else is known of it
        return [f"More than half of the score is gone: learn far more slowly, {key}model.lr={facts.rate / 100:.1e}."]
    fell = len(facts.scores) > 1 and all(score < first for score in facts.scores[1:])
    if not facts.worse and first >= NEARLY_ALL:
        found.append(
            f"It had {first:.1f} of 100 before, so these texts leave little to gain: harder ones, "
            f"{key}evaluation.tasks=[FILE]."
        )
    elif wanted := _queries_wanted(facts, last - first):
        found.append(
            f"{facts.queries:,} are few to tell {last - first:+.1f} from chance, about {wanted:,} would do: give more, "
            f"{key}evaluation.tasks=[FILE]."
        )
    if fell and (facts.worse or len(facts.scores) > 2) and facts.rate:  # one score a little lower may be chance
        found.append(
            f"The score fell from the first scoring on: learn more slowly, {key}model.lr={facts.rate / 3:.1e}."
        )
    if facts.cut >= CUT and facts.longer:
        found.append(
            f"{facts.cut:.0%} of the tokens lie behind token {facts.length}, where texts are cut: read more of them, "
            f"{key}data.max_length={facts.longer}."
        )
    match end_of(facts.losses):
        case "falling" if not facts.worse:  # else what it learns is not what is scored
            epochs = f" {key}max_epochs=null" if facts.epochs_said else ""
            found.append(f"The loss was still falling at the end: {key}max_steps={2 * facts.steps}{epochs}.")
        case "still" if not (facts.worse or fell):  # else it did learn, and too fast
            found.append(
                f"The loss did not move in {facts.steps:,} steps: the encoder knows these texts already, or it learns "
                f"too slowly{f', {key}model.lr={3 * facts.rate:.1e}' if facts.rate else ''}."
            )
        case "floor":
            found.append(
                f"The loss was at its floor for the last half of the {facts.steps:,} steps: fewer, "
                f"{key}max_steps={max(1, facts.steps // 2)}, or more texts."
            )
    if facts.copies >= COPIES:
        found.append(
            f"{facts.copies:.0%} of the examples are copies of others, and teach nothing more: leave one of each in "
            "data.path."
        )
    if facts.examples < FEW:
        found.append(f"{facts.examples:,} examples are few: give more, {key}data.path=[FILE,ANOTHER].")
    return found[:MOST]


def _queries_wanted(facts: Facts, gain: float) -> int:
    """So many that the interval of a gain of this size would lie above 0, in two digits; 0 where that is no advice."""
    if facts.worse or not facts.queries or gain <= 0 or not gain <= facts.doubt <= gain * MORE_QUERIES**0.5:
        return 0
    return int(float(f"{1.1 * facts.queries * (facts.doubt / gain) ** 2:.1e}"))


def end_of(losses: Sequence[float]) -> str:
    """``falling``, ``floor`` or, of one that never fell, ``still``; empty where the curve is too short, or rises.

    Means of quarters are compared by their standard error, since the loss of a batch is noisy.
    """
    if len(losses) < POINTS:
        return ""
    first, _, third, fourth = (np.asarray(part, np.float64) for part in np.array_split(losses, 4))
    whole, fallen = _difference(first, fourth), _difference(third, fourth)
    if fallen.sure > 0 and fallen.mean >= FALLING * whole.mean:
        return "falling"
    if fallen.sure < 0 or whole.sure < 0:
        return ""
    return "floor" if whole.sure > 0 else "still"


class _Difference(NamedTuple):
    mean: float
    sure: int  # 1 or -1 where it is larger than chance would have it, else 0


def _difference(one: np.ndarray, other: np.ndarray) -> _Difference:
    mean, error = one.mean() - other.mean(), np.sqrt(sum(part.var(ddof=1) / len(part) for part in (one, other)))
    return _Difference(float(mean), int(np.sign(mean)) if abs(mean) > 2 * error else 0)


def of_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the account of the data says that is asked for here; what it lacks is left out."""
    parts = list((manifest.get("parts") or {"": manifest}).values())
    found: dict[str, Any] = {"examples": sum(int(part["used"]) for part in parts)}
    if kept := sum(part.get("kept", 0) for part in parts):
        found["copies"] = sum(part.get("repeated", 0) for part in parts) / kept
    cuts = [cut for part in parts for cut in part.get("cuts", ())]
    if cuts and len(parts) == 1:  # each part of a mixture has a length of its own
        most = max(cuts, key=lambda cut: cut["share_behind"])
        found |= {"cut": most["share_behind"], "length": most["max_length"]}
        if most["wanted"] is None:  # else it is what holds the texts, or all that the encoder reads
            found["longer"] = "null" if most["of"] == "texts" else str(2 * most["max_length"])
    return found
