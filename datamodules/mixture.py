"""A mixture of several datasets in one run.

An epoch has as many batches as the parts have together. The weight of a part determines how many of them it provides.
The draws from a part are those of training on that part alone, in the same order, pass after pass. Therefore no row of
a part is repeated before all of its rows have been used.
"""

import hashlib
import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pytorch_lightning as pl

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.data_configs import MixtureDataConfig
from contrastive_encoders.datamodules.overlap import merge_overlaps
from contrastive_encoders.datamodules.sampling.interleaving import quotas, shares
from contrastive_encoders.datamodules.sampling.mixed_batches import (
    AllPartsBatches,
    MixedBatches,
    OnePartBatches,
    check_alike,
    naming_part,
)
from contrastive_encoders.datamodules.sampling.stream import BatchStream, stream_for
from contrastive_encoders.datamodules.text_datamodule import StoredData

NAME = re.compile(r"[A-Za-z0-9_-]+")

log = logging.getLogger(__name__)


class PartCounts(NamedTuple):
    """For each part (dataset) of the mixture: its share of the draws, its size, and its number of draws per epoch. The
    unit is batches, or rows if batches contain rows of all parts.
    """

    shares: dict[str, float]
    there: dict[str, int]  # in a pass over the part
    drawn: dict[str, int]  # in an epoch


class Mixture(pl.LightningDataModule):
    """Data module that draws from several named data modules, its ``parts``. Each part has its own settings.

    ``weights`` determines how often each part is drawn. The default is size^(1 / ``temperature``), where the size is
    the epoch length of the part alone. With ``homogeneous``, each batch comes from one part; otherwise batches contain
    rows of every part.
    """

    settings: MixtureDataConfig
    yields: ClassVar[None] = None  # see its parts

    @property
    def homogeneous(self) -> bool:
        """True if all rows of a batch come from one part."""
        return self.settings.homogeneous

    def __init__(self, settings: MixtureDataConfig, parts: Mapping[str, StoredData]) -> None:
        super().__init__()
        self.settings, self.batch_size, self.drop_last = settings, settings.batch_size, settings.drop_last
        if not parts:
            raise InputError(
                location="data=mixture",
                expected="at least one part",
                hint="Add parts with their type and file: data.parts.NAME.data=triplets data.parts.NAME.path=FILE.",
            )
        self.parts = dict(sorted(parts.items()))  # independent of the order in which they are given
        weights = settings.weights
        self.weights = {str(name): weight for name, weight in weights.items()} or None
        for name, part in self.parts.items():
            if not NAME.fullmatch(str(name)):
                raise InputError(
                    key="data.parts", value=name, expected="part names that consist of letters, digits, - and _"
                )
            self._share_keys(name, part)
        shares(dict.fromkeys(self.parts, 1), self.weights, self.settings.temperature)  # rejects invalid values
        self._drawn: PartCounts | None = None

    def _share_keys(self, name: str, part: StoredData) -> None:
        first = next(iter(self.parts.values())).settings
        shared: dict[str, Any] = {
            "tokenizer": first.tokenizer,
            "append_eos": first.append_eos,
            "batch_size": self.batch_size,
        }
        for key, value in shared.items():
            if (own := getattr(part.settings, key)) != value:
                raise InputError(
                    key=f"data.parts.{name}.{key}",
                    value=own,
                    expected=f"{value}, because all parts share this key",
                    hint="Change batch_size, backbone, or model.append_eos for the entire run.",
                )
        for key, default in (("drop_last", True), ("num_workers", 0)):
            if getattr(part.settings, key) not in (default, getattr(self.settings, key)):
                raise InputError(
                    key=f"data.parts.{name}.{key}",
                    value=getattr(part.settings, key),
                    expected=f"no value, because all parts share data.{key}",
                    hint=f"Set data.{key} for the entire run.",
                )
        part.drop_last = self.drop_last

    def prepare_data(self) -> None:
        """Tokenize each part into the cache."""
        for name, part in self.parts.items():
            with naming_part(name):
                part.prepare_data()

    def setup(self, stage: str | None = None) -> None:
        """Open the token stores and determine how often each part is drawn."""
        if self._drawn is None:
            there = dict[str, int]()
            for name, part in self.parts.items():
                with naming_part(name):
                    part.setup()
                    there[name] = len(part.epoch_batches()) if self.settings.homogeneous else self._rows(part)
            units = sum(there.values())
            if not self.settings.homogeneous:
                check_alike({name: next(part.samples()) for name, part in self.parts.items()})
                if self.drop_last:
                    units -= units % self.batch_size
                else:
                    self.batch_size = min(self.batch_size, units)
            part_shares = shares(there, self.weights, self.settings.temperature)
            drawn = PartCounts(
                part_shares, there, dict(zip(there, quotas(list(part_shares.values()), units), strict=True))
            )
            self._check(drawn, units)
            self._drawn = drawn
            if not self.settings.quiet:
                log.info("%s", self._description(drawn))

    def _rows(self, part: StoredData) -> int:
        """Return the number of rows that one pass over a part provides, if batches contain rows of all parts."""
        if part.passes > 1:
            raise InputError(
                key="data.homogeneous", value=False, expected="true, because data.match_span_count_of is set"
            )
        rows = part.num_examples
        return rows - rows % self.batch_size if self.drop_last and rows >= self.batch_size else rows

    def _check(self, drawn: PartCounts, units: int) -> None:
        for name, share in drawn.shares.items():
            if share and units and not drawn.drawn[name]:
                raise InputError(
                    key=f"data.weights.{name}",
                    value=f"{share:.2g}",
                    expected=f"a share that is large enough for at least one of the {units} {self._unit} of an epoch",
                    hint="Increase the weight, or remove the part.",
                )
            if not self.settings.homogeneous and drawn.drawn[name] * self.batch_size > drawn.there[name] * units:
                raise InputError(
                    key="data.homogeneous",
                    value=False,
                    expected=f"batches without repeated rows, but a batch of {self.batch_size} would contain "
                    f"{share * self.batch_size:.0f} rows of part {name}, which contains only {drawn.there[name]} rows",
                    hint="Lower the weight of the part, or batch_size.",
                )

    @property
    def _unit(self) -> str:
        return "batches" if self.settings.homogeneous else "rows"

    def _description(self, drawn: PartCounts) -> str:
        each = [
            f"{name} {drawn.drawn[name]:,} ({share:.1%}, {drawn.drawn[name] / drawn.there[name]:.2f} passes)"
            for name, share in drawn.shares.items()
        ]
        batch_kind = "each of one part" if self.settings.homogeneous else "each with rows of all parts"
        return (
            f"mixture: an epoch is as long as those of its parts together, {len(self.mixed_batches()):,} batches of "
            f"{self.batch_size}, {batch_kind}; {self._unit}: {', '.join(each)}"
        )

    @property
    def drawn(self) -> PartCounts:
        """The share of each part in an epoch, its size, and its number of draws per epoch."""
        self.setup()
        assert self._drawn is not None
        return self._drawn

    @property
    def num_examples(self) -> int:
        """The total number of examples in all parts."""
        return sum(part.num_examples for part in self.parts.values())

    def mixed_batches(self, rank: int = 0, world: int = 1) -> MixedBatches:
        """Return the dataset whose items are the batches of the mixture. Each item contains this rank's examples of a
        global batch.

        Raises:
            InputError: The batch size is not divisible by the number of processes, or exceeds the size of a part.
        """
        _, there, drawn = self.drawn
        keys: dict[str, Any] = {"seed": self.settings.seed, "batch_size": self.batch_size, "drop_last": self.drop_last}
        if not self.settings.homogeneous:
            return AllPartsBatches(self.parts, drawn.values(), rank, world, rows=there.values(), **keys)
        return OnePartBatches(self.parts, drawn.values(), rank, world, **keys)

    def train_dataloader(self) -> BatchStream:
        ids = hashlib.sha256("".join(part.data_id for part in self.parts.values()).encode()).hexdigest()
        return stream_for(self.trainer, self.mixed_batches, data_id=ids, num_workers=self.settings.num_workers)

    def samples(self) -> Iterator[Any]:
        """Yield a small batch of each part."""
        for name, part in self.parts.items():
            with naming_part(name):
                yield from (batch._replace(part=name) for batch in part.samples())

    def texts(self) -> Iterator[str]:
        """Yield the training texts of all parts, alternating between the parts. A vocabulary is built from the first
        texts and should cover all parts.
        """
        rows = itertools.zip_longest(*(self._texts_of(name) for name in self.parts))
        return (text for row in rows for text in row if text is not None)

    def _texts_of(self, name: str) -> Iterator[str]:
        with naming_part(name):
            yield from self.parts[name].texts()

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the mixture: the manifest, the share, and the number of draws of each part."""
        part_shares, there, drawn = self.drawn
        return {
            "kind": "mixture",
            "homogeneous": self.settings.homogeneous,
            "batches_per_epoch": len(self.mixed_batches()),
            "parts": {
                name: {
                    **part.manifest(),
                    "share": part_shares[name],
                    f"{self._unit}_per_epoch": drawn[name],
                    f"{self._unit}_of_a_pass": there[name],
                }
                for name, part in self.parts.items()
            },
        }

    def held_out(self) -> Sequence[Any]:
        """Return the held-out tasks of all parts. For tasks with the same name, the name of the part is added."""
        found = [(name, task) for name, part in self.parts.items() for task in part.held_out()]
        names = [task.name for _, task in found]
        return [
            task if names.count(task.name) == 1 else task._replace(name=f"{task.name}-{name}") for name, task in found
        ]

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        """Count the test sentences that occur verbatim in the texts of any part."""
        return merge_overlaps([part.overlap(sentences) for part in self.parts.values()]).counts()

    def dev_batches(self, part: str, size: int, rank: int = 0, world: int = 1) -> Iterator[Any]:
        """Yield this rank's batches of the held-out texts of all parts, for generative models."""
        parts: Sequence[Any] = list(self.parts.values())
        return itertools.islice(
            itertools.chain.from_iterable(one.dev_batches(part, size) for one in parts), rank, None, world
        )
