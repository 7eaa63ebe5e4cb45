"""Store the scores of a cross-encoder in a database, so that they are not computed again."""

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder

from contrastive_encoders.core import InputError
from contrastive_encoders.io.output_directory import check_output_folder

log = logging.getLogger(__name__)


class CachedReranker:
    """Wrapper of a sentence-transformers cross-encoder that stores each score in a database immediately.

    A command that is resumed after it was killed therefore scores no pair twice. ``file`` is a database of the scores
    of this cross-encoder; None disables saving.
    """

    def __init__(self, model: CrossEncoder, file: Path | None) -> None:
        self.model, self.file, self.base = model, file, None
        if file is not None:
            check_output_folder("cache_folder", file.parent)
            file.parent.mkdir(parents=True, exist_ok=True)
            with self._input_errors():
                self.base = sqlite3.connect(file, timeout=60.0)  # another command may be writing
                self.base.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, score REAL)")
                _, self.newest = self.base.execute("SELECT count(score), max(rowid) FROM scores").fetchone()
        self.known = 0  # scores that the database had when this command began

    def start_multi_process_pool(self, **options: Any) -> Any:
        return self.model.start_multi_process_pool(**options)

    def stop_multi_process_pool(self, pool: Any) -> None:
        self.model.stop_multi_process_pool(pool)

    def predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        """Return the float32 scores of N pairs, (N,), as ``predict`` of sentence-transformers does."""
        if self.base is None:
            return self._computed(pairs, **options)
        keys = [hashlib.blake2b("\0".join(pair).encode(), digest_size=16).digest() for pair in pairs]
        found = dict[bytes, float]()
        with self._input_errors():
            for key in keys:
                for score, place in self.base.execute("SELECT score, rowid FROM scores WHERE pair = ?", (key,)):
                    self.known += key not in found and place <= (self.newest or 0)
                    found[key] = score
        if new := {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in found}:
            scores = self._computed(list(new.values()), **options).tolist()
            with self._input_errors(), self.base:  # a transaction; another command may have written some of them
                self.base.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", zip(new, scores, strict=True))
            found.update(zip(new, scores, strict=True))
        return torch.tensor([found[key] for key in keys])

    def _computed(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        scores = self.model.predict(pairs, **options).float()
        if not scores.isfinite().all():
            raise InputError(key="reranker", expected="a model with finite scores", hint="Choose another reranker.")
        return scores

    @contextlib.contextmanager
    def _input_errors(self) -> Iterator[None]:
        """Context manager that converts errors of the score database to InputError."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(
                key="cache_folder",
                value=self.file,
                expected=f"a database file that can be read and written ({error})",
                hint="Free disk space, or set another cache_folder.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                key="cache_folder",
                value=self.file,
                expected=f"an undamaged database of scores ({error})",
                hint="Delete the file. Its scores are then computed again.",
            ) from error


@contextlib.contextmanager
def open_reranker(
    folder: str | None, model: CrossEncoder | None, models: Mapping[str, str]
) -> Iterator[CachedReranker | None]:
    """Context manager that yields the reranker with a cache of its scores. Each reranker has its own subfolder of
    ``folder``.
    """
    if model is None:
        yield None
        return
    reranker = CachedReranker(model, None if folder is None else Path(folder) / models["reranker"] / "scores.sqlite")
    try:
        yield reranker
    finally:
        if reranker.known:
            log.info("%d scores of the reranker were read from %s.", reranker.known, folder)
        if reranker.base is not None:
            reranker.base.close()
