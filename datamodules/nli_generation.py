"""NLI triplets as source and target texts, for GenSE's generator and discriminator (Chen et al. 2022).

A triplet gives four instances: generate the entailed sentence, generate the contradicting one, answer "true" for the
entailed pair, and answer "false" for the contradicting pair. Half of the instances are therefore generation and half
discrimination. Instances are shuffled individually.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from contrastive_encoders.core import InputError, Ragged, Seq2SeqBatch
from contrastive_encoders.core.gense_prompts import DIRECTIONS, PromptIds, parse_prompts
from contrastive_encoders.datamodules.data_configs import DataConfig, GenerationDataConfig
from contrastive_encoders.datamodules.row_datamodules import StoredRows
from contrastive_encoders.datamodules.sources.records import Record, RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import TRIPLETS
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore
from contrastive_encoders.datamodules.store.tokenizer import load_config, load_tokenizer
from contrastive_encoders.datamodules.text_datamodule import Truncation

KINDS = ("entailment", "contradiction", "true", "false")  # kinds of the instances of a row
SENTENCES = (0, 1, 2)  # columns of a row
GENERATION, DISCRIMINATION = (0, 1), (2, 3)
NLI_TRIPLETS = TRIPLETS._replace(columns=tuple(names for names in TRIPLETS.columns if len(names) == 3))
PROMPTS_EVERY = 50  # rows after which a tokenizer that is trained on the texts sees the prompts
RECORDS_PER_BATCH = 1_000
Part = np.ndarray | int  # fixed ids, or the column whose ids are inserted


class PremiseShare(NamedTuple):
    """Random subset of premises, chosen by a hash of each premise, so that it is the same in every file and process."""

    fraction: float
    seed: int
    inside: bool  # False: the remaining premises

    def holds(self, premise: str) -> bool:
        digest = hashlib.blake2b(premise.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        return (int.from_bytes(digest, "big") < self.fraction * 2**64) == self.inside


class PromptedRows:
    """Source of the rows to store: the three texts of each triplet, with prompts if ``prompts`` is given."""

    def __init__(
        self, records: RecordSource, share: PremiseShare | None, prompts: PromptIds | None, source_length: int
    ) -> None:
        self.records, self.share, self.prompts, self.source_length = records, share, prompts, source_length
        self.joined = prompts is not None and prompts.prompts.assembly == "string"
        self.width = 6 if self.joined else 3
        self.kept = 0

    def __iter__(self) -> Iterator[Record]:
        self.kept = 0
        shared = self._shared()
        while records := list(islice(shared, RECORDS_PER_BATCH)):
            self.kept += len(records)
            yield from records if self.prompts is None else self._prompted_records(records, self.prompts)

    def fingerprint(self) -> dict[str, Any]:
        """Return values that identify the content of the source, without reading it. Contains JSON types only."""
        found: dict[str, Any] = {"records": self.records.fingerprint(), "share": self.share and list(self.share)}
        if self.joined and self.prompts:
            found["joined"] = [self.prompts.prompts.to_json(), self.source_length]
        if self.prompts and self.prompts.blank:
            found["blank"] = self.prompts.blank
        return found

    def manifest(self) -> dict[str, Any]:
        return self.records.manifest() | {"rows": self.kept, "share_of_premises": self.share and self.share._asdict()}

    def _shared(self) -> Iterator[Record]:
        return (one for one in self.records if self.share is None or self.share.holds(one.texts[0]))

    def _prompted_records(self, records: Sequence[Record], prompts: PromptIds) -> Iterator[Record]:
        columns = prompts.columns([record.texts for record in records], self.source_length)
        for record, *written in zip(records, *columns, strict=True):
            yield record._replace(texts=tuple(written))


class Templates:
    """Builder of batches of training instances, from stored token ids and prompt templates.

    ``batch(store, rows, kinds)`` returns the ids that `PromptIds` gives, built from the stored ids.
    """

    def __init__(self, prompts: PromptIds, source_length: int, target_length: int) -> None:
        self.begin, self.close, self.end = (
            np.array(ids, np.int64) for ids in (prompts.begin, prompts.close, prompts.end)
        )
        self.source_length, self.room = source_length, target_length - len(self.end)
        parts = {name: [np.array(ids, np.int64) for ids in pieces] for name, pieces in prompts.parts.items()}
        prefix, between, suffix, yes, no = parts["discrimination"]
        self.targets: list[Part] = [1, 2, yes, no]
        self.sources: list[list[Part]]
        if prompts.prompts.assembly == "string":
            self.sources = [[0], [1], [2], [3]]
            self.targets[:2] = [4, 5]
            self.source_length = np.iinfo(np.int64).max  # the sentences were truncated before they were joined
        else:
            generation: list[list[Part]] = [[parts[name][0], 0, parts[name][1]] for name in DIRECTIONS]
            self.sources = [*generation, [prefix, 0, between, 1, suffix], [prefix, 0, between, 2, suffix]]

    def batch(self, store: TokenStore, rows: np.ndarray, kinds: np.ndarray) -> Seq2SeqBatch:
        """Return a batch of N instances. Instance i is of kind ``kinds[i]``, and built from the triplet in row
        ``rows[i]`` of the store.
        """
        sources, targets = list[np.ndarray](), list[np.ndarray]()
        for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
            parts = [self._ids(store, row, part, self.source_length) for part in self.sources[kind]]
            sources.append(np.concatenate([self.begin, *parts, self.close]))
            targets.append(np.concatenate([self._ids(store, row, self.targets[kind], self.room), self.end]))
        return Seq2SeqBatch(_ragged(sources), _ragged(targets), kinds, rows)

    def _ids(self, store: TokenStore, row: int, part: Part, most: int) -> np.ndarray:
        return store.text(row, part)[:most] if isinstance(part, int) else part


def _ragged(sequences: list[np.ndarray]) -> Ragged:
    ids = np.concatenate(sequences).astype(np.int64)
    return Ragged(torch.from_numpy(ids), np.fromiter(map(len, sequences), np.int64, len(sequences)))


class NLIGeneration(StoredRows):
    """Data module for GenSE's generator. Its examples are instances, four for each triplet.

    Prompts are never truncated: the sentence length is limited before they are added.

    The held-out rows are those of ``dev_path`` if it is given, else the rows with "split" equal to ``dev_split`` if
    there are any, else those of a ``dev_fraction`` of the premises. No premise is on both sides in the last case.
    """

    settings: GenerationDataConfig
    yields = Seq2SeqBatch
    kind = NLI_TRIPLETS

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.parsed = parse_prompts(self.settings.prompts, self.settings.prompt_assembly, "prompts")
        self._check()

    def source(self) -> RowSource:
        """Return the source of the training rows."""
        _, share = self._held_out_source
        return self._prompted(self.records, share and share._replace(inside=False))

    def held_out_rows(self) -> RowSource:
        return self._prompted(*self._held_out_source)

    def prepare_data(self) -> None:
        super().prepare_data()
        self.open_store(self.held_out_rows(), quiet=self.settings.quiet)

    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        self.templates = Templates(self.prompt_ids(tokenizer), self.settings.source_length, self.settings.target_length)
        self.dev_store = self.open_store(self.held_out_rows(), quiet=True)
        return len(store)

    @property
    def num_examples(self) -> int:
        return len(KINDS) * len(self.subset)

    def batch(self, pass_index: int, examples: np.ndarray) -> Seq2SeqBatch:
        return self.templates.batch(self.store, self.subset[examples // len(KINDS)], examples % len(KINDS))

    def cuts(self) -> list[Truncation]:
        """Return the lengths at which sentences and target texts are truncated.

        This is unknown for sentences that were joined with their prompts before storing.
        """
        before = self.store.width - len(SENTENCES)  # columns with complete prompts
        read = [] if before else [("sentences", self.settings.source_length, self.settings.source_length, SENTENCES)]
        written = "texts to write", self.settings.target_length, self.templates.room, [before + 1, before + 2]
        return [
            Truncation(of, longest, self.lengths.truncated_fraction(room, columns))
            for of, longest, room, columns in [*read, written]
        ]

    def texts(self) -> Iterator[str]:
        """Yield the texts of the training rows and, at regular intervals, the prompts.

        A vocabulary must contain the words of the prompts.
        """
        _, share = self._held_out_source
        words = [piece for part in self.parsed[:3] for piece in part]
        for number, record in enumerate(self.records):
            if share is None or not share.holds(record.texts[0]):
                yield from record.texts if number % PROMPTS_EVERY else chain(words, record.texts)

    def manifest(self) -> dict[str, Any]:
        return super().manifest() | {
            "instances_per_batch": self.batch_size,
            "source_length": self.settings.source_length,
            "target_length": self.settings.target_length,
            "held_out": {**self.dev_store.account, "used": self._dev_rows()},
            **self.parsed.to_json(),
        }

    def dev_batches(
        self, part: Literal["generation", "discrimination"], size: int, rank: int = 0, world: int = 1
    ) -> Iterator[Seq2SeqBatch]:
        """Yield this rank's batches of ``size`` held-out instances each, in order. ``part`` selects generation or
        discrimination.
        """
        self.setup()
        kinds = np.array(GENERATION if part == "generation" else DISCRIMINATION)
        number = self._dev_rows() * len(kinds)
        for start in range(rank * size, number, size * world):
            places = np.arange(start, min(start + size, number))
            yield self.templates.batch(self.dev_store, places // len(kinds), kinds[places % len(kinds)])

    def _dev_rows(self) -> int:
        return min(len(self.dev_store), self.settings.dev_rows or len(self.dev_store))

    def prompt_ids(self, tokenizer: Any) -> PromptIds:
        try:
            return PromptIds(self.parsed, tokenizer, alone=self.alone)
        except InputError as error:
            raise InputError(
                f"backbone={self.settings.tokenizer}: {error}", key="backbone", value=self.settings.tokenizer
            ) from None

    @cached_property
    def alone(self) -> bool:
        """True if the model is a causal language model (decoder only), False if it is an encoder-decoder."""
        return not load_config(self.settings.tokenizer).is_encoder_decoder

    def _prompted(self, records: RecordSource, share: PremiseShare | None) -> PromptedRows:
        is_unprompted = self.settings.prompt_assembly == "pieces" and not self.alone
        prompt_ids = None if is_unprompted else self.prompt_ids(load_tokenizer(self.settings.tokenizer))
        return PromptedRows(records, share, prompt_ids, self.settings.source_length)

    @cached_property
    def _held_out_source(self) -> tuple[RecordSource, PremiseShare | None]:
        """Return the source of the held-out rows, and the subset of its premises that is held out (None: all rows of
        the source).
        """
        path, split = self.settings.dev_path, self.settings.dev_split
        if path is not None or self.records.has_split(split):
            return self.records.of_split(split, self.kind, path, "data.dev_path"), None
        return self.records, PremiseShare(self.settings.dev_fraction, self.settings.seed, inside=True)

    def _check(self) -> None:
        if self.settings.dev_path is None and self.settings.dev_split == self.records.split:
            raise InputError(
                key="data.dev_split",
                value=self.settings.dev_split,
                expected="a split other than data.split, the split that the model is trained on",
                hint="Choose another split, or set data.dev_path=FILE.",
            )
