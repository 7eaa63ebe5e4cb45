"""Post-processing of DINO's generated pairs before training (Schick and Schuetze 2021, and their published code).

An ordered list of named steps, each a function rows -> rows that leaves its input alone. What is random in a step
follows from the seed and the name of the step, so that leaving one out changes no draw of another.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from contrastive_encoders.core import InputError

STEPS = ("shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment")  # in the published order


class Pair(NamedTuple):
    left: str  # x1
    right: str  # x2
    score: float  # 0..1
    added: bool = False  # by a step: nobody wrote it


class StepReport(NamedTuple):
    """What a step did."""

    step: str
    dropped: int
    added: int
    left: int  # pairs behind it


class PostprocessSettings(NamedTuple):
    """``normalise`` compares x1 with x2 stripped and case-folded. ``cap`` is pairs per x1 and label, 0 for no limit.

    ``variant="published"`` draws random x2 from all entries, as the code does; ``paper`` from those of other x1.
    """

    steps: tuple[str, ...]
    normalise: bool
    smoothing: float
    cap: int
    random_pairs: int
    variant: Literal["paper", "published"]
    seed: int

    def check(self) -> None:
        """InputError for settings that mean nothing."""
        if unknown := [step for step in self.steps if step not in STEPS]:
            raise InputError(f"data.steps: there is no step {unknown[0]!r}; wanted some of {', '.join(STEPS)}.")
        if not 0 <= self.smoothing < 1:
            raise InputError(
                f"data.smoothing={self.smoothing}: wanted 0 (none) or more and less than 1, where every label would be "
                "0.5. Published is 0.2."
            )
        for name, value in (("cap", self.cap), ("random_pairs", self.random_pairs)):
            if value < 0:
                raise InputError(f"data.{name}={value}: wanted 0 (none) or more. Published is 2.")
        if self.variant not in ("paper", "published"):
            raise InputError(f"data.variant={self.variant!r}: wanted paper or published.")


def postprocess(pairs: Sequence[Pair], settings: PostprocessSettings) -> tuple[list[Pair], list[StepReport]]:
    """The pairs behind all steps, in order, and what each step did."""
    settings.check()
    found, reports = list(pairs), []
    for name in settings.steps:
        before = Counter(found)
        found = _STEPS[name](found, settings)
        after = Counter(found)
        if name == "smooth":  # it changes labels: the pairs are the same
            dropped = added = 0
        else:
            dropped, added = (before - after).total(), (after - before).total()
        reports.append(StepReport(name, dropped, added, len(found)))
    return found, reports


def shuffle(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Which pairs the cap keeps depends on their order."""
    order = list(pairs)
    _random(settings, "shuffle").shuffle(order)
    return order


def deduplicate(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """The first of equal (x1, x2, label). Published was a set, whose order changed from run to run."""
    return list(dict.fromkeys(pairs))


def drop_identical(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Without pairs of a text with itself."""
    form: Callable[[str], str] = (lambda text: text.strip().casefold()) if settings.normalise else str
    return [pair for pair in pairs if form(pair.left) != form(pair.right)]


def smooth(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """label * (1 - s) + s / 2: with s = 0.2 the labels 0, 0.5, 1 become 0.1, 0.5, 0.9."""
    keep = 1 - settings.smoothing
    return [pair._replace(score=pair.score * keep + settings.smoothing / 2) for pair in pairs]


def cap(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """The first ``settings.cap`` pairs of each (x1, label)."""
    if not settings.cap:
        return list(pairs)
    seen, kept = Counter[tuple[str, float]](), []
    for pair in pairs:
        seen[pair.left, pair.score] += 1
        if seen[pair.left, pair.score] <= settings.cap:
            kept.append(pair)
    return kept


def augment(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """And for each x1 some x2 of random entries, label 0: not smoothed. An x1 that has no others gets none."""
    draw = _random(settings, "augment")
    entries: dict[str, list[Pair]] = {}
    for pair in pairs:
        entries.setdefault(pair.left, []).append(pair)
    by_left = [pair for own in entries.values() for pair in own]
    added, start = [], 0
    for left, own in entries.items():
        excluded = len(own) if settings.variant == "paper" else 0
        for _ in range(settings.random_pairs if len(by_left) > excluded else 0):
            place = draw.randrange(len(by_left) - excluded)
            place += excluded if place >= start else 0  # own entries stand side by side and are stepped over
            added.append(Pair(left, by_left[place].right, 0.0, added=True))
        start += len(own)
    return [*pairs, *added]


_STEPS: dict[str, Callable[[list[Pair], PostprocessSettings], list[Pair]]] = {
    step.__name__: step for step in (shuffle, deduplicate, drop_identical, smooth, cap, augment)
}


def split_dev(
    pairs: Sequence[Pair], share: float, seed: int, by: Literal["pair", "x1"] = "pair"
) -> tuple[list[Pair], list[Pair]]:
    """Return (train, dev). By pair: of each label value, shuffled, the first int(n * share) are dev, as published.

    Where no label value has that many pairs, all are one group. By x1: of the x1's, shuffled, the first int(n * share)
    are dev with all their pairs, so that no x1 is on both sides. Added pairs are never dev, unlike published.
    """
    added = [pair for pair in pairs if pair.added]
    pairs = [pair for pair in pairs if not pair.added]
    draw = random.Random(f"{seed}/split")
    groups: dict[float, list[list[Pair]]] = {}
    if by == "x1":
        by_left: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_left.setdefault(pair.left, []).append(pair)
        groups[0.0] = list(by_left.values())
    else:
        for pair in pairs:
            groups.setdefault(pair.score, []).append([pair])
        if all(int(len(group) * share) == 0 for group in groups.values()):
            groups = {0.0: [[pair] for pair in pairs]}
    train, dev = [], []
    for _, group in sorted(groups.items()):
        order = list(group)
        draw.shuffle(order)
        number = int(len(order) * share)
        dev += [pair for unit in order[:number] for pair in unit]
        train += [pair for unit in order[number:] for pair in unit]
    held_out = {pair.left for pair in dev} if by == "x1" else set()
    return [*train, *(pair for pair in added if pair.left not in held_out)], dev


def _random(settings: PostprocessSettings, step: str) -> random.Random:
    return random.Random(f"{settings.seed}/{step}")  # seeded with a text: the same on every platform and run
