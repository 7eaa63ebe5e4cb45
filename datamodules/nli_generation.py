"""NLI triplets as texts to write: GenSE's generator and discriminator learn from both at once (Chen et al. 2022).

A triplet gives four instances: write what is entailed, write what contradicts, say "true" of the entailed pair and
"false" of the contradicting one. So half of the instances are generation and half discrimination; they are shuffled
one by one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from contracts import InputError, Seq2SeqBatch
from datamodules.prompted_rows import DISCRIMINATION, GENERATION, KINDS, PromptedRows, Share, Templates
from datamodules.record_kinds import TRIPLETS
from datamodules.records import RecordSource
from datamodules.row_store import RowSource, RowStore, build_or_open_rows
from datamodules.text_rows import StoredRows
from datamodules.tokenizer_loading import load_tokenizer
from prompts import PromptIds, parse_prompts

NLI_TRIPLETS = TRIPLETS._replace(columns=tuple(names for names in TRIPLETS.columns if len(names) == 3))
PROMPTS_EVERY = 50  # rows: how often a tokenizer that is trained on the texts sees the prompts

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class NLIGeneration(StoredRows):
    """An example is an instance. ``source_length`` limits the tokens of each sentence before the prompt is added,
    so that prompts are never cut; ``target_length`` those of a target, end of sequence included.

    Held out for scores: ``dev_path``, where given; else the rows whose "split" is ``dev_split``, where there are any;
    else a ``dev_fraction`` of the premises, so that no premise is on both sides. ``dev_rows`` takes the first of them.
    """

    yields = Seq2SeqBatch
    kind = NLI_TRIPLETS

    prompts: dict[str, Any]
    prompt_assembly: Literal["pieces", "string"] = "pieces"
    source_length: int = 96
    target_length: int = 48
    dev_path: str | None = None
    dev_split: str = "valid"
    dev_fraction: float = 0.02
    dev_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parsed = parse_prompts(self.prompts, self.prompt_assembly, "prompts")
        self._held_out_source: tuple[RecordSource, Share | None] | None = None
        self._check()

    def source(self) -> RowSource:
        """The rows to train on."""
        _, share = self._held_out_from()
        return self._prompted(self.records, share and share._replace(inside=False))

    def setup(self, stage: str | None = None) -> None:
        if self.store is not None:
            return
        tokenizer = load_tokenizer(self.tokenizer)
        self.templates = Templates(PromptIds(self.parsed, tokenizer), self.source_length, self.target_length)
        self.dev_store = self._open_dev(quiet=True)
        super().setup(stage)

    def prepare_data(self) -> None:
        super().prepare_data()
        self._open_dev(quiet=self.quiet)

    @property
    def num_examples(self) -> int:
        """Instances that are drawn from."""
        return len(KINDS) * len(self.subset)

    def texts(self) -> Iterator[str]:
        """Of the rows that are trained on; now and then with the prompts, whose words a vocabulary must have."""
        _, share = self._held_out_from()
        words = [piece for part in self.parsed[:3] for piece in part]
        for number, record in enumerate(self.records):
            if share is None or not share.holds(record.texts[0]):
                yield from record.texts if number % PROMPTS_EVERY else chain(words, record.texts)

    def manifest(self) -> dict[str, Any]:
        return super().manifest() | {
            "instances_per_batch": self.batch_size,
            "source_length": self.source_length,
            "target_length": self.target_length,
            "held_out": {**self.dev_store.manifest, "used": self._dev_rows()},
            **self.parsed.to_json(),
        }

    def dev_batches(
        self, part: Literal["generation", "discrimination"], size: int, rank: int = 0, world: int = 1
    ) -> Iterator[Seq2SeqBatch]:
        """Held-out instances of this part in their order, ``size`` a batch; this rank's batches of them."""
        self.setup()
        kinds = np.array(GENERATION if part == "generation" else DISCRIMINATION)
        number = self._dev_rows() * len(kinds)
        for start in range(rank * size, number, size * world):
            places = np.arange(start, min(start + size, number))
            yield self.templates.batch(self.dev_store, places // len(kinds), kinds[places % len(kinds)])

    def _batch(self, pass_index: int, examples: np.ndarray) -> Seq2SeqBatch:
        assert self.store is not None
        return self.templates.batch(self.store, self.subset[examples // len(KINDS)], examples % len(KINDS))

    def _dev_rows(self) -> int:
        return min(len(self.dev_store), self.dev_rows or len(self.dev_store))

    def _open_dev(self, quiet: bool) -> RowStore:
        records, share = self._held_out_from()
        source = self._prompted(records, share)
        return build_or_open_rows(source, load_tokenizer(self.tokenizer), self.cache, labelled=False, quiet=quiet)

    def _prompted(self, records: RecordSource, share: Share | None) -> PromptedRows:
        joined = self.prompt_assembly == "string"
        prompt_ids = PromptIds(self.parsed, load_tokenizer(self.tokenizer)) if joined else None
        return PromptedRows(records, share, prompt_ids, self.source_length)

    def _held_out_from(self) -> tuple[RecordSource, Share | None]:
        """Where the held-out rows are read, and which share of its premises they are."""
        if self._held_out_source is None:
            ours = self.records
            path = self.dev_path or ours.paths
            records = RecordSource(path, self.kind, columns=self.columns, split=self.dev_split, on_error=ours.on_error)
            if self.dev_path is not None or records.names_split():
                self._held_out_source = records, None
            else:
                self._held_out_source = ours, Share(self.dev_fraction, self.seed, inside=True)
        return self._held_out_source

    def _check(self) -> None:
        if not 0 < self.dev_fraction < 1:
            raise InputError(f"data.dev_fraction={self.dev_fraction}: wanted a share of the premises in (0, 1).")
        if self.dev_rows is not None and self.dev_rows < 1:
            raise InputError(f"data.dev_rows={self.dev_rows}: wanted 1 or more triplets, or null for all.")
        if self.dev_path is None and self.dev_split == self.records.split:
            raise InputError(
                f"data.dev_split={self.dev_split} is also data.split: the model would be scored on what it learns "
                "from. Name another split, or a file of its own: data.dev_path=FILE."
            )
        for name, length in (("source_length", self.source_length), ("target_length", self.target_length)):
            if length < 2:
                raise InputError(f"data.{name}={length}: wanted 2 tokens or more; 96 and 48 were published.")
