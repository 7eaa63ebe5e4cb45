"""Configuration keys of embedding. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.core.runtime.cluster_config import ClusterConfig
from contrastive_encoders.core.runtime.devices import check_devices
from contrastive_encoders.encoders.loading.encoder_options import ComputingOptions, NormalizationOptions
from contrastive_encoders.io.text_files import ENCODING_MEANING

ENDINGS = (".npy", ".parquet")  # of an output file


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(ClusterConfig, NormalizationOptions, ComputingOptions):
    """Configuration keys of ``contrastive-encoders embed`` and of `embed`."""

    encoder: str | None = config_field(
        None,
        "encoder to use: the directory of a run, of a sentence-transformers model, or of a transformers model; or "
        "a checkpoint, a hub id, a GGUF file, or a file of word vectors",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "texts to embed: a file, a directory, or a list [FILE,FILE]. A .txt file contains one text per line; .jsonl, "
        ".json, .csv, .tsv, and .parquet files contain a text in each row, in the column set by `column`; all "
        "may be compressed (.gz)",
    )
    column: str | None = config_field(None, "name of the column or JSON key that contains the texts; null: text")
    encoding: str | None = config_field(None, ENCODING_MEANING)
    strip_html: bool = config_field(
        False,
        "whether to remove HTML tags from the texts and decode HTML entities, like data.strip_html in training",
    )
    output: str | None = config_field(
        None,
        "output file: FILE.npy for an array (texts, width) in the order of the texts, or FILE.parquet for the columns "
        "text and embedding",
    )

    role: Literal["query", "document"] | None = config_field(
        None,
        "role of the texts, which selects the encoder's prompt for queries or documents; null: the default prompt",
    )
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"] = config_field(
        "float32",
        "data type of the output; int8 and uint8 store one byte per dimension; binary and ubinary store one bit "
        "per dimension, eight per byte; faiss reads uint8 and ubinary",
    )
    quantization_ranges: str | None = config_field(
        None,
        "for dtype=int8 and uint8, a file FILE.ranges.npy that was saved with other embeddings and contains the range "
        "of each dimension; to embed queries, use the file of the corpus; null: the ranges are computed from the new "
        "embeddings and saved next to the output",
    )

    chunk_rows: int = config_field(
        8192,
        "number of texts that are sorted by length and embedded together; if the command is interrupted, each "
        "process loses at most this many embeddings",
        ge=1,
    )
    overwrite: bool = config_field(False, "whether to delete an existing output, complete or incomplete")
    quiet: bool = config_field(False, "whether to log only warnings and errors")
    devices: int = config_field(1, "number of processes, each on a separate GPU if there are GPUs", ge=1)

    def check_keys(self) -> None:
        """Check keys that depend on each other, before torch is imported.

        Raises:
            InputError: two keys exclude each other, or the output has another ending.
        """
        if self.role is not None and self.prompt is not None:
            raise InputError(
                key="role", value=self.role, expected="null if prompt is set", hint="Remove one of the two keys."
            )
        if self.cluster is None:
            check_devices(self.devices, self.device)
        if self.quantization_ranges is not None and not self.dtype.endswith("int8"):
            raise InputError(
                key="quantization_ranges",
                value=self.quantization_ranges,
                expected=f"null with dtype={self.dtype}, because only int8 and uint8 have ranges",
            )
        if self.output is not None and not self.output.endswith(ENDINGS):
            raise InputError(key="output", value=self.output, expected="a name that ends in .npy or .parquet")
