"""Text is tokenised once, into flat memory-mapped ids and offsets; a document is a slice of them."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contracts import InputError
from datamodules.sources import DocumentSource
from datamodules.text_to_ids import LengthRule, WrittenDocuments, plain_backend, write_documents
from files.whole import build_once

STORE_VERSION = 1  # part of the key: raise it when the same input would be stored otherwise

log = logging.getLogger(__name__)


class TokenStore:
    """Tokenised documents on disk. ``store[i]`` is a zero-copy, read-only uint16 or uint32 slice.

    A directory of ``ids.bin`` (flat), ``offsets.npy`` and ``meta.json``. InputError if it is not whole.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        try:
            self.manifest: dict[str, Any] = json.loads((self.directory / "meta.json").read_text())
            offsets = np.load(self.directory / "offsets.npy", mmap_mode="r")
            dtype = np.dtype(self.manifest["dtype"])
            on_disk = (self.directory / "ids.bin").stat().st_size
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise InputError(f"{directory}: not a token store ({error}). Delete it; it is built anew.") from error
        self.offsets: np.ndarray = np.asarray(offsets)  # (documents + 1,) int64, still mapped; slices cost less so
        self.num_tokens = int(self.offsets[-1])
        if on_disk != self.num_tokens * dtype.itemsize or len(self.offsets) != self.manifest["kept"] + 1:
            raise InputError(f"{directory}: the token store is cut short. Delete it; it is built anew.")
        self.ids: np.ndarray = np.memmap(self.directory / "ids.bin", dtype=dtype, mode="r")  # (tokens,)
        self.lengths: np.ndarray = np.diff(self.offsets)  # (documents,) int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < len(self):
            raise IndexError(f"document {row} of {len(self)}")
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


def build_or_open(
    source: DocumentSource,
    tokenizer: Any,
    cache_dir: str | Path,
    *,
    min_length: int,
    length_unit: Literal["tokens", "words"] = "tokens",
    min_tokens: int = 1,
    lowercase: bool = False,
    quiet: bool = False,
) -> TokenStore:
    """The store of this source under this tokenizer and rule, built if it is not there.

    ``tokens`` keeps n >= min_length tokens. ``words`` keeps n > min_length whitespace words, strictly, as DeCLUTR's
    published script does, and drops what has fewer than ``min_tokens`` tokens besides.
    """
    rule = LengthRule(min_length, length_unit, min_tokens)
    key = {
        "version": STORE_VERSION,
        "source": source.fingerprint(),
        "tokenizer": tokenizer_sha256(tokenizer),
        "lowercase": lowercase,
        "rule": rule._asdict(),
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    directory = Path(cache_dir).expanduser() / f"tokens-{digest}"

    def build(folder: Path) -> None:
        backend = plain_backend(tokenizer)
        written = write_documents(source.documents(), backend, folder, rule, lowercase=lowercase, quiet=quiet)
        if written.kept == 0:
            raise InputError(_nothing_kept(written, rule))
        log.info("kept %d of %d documents, %d tokens", written.kept, written.read, written.tokens)
        meta = {"source": source.manifest(), **written._asdict(), "key": key, "lowercase": lowercase}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    build_once(directory, _is_whole, build)
    return TokenStore(directory)


def tokenizer_sha256(tokenizer: Any) -> str:
    """What a fast tokenizer makes of text; truncation and padding, which its users switch, do not count."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__}: wanted a fast tokenizer (one with a tokenizer.json), which reads text in "
            "parallel; got one written in Python. Convert it: AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    serialised = tokenizer.backend_tokenizer.to_str()
    content = serialised[serialised.index('"added_tokens"') :]  # behind "truncation" and "padding"
    return hashlib.sha256(content.encode()).hexdigest()


def _is_whole(directory: Path) -> bool:
    if not directory.exists():
        return False
    try:
        TokenStore(directory)
    except InputError as error:
        log.warning("%s", error)
        return False
    return True


def _nothing_kept(written: WrittenDocuments, rule: LengthRule) -> str:
    return (
        f"none of the {written.read} documents is long enough: wanted {rule.describe()}; the longest has "
        f"{written.longest} {written.longest_unit} ({written.longest_where}). Set data.max_span or "
        "data.min_document_length smaller, or data.max_span=auto; or, if each of these is only a piece of a "
        "document, put whole documents on a line (or into a file: data.document=file)."
    )
