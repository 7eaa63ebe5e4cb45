"""Configuration keys of embedding. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.composition.config_store import register
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.io.text_files import ENCODING_MEANING
from contrastive_encoders.runtime.devices import check_devices

ENDINGS = (".npy", ".parquet")  # of an output file


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """Configuration keys of ``contrastive-encoders embed`` and of `embed`."""

    encoder: str | None = config_field(
        None,
        "directory of a run or of a sentence-transformers or transformers model, checkpoint, hub id, GGUF "
        "file, or file of word vectors",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "FILE.txt (a text per line), .jsonl, .json, .csv, .tsv, or .parquet (a column), each also as .gz; a "
        "directory; or several, [FILE,FILE]",
    )
    column: str | None = config_field(None, "field or column with the texts; null: text")
    encoding: str | None = config_field(None, ENCODING_MEANING)
    output: str | None = config_field(
        None, "FILE.npy: an array (texts, width) in the order of the texts; or FILE.parquet: columns text and embedding"
    )

    pooling: str | None = config_field(None, "null: that of the encoder")
    prompt: str | None = config_field(None, "text in front of every input; null: the encoder's prompt")
    role: Literal["query", "document"] | None = config_field(
        None, "use the encoder's prompt for queries or documents; null: its default prompt"
    )
    max_length: int | None = config_field(None, "maximum length in tokens; null: that of the encoder")
    truncate: int | None = config_field(
        None,
        "keep only the first dimensions of each embedding, e.g. 256, for encoders trained with model.matryoshka",
    )
    normalize: bool | None = config_field(
        None, "true: scale embeddings to length 1, after truncate; false: don't; null: as the encoder does"
    )
    precision: Literal["fp32", "bf16"] = config_field("fp32", "precision of the computation")
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"] = config_field(
        "float32",
        "type of the output; binary, ubinary: one bit per dimension, eight per byte; faiss reads uint8 and ubinary",
    )
    quantization_ranges: str | None = config_field(
        None,
        "int8 and uint8: the ranges of other embeddings, FILE.ranges.npy, such as those of the corpus for its "
        "queries; null: of these, saved next to the output",
    )

    device: str = config_field("auto", "auto, cpu, cuda, cuda:1")
    devices: int = config_field(1, "number of processes, with a GPU each if there are any", ge=1)
    cluster: str | None = config_field(
        None,
        "several machines: auto, ray://HOST:PORT, or ray, which starts a Ray cluster here; devices counts its workers",
    )
    num_cpus: float | None = config_field(None, "CPUs that each worker of the cluster reserves", ge=0)
    num_gpus: float | None = config_field(None, "GPUs that each worker of the cluster reserves", ge=0)
    chunk_rows: int = config_field(
        8192, "texts that are sorted by length together; an interruption loses at most that many per process", ge=1
    )
    overwrite: bool = config_field(False, "true: delete an existing output, finished or not")
    quiet: bool = config_field(False, "true: only warnings and errors")

    def check_keys(self) -> None:
        """Check keys that depend on each other, before torch is imported.

        Raises:
            InputError: two keys exclude each other, or the output has another ending.
        """
        if self.role is not None and self.prompt is not None:
            raise InputError(
                key="role", value=self.role, expected="null, as prompt is set", hint="Leave one of them out."
            )
        if self.cluster is None:
            check_devices(self.devices, self.device)
        if self.quantization_ranges is not None and not self.dtype.endswith("int8"):
            raise InputError(
                key="quantization_ranges",
                value=self.quantization_ranges,
                expected=f"null with dtype={self.dtype}, since only int8 and uint8 have ranges",
            )
        if self.output is not None and not self.output.endswith(ENDINGS):
            raise InputError(key="output", value=self.output, expected="a name that ends in .npy or .parquet")


register("embed", EmbedConfig)
