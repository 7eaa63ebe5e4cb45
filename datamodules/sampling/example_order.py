"""Order of the examples in an epoch: a permutation with random access, whose positions are distributed over the ranks.

The example at any position follows from (seed, epoch, position), so no index is kept in memory. An epoch of 61 million
examples therefore starts immediately, and the k-th global batch contains the same examples with any number of
processes.
"""

import math
from collections.abc import Sequence

import numpy as np

from contrastive_encoders.core import InputError

ROUNDS = 8  # 4 rounds of a Feistel network are a strong permutation of large sets, but small sets need more
_SUBSET_STREAM = 0x5EB5  # separates the draw of a subset from the order of every epoch


class Permutation:
    """Pseudo-random permutation of 0..n-1 with random access and constant memory.

    It is a Feistel network over Z_a x Z_a with a = ceil(sqrt(n)), with addition instead of XOR, so that its domain a*a
    exceeds n by at most 2*sqrt(n). Values outside 0..n-1 are mapped again until they are inside (cycle walking, Black
    and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """

    def __init__(self, n: int, seed: int, epoch: int, *, stream: int = 0) -> None:
        if not 1 <= n < 2**62:
            raise ValueError(f"a permutation needs 1 <= n < 2**62, got {n}")
        self.n = n
        root = math.isqrt(n - 1) + 1
        self._side = np.uint64(root)
        self._keys = np.random.SeedSequence((seed, epoch, stream)).generate_state(ROUNDS, np.uint64)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Return the examples, (k,) int64, at k positions in 0..n-1."""
        values = np.asarray(places).astype(np.uint64)
        if values.size and int(values.max()) >= self.n:
            raise IndexError(f"positions must be in 0..{self.n - 1}")
        values = self._encrypt(values)
        while (outside := values >= self.n).any():
            values[outside] = self._encrypt(values[outside])
        return values.astype(np.int64)

    def _encrypt(self, values: np.ndarray) -> np.ndarray:
        left, right = np.divmod(values, self._side)
        for key in self._keys:
            total = left + _scale(_mix(right + key), self._side)
            left, right = right, np.where(total >= self._side, total - self._side, total)
        return left * self._side + right


class NestedSubset:
    """Random subset of ``round(n * fraction)`` examples. For the same seed, the subset of 10 % is contained in that of
    20 %.
    """

    def __init__(self, n: int, fraction: float, seed: int) -> None:
        self.size = max(1, round(n * fraction)) if n else 0
        self._permutation = Permutation(n, seed, 0, stream=_SUBSET_STREAM) if 0 < self.size < n else None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Return the examples, (k,) int64 in 0..n-1, at k positions in 0..size-1."""
        return np.asarray(places, dtype=np.int64) if self._permutation is None else self._permutation[places]


class ExampleOrder:
    """Distributed batch sampler. In each pass over the data, the examples are permuted and split into global batches.

    Rank r takes every world-th example of a batch, starting at the r-th. Examples at the end of a pass that do not fill
    a batch are dropped and occur in other passes. Without ``drop_last`` they form a smaller batch.

    Args:
        groups: Groups that contain each example at most once. They are kept together, and their order is new in every
            pass. Examples outside the groups are not used.
    """

    def __init__(
        self,
        examples: int,
        batch_size: int,
        *,
        seed: int,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = True,
        groups: Sequence[np.ndarray] = (),
    ) -> None:
        examples = sum(map(len, groups)) or examples
        if not drop_last and examples % world:
            raise uneven_batch(examples % batch_size or batch_size, world)
        check_batch_size(examples, batch_size, world)
        self.num_full_batches, rest = divmod(examples, batch_size)
        self.has_rest = rest > 0 and not drop_last
        self.examples, self.batch_size, self.seed, self.rank, self.world = examples, batch_size, seed, rank, world
        self.drop_last, self.groups = drop_last, groups
        self._permutation: tuple[int, Permutation | np.ndarray] | None = None

    def __len__(self) -> int:
        """Return the number of batches in one pass over the data, which is the same on every rank."""
        return self.num_full_batches + self.has_rest

    def batch(self, epoch: int, k: int) -> np.ndarray:
        """Return this rank's examples of global batch ``k``, (batch_size / world,) int64."""
        if not 0 <= k < len(self):
            raise IndexError(f"batch index {k} is out of range for {len(self)} batches")
        end = min((k + 1) * self.batch_size, self.examples)
        return self.at(epoch, np.arange(k * self.batch_size + self.rank, end, self.world))

    def at(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Return the examples, (k,) int64, at the given positions, (k,), in the permutation of an epoch."""
        if self._permutation is None or self._permutation[0] != epoch:
            self._permutation = epoch, self._order_of(epoch)
        return self._permutation[1][places]

    def _order_of(self, epoch: int) -> Permutation | np.ndarray:
        if not self.groups:
            return Permutation(self.examples, self.seed, epoch)
        dealt = Permutation(len(self.groups), self.seed, epoch)[np.arange(len(self.groups))]
        return np.concatenate([self.groups[number] for number in dealt])


def uneven_batch(rest: int, world: int) -> InputError:
    """Return the error for a last batch that cannot be divided evenly among the processes."""
    return InputError(
        key="data.drop_last",
        value=False,
        expected=f"true, since the {rest} rows of the last batch do not split evenly over {world} processes",
    )


def check_divisible(batch_size: int, world: int) -> None:
    """Check that the batch size is a multiple of the number of processes.

    Raises:
        InputError: it is not a multiple.
    """
    if batch_size % world:
        below, above = batch_size // world * world, (batch_size // world + 1) * world
        raise InputError(
            key="batch_size",
            value=batch_size,
            expected=f"a multiple of {world}, the number of processes, because batch_size counts the examples of all "
            "processes",
            hint=f"Use {f'{below} or ' if below else ''}{above}.",
        )


def check_batch_size(examples: int, batch_size: int, world: int) -> None:
    """Raise `InputError` if the data has no full batch, or the batch size is not a multiple of ``world``."""
    check_divisible(batch_size, world)
    if batch_size > examples:
        raise InputError(
            key="batch_size",
            value=batch_size,
            expected=f"at most {examples}, the number of examples in the data",
            hint=f"Set batch_size={max(world, examples // world * world)} or less, or add data.",
        )


def _mix(values: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers, so that every input bit affects every output bit.

    This is the finalizer of splitmix64 (Steele, Lea and Flood 2014).
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _scale(values: np.ndarray, side: np.uint64) -> np.ndarray:
    """Scale 64-bit hashes to integers in 0..side-1, by multiplying their upper half; ``side`` must be less than
    2**31.
    """
    return ((values >> np.uint64(32)) * side) >> np.uint64(32)
