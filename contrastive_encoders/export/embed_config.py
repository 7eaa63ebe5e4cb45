"""Configuration keys of embedding. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.composition.config_store import register
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.runtime.devices import check_devices

ENDINGS = (".npy", ".parquet")  # of an output


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """Configuration keys of ``contrastive-encoders embed`` and of `embed`."""

    encoder: str | None = config_field(
        None,
        "run folder, checkpoint, any sentence-transformers or transformers folder, hub id, word-vector file",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "FILE.txt (a text per line), .jsonl, .json, .csv, .tsv or .parquet (a column), each also .gz; a folder; "
        "several: [FILE,FILE]",
    )
    column: str | None = config_field(None, "the field or column with the texts; null: text")
    encoding: str | None = config_field(
        None,
        "of text files without a byte-order mark, such as latin-1 or gb18030; null: UTF-8, or cp1252 if a file is not "
        "UTF-8",
    )
    output: str | None = config_field(
        None, "FILE.npy: (rows, width), row i of the i-th text; or FILE.parquet: text and embedding"
    )

    pooling: str | None = config_field(None, "null: the encoder's own")
    prompt: str | None = config_field(None, "put before every text; null: the encoder's own")
    role: Literal["query", "document"] | None = config_field(
        None, "the encoder's own prompt is that of such texts; null: its default prompt"
    )
    max_length: int | None = config_field(None, "tokens; null: the encoder's own")
    truncate: int | None = config_field(
        None,
        "256: only the first 256 numbers of each vector, as of one that was trained by prefixes (model.matryoshka)",
    )
    normalize: bool | None = config_field(
        None, "true: vectors of length 1, after truncate; false: as they are pooled; null: the encoder's own"
    )
    precision: Literal["fp32", "bf16"] = config_field("fp32", "of the computation")
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"] = config_field(
        "float32", "of what is written; binary: a bit a number, eight to a byte; uint8, ubinary: as faiss wants them"
    )
    ranges: str | None = config_field(
        None,
        "of int8 and uint8: FILE.ranges.npy of other vectors, such as the corpus of these queries; null: of these, "
        "beside the output",
    )

    device: str = config_field("auto", "auto, cpu, cuda, cuda:1")
    devices: int = config_field(1, "processes, a GPU each where there are any", ge=1)
    cluster: str | None = config_field(
        None,
        "several machines: auto, ray://HOST:PORT, or ray, which starts a Ray cluster here; devices counts its workers",
    )
    num_cpus: float | None = config_field(None, "that a worker of a cluster reserves", ge=0)
    num_gpus: float | None = config_field(None, "likewise", ge=0)
    window: int = config_field(8192, "texts that are sorted by length together; also how much a kill throws away", ge=1)
    overwrite: bool = config_field(False, "true: throw away what is there, finished or not")
    quiet: bool = config_field(False, "true: warnings and errors alone")

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
        if self.ranges is not None and not self.dtype.endswith("int8"):
            raise InputError(
                f"ranges={self.ranges}: dtype={self.dtype} knows none; they are of dtype=int8 and uint8.",
                key="ranges",
                value=self.ranges,
                expected=f"null with dtype={self.dtype}",
            )
        if self.output is not None and not self.output.endswith(ENDINGS):
            raise InputError(
                f"output={self.output}: wanted a name that ends in .npy or .parquet.",
                key="output",
                value=self.output,
                expected="a name that ends in .npy or .parquet",
            )


register("embed", EmbedConfig)
