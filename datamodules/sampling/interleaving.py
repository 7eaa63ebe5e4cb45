"""Order in which an epoch draws from the parts (datasets) of a mixture: in proportion to their weights, and evenly
spread.

No state is kept: the part at a position follows from (seed, epoch, position).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from contrastive_encoders.core import InputError

BLOCK = 32  # positions within which the parts are shuffled: each block contains its share of every part
_STREAM = 0x313  # separates these draws from those of other users of a seed


def shares(sizes: Mapping[str, int], weights: Mapping[str, float] | None, temperature: float) -> dict[str, float]:
    """Return the fraction of an epoch's draws that come from each part. It is proportional to the weight of the part
    or, if no weights are given, to size^(1 / temperature).

    Raises:
        InputError: A weight is not a valid number, a weight names an unknown part, or a part has no
            weight.
    """
    if weights is None:
        logs = {name: math.log(size) / temperature for name, size in sizes.items()}
        weights = {name: math.exp(one - max(logs.values())) for name, one in logs.items()}
    elif temperature != 1:
        raise InputError(key="data.temperature", value=temperature, expected="1, because data.weights are set")
    parts = ", ".join(sizes)
    for name in [*weights, *sizes]:
        if name not in sizes:
            raise InputError(
                key=f"data.weights.{name}", value=weights[name], expected=f"a weight for one of the parts {parts}"
            )
        if name not in weights:
            raise InputError(
                key=f"data.weights.{name}",
                expected=f"a weight for each of the parts {parts}",
                hint=f"Set data.weights.{name}=1.",
            )
        weight = weights[name]
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise InputError(
                key=f"data.weights.{name}",
                value=weight,
                expected="a number of at least 0, where a part with weight 2 is drawn twice as often as one with "
                "weight 1",
            )
    total = math.fsum(weights.values())
    if not 0 < total < math.inf:
        raise InputError(key="data.weights", value=weights, expected="at least one weight above 0")
    return {name: weights[name] / total for name in sizes}


def quotas(shares: Sequence[float], total: int) -> list[int]:
    """Split ``total`` into integers that are proportional to the shares and sum to ``total`` (largest remainder
    method).
    """
    exact = [share * total for share in shares]
    found = [math.floor(one + 1e-9) for one in exact]  # floating-point error may turn 3 into 2.9999999
    by_remainder = sorted(range(len(exact)), key=lambda part: found[part] - exact[part])
    for part in by_remainder[: total - sum(found)]:
        found[part] += 1
    return found


class Interleaving:
    """Order of the draws in an epoch, in which each part occurs as often as its entry in ``quotas`` says."""

    def __init__(self, quotas: Sequence[int], seed: int) -> None:
        self.sums = np.cumsum(quotas).tolist()
        self.seed = seed
        self._block: tuple[tuple[int, int], np.ndarray] = ((-1, -1), np.empty(0, np.int64))

    def __len__(self) -> int:
        """Return the number of draws in an epoch."""
        return int(self.sums[-1])

    def before(self, place: int) -> list[int]:
        """Return, for each part, the number of positions before ``place`` that belong to it in the unshuffled order.

        Among the first two, three, ... parts together, the share of the last one is rounded up or down, so that each
        position increments exactly one of the numbers.
        """
        found, remaining = list[int](), place
        for total_sum, sum_without_last in zip(self.sums[:0:-1], self.sums[-2::-1], strict=True):
            earlier = remaining * sum_without_last // total_sum if total_sum else 0
            found.append(remaining - earlier)
            remaining = earlier
        return [remaining, *found[::-1]]

    def at(self, epoch: int, place: int) -> tuple[int, int]:
        """Return the part that is drawn at position ``place`` of an epoch, and the number of earlier draws of the same
        part.
        """
        block = place // BLOCK
        first, last = self.before(block * BLOCK), self.before(min((block + 1) * BLOCK, len(self)))
        if self._block[0] != (epoch, block):
            parts = np.repeat(np.arange(len(first)), np.subtract(last, first))
            np.random.default_rng((self.seed, epoch, block, _STREAM)).shuffle(parts)
            self._block = (epoch, block), parts
        parts = self._block[1]
        part = int(parts[place % BLOCK])
        return part, first[part] + int((parts[: place % BLOCK] == part).sum())
