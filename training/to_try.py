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
FALLING = 0.05  # of what the loss has lost in all: from this on, in the last quarter, it is still falling


class Facts(NamedTuple):
    """Of one run; ``None`` and empty: not known."""

    examples: int
    steps: int
    worse: bool = False  # told apart from what it began from
    epochs_said: bool = False  # max_epochs bounds the run, too
    rate: float | None = None
    losses: Sequence[float] = ()  # as they were logged
    scores: Sequence[float] = ()  # the headline before training and at each scoring since; more is better
    length: int | None = None  # that texts were cut at
    cut: float | None = None  # share of the tokens that lie behind it
    covering: int | None = None  # length that nearly all texts have at most
    copies: float | None = None  # share of the examples that are there already
    before: str = ""  # of a key of a stage: stages.NAME.


def to_try(facts: Facts) -> list[str]:
    """At most three, the strongest reason first."""
    key = facts.before
    found = list[str]()
    fell = len(facts.scores) > 1 and all(score < facts.scores[0] for score in facts.scores[1:])
    if fell and (facts.worse or len(facts.scores) > 2) and facts.rate:  # one score a little lower may be chance
        found.append(
            f"The score fell from the first scoring on: learn more slowly, {key}model.lr={facts.rate / 3:.1e}."
        )
    if facts.cut is not None and facts.cut >= CUT and facts.length:
        longer = facts.covering or 2 * facts.length
        found.append(
            f"{facts.cut:.0%} of the tokens lie behind {facts.length}, where texts are cut: "
            f"{key}data.max_length={longer}."
        )
    match end_of(facts.losses):
        case "falling" if not facts.worse:  # else what it learns is not what is scored
            epochs = f" {key}max_epochs=null" if facts.epochs_said else ""
            found.append(f"The loss was still falling at the end: {key}max_steps={2 * facts.steps}{epochs}.")
        case "floor":
            found.append(
                f"The loss was at its floor for the last half of the {facts.steps:,} steps: fewer, "
                f"{key}max_steps={max(1, facts.steps // 2)}, or more texts."
            )
    if facts.copies is not None and facts.copies >= COPIES:
        found.append(
            f"{facts.copies:.0%} of the examples are copies of others, and copies are each other's negatives: "
            "leave one of each in data.path."
        )
    if facts.examples < FEW:
        found.append(f"{facts.examples:,} examples are few: give more, {key}data.path=[FILE,ANOTHER].")
    return found[:MOST]


def end_of(losses: Sequence[float]) -> str:
    """``falling`` or ``floor``; empty where the curve is too short, or says neither.

    Means of the last two quarters are compared with their standard error, since the loss of a batch is noisy.
    """
    if len(losses) < POINTS:
        return ""
    first, _, third, fourth = (np.asarray(part, np.float64) for part in np.array_split(losses, 4))
    fallen, error = third.mean() - fourth.mean(), np.sqrt(sum(part.var(ddof=1) / len(part) for part in (third, fourth)))
    whole = first.mean() - fourth.mean()
    if fallen > 2 * error and fallen >= FALLING * whole:
        return "falling"
    return "floor" if abs(fallen) <= 2 * error or fallen < FALLING * whole else ""


def of_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the account of the data says that is asked for here; what it lacks is left out."""
    parts = (manifest.get("parts") or {"": manifest}).values()
    return {"examples": sum(int(part["used"]) for part in parts)}
