"""Configuration keys of hard negative mining. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.core.config_schema import config_field, require
from contrastive_encoders.core.runtime.devices import check_devices
from contrastive_encoders.datamodules.sources.row_reading import RowReadingConfig
from contrastive_encoders.io.file_discovery import check_output_apart
from contrastive_encoders.synthesis.mining.mined_file import record_path


@dataclass(frozen=True, kw_only=True)
class MineConfig(RowReadingConfig):
    """Configuration keys of ``contrastive-encoders mine-negatives``."""

    encoder: str | None = config_field(
        None,
        "encoder that finds the negatives: the directory of a run, of a sentence-transformers model, or of a "
        "transformers model; or a Hub id",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "file, list of files, or directory of text pairs, with the columns (anchor, positive), (question, "
        "answer), (premise, entailment), or (sent0, sent1)",
    )
    columns: Sequence[str] | None = config_field(
        None,
        "names of the two columns that contain the anchors and the positives, [ANCHOR,POSITIVE]; null: the first of "
        "these pairs that the input contains: (anchor, positive), (question, answer), (premise, entailment), (sent0, "
        "sent1)",
    )
    split: str = config_field("train", 'split to use, if the rows have a column "split"')
    corpus: str | Sequence[str] | None = config_field(
        None,
        "file, list of files, or directory of the texts that are searched for negatives, in addition to all "
        "positives; null: only the positives are searched",
    )
    column: str | None = config_field(
        None, "name of the column (or JSON key) that contains the texts of `corpus`; null: the column `text`"
    )
    output: str | None = config_field(
        None,
        "output file, FILE.jsonl, with the fields anchor, positive, negative_1, negative_2, ..., and scores in "
        "each row; train on it with data=triplets",
    )

    # Selection among the nearest texts, with the parameter names of sentence-transformers' mine_hard_negatives
    num_negatives: int = config_field(
        3, "number of negatives per pair; pairs for which fewer negatives are found are skipped and counted", ge=1
    )
    range_min: int = config_field(0, "number of nearest texts that are skipped before negatives are chosen", ge=0)
    range_max: int | None = config_field(
        None,
        "number of nearest texts among which negatives are searched, including the `range_min` skipped texts; null: "
        "enough for `num_negatives` candidates, or for ten times as many if a margin, `max_score`, or `reranker` is "
        "set",
    )
    absolute_margin: float | None = config_field(
        None,
        "minimum difference between the score of the anchor's lowest-scored positive and the score of a negative, "
        "e.g. 0.1; null: no margin",
        ge=0,
    )
    relative_margin: float | None = config_field(
        None, "like `absolute_margin`, but as a fraction of the positive's score, e.g. 0.05; null: no margin", ge=0
    )
    max_score: float | None = config_field(None, "maximum score of a negative, e.g. 0.8; null: no maximum")
    min_score: float | None = config_field(None, "minimum score of a negative, e.g. 0.2; null: no minimum")
    reranker: str | None = config_field(
        None,
        "cross-encoder whose scores replace cosine similarities in margins, score limits, and the output file: the "
        "directory of a run with model=reranker, the directory of a model, or a Hub id; null: cosine similarities "
        "are used",
    )
    sampling_strategy: Literal["top", "random"] = config_field(
        "top", "how negatives are chosen from the candidates; top: the nearest texts; random: a random sample"
    )
    seed: int = config_field(1, "random seed for sampling_strategy=random")
    use_faiss: bool = config_field(
        False, "whether to search with faiss, which is faster for large corpora (optional dependency faiss)"
    )

    query_prompt: str | None = config_field(
        None, "prompt that is prepended to each anchor; null: the encoder's prompt for queries"
    )
    corpus_prompt: str | None = config_field(
        None, "prompt that is prepended to each text of the corpus; null: the encoder's prompt for documents"
    )
    max_length: int | None = config_field(
        None, "maximum length of texts in tokens; null: the encoder's maximum length", ge=1
    )
    precision: Literal["fp32", "bf16"] = config_field("fp32", "floating-point precision in which the encoder computes")
    batch_size: int = config_field(32, "number of texts (for the reranker: pairs) per forward pass", ge=1)
    cache_folder: str | None = config_field(
        None,
        "directory in which embeddings and reranker scores are cached for later commands, e.g. for mining with "
        "other margins or resuming after an interruption; null: no cache",
    )
    device: str = config_field(
        "auto", "device of the models: auto (a GPU if available), cpu, cuda, or an indexed device such as cuda:1"
    )
    devices: int = config_field(
        1, "number of processes that embed and score texts, each on a separate GPU if there are GPUs", ge=1
    )
    overwrite: bool = config_field(False, "whether to replace an existing output")
    quiet: bool = config_field(False, "whether to show warnings and errors only")

    def check_keys(self) -> None:
        """Check required keys, and keys that depend on each other, before torch is imported.

        Raises:
            InputError: a key is missing, two keys exclude each other, or the settings exclude every text.
        """
        require(self, "encoder", "an encoder")
        require(self, "input", "a file of pairs")
        require(self, "output", "FILE.jsonl")
        if self.file.suffix != ".jsonl":
            raise InputError(key="output", value=self.output, expected="a file name that ends in .jsonl")
        self._check_rules()
        check_devices(self.devices, self.device)
        if self.column is not None and self.corpus is None:
            raise InputError(
                key="column",
                value=self.column,
                expected="null if corpus is null",
                hint="To name the columns of input, use the key columns.",
            )
        if self.use_faiss and find_spec("faiss") is None:
            raise missing_package("faiss", "faiss", key="use_faiss", value=True)
        for key in ("input", "corpus"):
            check_output_apart(getattr(self, key) or [], self.file, record_path(self.file), key=key)

    def _check_rules(self) -> None:
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise InputError(
                key="range_max",
                value=self.range_max,
                expected=f"at least {self.range_min + self.num_negatives}, the sum of range_min={self.range_min} and "
                f"num_negatives={self.num_negatives}",
            )
        low, high = self.min_score, self.max_score
        if low is not None and high is not None and low > high:
            raise InputError(key="min_score", value=low, expected=f"at most max_score={high}")

    @property
    def file(self) -> Path:
        """Path of the output file."""
        return Path(str(self.output))
