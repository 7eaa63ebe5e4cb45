"""Post-processing of DINO's generated pairs before training (Schick and Schuetze 2021, and their published code).

The steps are an ordered list of named functions, rows -> rows, that do not modify their input. The random numbers of a
step depend on the seed and the name of the step only. Removing one step therefore does not change the draws of the
others.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple


class Pair(NamedTuple):
    left: str  # x1
    right: str  # x2
    score: float  # 0..1
    added: bool = False  # added by a step instead of generated


class StepReport(NamedTuple):
    """Effect of a post-processing step on the pairs, such as the number of dropped pairs."""

    step: str
    dropped: int
    added: int
    left: int  # pairs after the step


class PostprocessSettings(NamedTuple):
    """Settings of the post-processing.

    Args:
        ignore_case: Strip and case-fold x1 and x2 before comparing them.
        max_pairs_per_label: Maximum number of pairs per x1 and label, 0 for no limit.
        random_pair_source: "published" draws random x2 from all entries, as in the published code. "paper" draws them
            from the entries of other x1.
    """

    steps: tuple[str, ...]
    ignore_case: bool
    smoothing: float
    max_pairs_per_label: int
    random_pairs: int
    random_pair_source: Literal["paper", "published"]
    seed: int


def postprocess(pairs: Sequence[Pair], settings: PostprocessSettings) -> tuple[list[Pair], list[StepReport]]:
    """Run all post-processing steps in order. Return the resulting pairs and a report for each step."""
    found, reports = list(pairs), []
    for name in settings.steps:
        before = Counter(found)
        found = _STEPS[name](found, settings)
        after = Counter(found)
        if name == "smooth":  # changes labels only, the pairs stay the same
            dropped = added = 0
        else:
            dropped, added = (before - after).total(), (after - before).total()
        reports.append(StepReport(name, dropped, added, len(found)))
    return found, reports


def shuffle(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Shuffle the pairs. Their order determines which pairs the cap keeps."""
    order = list(pairs)
    _random(settings, "shuffle").shuffle(order)
    return order


def deduplicate(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Keep only the first of all pairs with the same (x1, x2, label). The published code used a set, whose order
    changed from run to run.
    """
    return list(dict.fromkeys(pairs))


def drop_identical(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Drop pairs whose two texts are identical."""
    form: Callable[[str], str] = (lambda text: text.strip().casefold()) if settings.ignore_case else str
    return [pair for pair in pairs if form(pair.left) != form(pair.right)]


def smooth(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Smooth the labels: label * (1 - s) + s / 2. With s = 0.2, the labels 0, 0.5, 1 become 0.1, 0.5, 0.9."""
    keep = 1 - settings.smoothing
    return [pair._replace(score=pair.score * keep + settings.smoothing / 2) for pair in pairs]


def cap(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Keep the first ``settings.max_pairs_per_label`` pairs of each combination of x1 and label."""
    if not settings.max_pairs_per_label:
        return list(pairs)
    seen, kept = Counter[tuple[str, float]](), []
    for pair in pairs:
        seen[pair.left, pair.score] += 1
        if seen[pair.left, pair.score] <= settings.max_pairs_per_label:
            kept.append(pair)
    return kept


def augment(pairs: list[Pair], settings: PostprocessSettings) -> list[Pair]:
    """Add pairs of each x1 with the x2 of other pairs, which are drawn at random. Their label is 0, which is not
    smoothed.

    No pair is added for an x1 if there are no other pairs.
    """
    draw = _random(settings, "augment")
    entries: dict[str, list[Pair]] = {}
    for pair in pairs:
        entries.setdefault(pair.left, []).append(pair)
    by_left = [pair for own in entries.values() for pair in own]
    added, start = [], 0
    for left, own in entries.items():
        excluded = len(own) if settings.random_pair_source == "paper" else 0
        for _ in range(settings.random_pairs if len(by_left) > excluded else 0):
            place = draw.randrange(len(by_left) - excluded)
            place += excluded if place >= start else 0  # skip x1's own entries, which are adjacent
            added.append(Pair(left, by_left[place].right, 0.0, added=True))
        start += len(own)
    return [*pairs, *added]


_STEPS: dict[str, Callable[[list[Pair], PostprocessSettings], list[Pair]]] = {
    step.__name__: step for step in (shuffle, deduplicate, drop_identical, smooth, cap, augment)
}


def split_dev(
    pairs: Sequence[Pair], share: float, seed: int, by: Literal["pair", "x1"] = "pair"
) -> tuple[list[Pair], list[Pair]]:
    """Split the pairs into a training and a development set, (train, dev).

    With ``by="pair"``, the pairs of each label value are shuffled and the first int(n * share) are dev, as published.
    If no label value has enough pairs for that, all pairs form one group. With ``by="x1"``, the x1 are shuffled and the
    first int(n * share) are dev with all their pairs, so that no x1 is in both sets. Unlike in the published code,
    added pairs are never dev.
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
    return random.Random(f"{settings.seed}/{step}")  # seeded with a string: the same on every platform and in every run
