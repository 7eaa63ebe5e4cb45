"""Embeddings of the texts of all tasks: each distinct text is encoded once, with an optional disk cache.

Shape letters: U distinct texts, N texts, B rows that one rank sends at a time, D width.
"""

import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from contrastive_encoders.core import NO_PROMPTS, Embedder, EncoderPrompts, InputError, Prompted
from contrastive_encoders.core.runtime.process_group import broadcast_from_rank_zero, group_ranks

log = logging.getLogger(__name__)

ROWS_PER_MESSAGE = 8192  # limits the device memory of a gather: world x 8192 x width
KEY_BYTES = 16  # size of the key of a text in a store
MARK = "\0prompt\0"  # in a pool, precedes the prompt of a text whose prompt is not the encoder's default one
END = "\0"  # follows that prompt
# Cosines of float64 rows are rounded to this many digits: equal texts must tie, independent of the summation order
DIGITS = 12


class EmbeddingPool(NamedTuple):
    """Lookup table of text embeddings. Each distinct text is stored once."""

    row_of: dict[str, int]
    vectors_UD: Tensor  # float32 on the CPU
    prompts: EncoderPrompts = NO_PROMPTS  # prompts of the encoder

    def lookup(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings of N texts in order, (N, D)."""
        return self.vectors_UD[torch.tensor(self.rows(texts), dtype=torch.long)]

    def rows(self, texts: Sequence[str]) -> list[int]:
        """Return, for each text, the index of its row in ``vectors_UD``."""
        return [self.row_of[text] for text in _pool_entries(texts, self.prompts)]

    def truncate(self, size: int | None, *, unit: bool = False) -> "EmbeddingPool":
        """Return a pool with the first ``size`` dimensions of each embedding (None: all), L2-normalized if ``unit`` is
        true.
        """
        if size is None:
            return self
        cut_UD = self.vectors_UD[:, :size]
        return self._replace(vectors_UD=normalize(cut_UD, dim=-1) if unit else cut_UD)


def _pool_entries(texts: Sequence[str], prompts: EncoderPrompts) -> Sequence[str]:
    """Return the key of each text in an `EmbeddingPool`: the text alone if it has the default prompt, otherwise its
    prompt and the text.
    """
    if not isinstance(texts, Prompted):
        return texts
    prompt = prompts.for_role(texts.role) if texts.prompt is None else texts.prompt
    return texts if prompt == prompts.default else [f"{MARK}{prompt}{END}{text}" for text in texts]


def prompts_of(embedder: Embedder) -> EncoderPrompts:
    """Return the prompts of an embedder, or no prompts if it has no attribute ``prompts``."""
    return getattr(embedder, "prompts", NO_PROMPTS)


def finite_rows(
    vectors_ND: Tensor, name: str = "", message: str = "embeddings contain NaN or infinity and count as 0"
) -> Tensor:
    """Replace rows that contain NaN or infinity by zeros, and log their number."""
    finite_N = vectors_ND.isfinite().all(-1)
    if bool(finite_N.all()):
        return vectors_ND
    log.warning("%s%d of %d %s", name and f"{name}: ", int((~finite_N).sum()), len(finite_N), message)
    return torch.where(finite_N.unsqueeze(-1), vectors_ND, 0.0)


def unit_rows(
    vectors_ND: Tensor, name: str = "", message: str = "embeddings contain NaN or infinity and count as 0"
) -> Tensor:
    """L2-normalize each row. A row that is zero, NaN, or infinite becomes zero, so that its cosines are 0."""
    return normalize(finite_rows(vectors_ND, name, message), dim=-1)


class EmbeddingCache:
    """Database of an encoder's embeddings, keyed by a hash of the text; in memory if ``folder`` is None."""

    def __init__(self, folder: str | Path | None, fingerprint: str) -> None:
        path = ":memory:" if folder is None else Path(folder) / f"{fingerprint[:32]}.sqlite"
        try:
            if isinstance(path, Path):
                path.parent.mkdir(parents=True, exist_ok=True)
            self.base = sqlite3.connect(path)
            self.base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")
        except (OSError, sqlite3.Error) as error:
            expected = f"a directory in which embeddings can be cached ({error})"
            raise InputError(key="cache_dir", value=folder, expected=expected) from None

    def contains(self, texts: Sequence[str]) -> list[bool]:
        rows = (self.base.execute("SELECT 1 FROM vectors WHERE key = ?", (_key(text),)) for text in texts)
        return [one.fetchone() is not None for one in rows]

    def read(self, texts: Sequence[str]) -> Tensor:
        """Return the stored embeddings of N texts, (N, D) float32."""
        found = (self.base.execute("SELECT vector FROM vectors WHERE key = ?", (_key(text),)) for text in texts)
        return torch.stack([torch.frombuffer(bytearray(one.fetchone()[0]), dtype=torch.float32) for one in found])

    def add(self, texts: Sequence[str], vectors_ND: Tensor) -> None:
        rows = zip(texts, vectors_ND.numpy(), strict=True)
        with self.base:  # a transaction
            self.base.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?)", ((_key(text), row.tobytes()) for text, row in rows)
            )


class LastPoolEmbeddings:
    """In-memory store of the embeddings from the last scoring, which are reused if the same texts are scored again.

    It contains either a full list of texts or none of it, so that it does not change which texts are batched together.
    """

    def __init__(self) -> None:
        self.pools: list[tuple[list[str], Tensor]] = []

    def contains(self, texts: Sequence[str]) -> list[bool]:
        return [any(held == texts for held, _ in self.pools)] * len(texts)

    def read(self, texts: Sequence[str]) -> Tensor:
        """Return the stored embeddings of a list of N texts, (N, D) float32."""
        return next(vectors_ND for held, vectors_ND in self.pools if held == texts)

    def add(self, texts: Sequence[str], vectors_ND: Tensor) -> None:
        self.pools.append((list(texts), vectors_ND))


Store = EmbeddingCache | LastPoolEmbeddings


def embed_pool(
    embedder: Embedder, lists_of_texts: Iterable[Sequence[str]], store: Store | None = None, **options: Any
) -> EmbeddingPool:
    """Embed the texts in all lists; each distinct text is embedded once.

    If there are several processes, this is a collective operation: every rank must pass the same lists.

    Args:
        embedder: the encoder.
        lists_of_texts: the texts.
        store: keeps embeddings between calls. Only the store of rank 0 is used.
        **options: options of `Embedder.embed`.
    """
    row_of: dict[str, int] = {}
    prompts = prompts_of(embedder)
    for texts in lists_of_texts:
        for text in _pool_entries(texts, prompts):
            row_of.setdefault(text, len(row_of))
    if not row_of:
        return EmbeddingPool(row_of, torch.empty(0, 0), prompts)
    # Sorted by length before they are distributed, so that every rank gets equally many long texts; the longest first,
    # so that insufficient memory is detected early
    texts = sorted(row_of, key=len, reverse=True)
    known = broadcast_from_rank_zero(lambda: store.contains(texts) if store is not None else [False] * len(texts))
    stored, new = (
        [text for text, is_known in zip(texts, known, strict=True) if is_known is side] for side in (True, False)
    )
    parts = []
    if stored:
        parts.append((stored, broadcast_from_rank_zero(lambda: cast(Store, store).read(stored))))
    if new:
        parts.append((new, _embed_distributed(embedder, new, options)))
        if store is not None and group_ranks().rank == 0:
            store.add(*parts[-1])
    vectors_UD = torch.empty(len(texts), parts[0][1].shape[1])
    for part, vectors_ND in parts:
        vectors_UD[torch.tensor([row_of[text] for text in part])] = vectors_ND
    return EmbeddingPool(row_of, vectors_UD, prompts)


def _embed_distributed(embedder: Embedder, texts: list[str], options: Mapping[str, Any]) -> Tensor:
    """Distribute texts over the ranks, and return all embeddings (N, D) on every rank.

    Texts with the same prompt are distributed together. DistributedSampler is not used because its padding repeats
    sentences, so that a rank would have embeddings that belong to no text.
    """
    groups = dict[str | None, list[int]]()
    for row, text in enumerate(texts):
        groups.setdefault(_split_prompt(text)[0], []).append(row)
    rank, world = group_ranks()
    parts = list[Tensor]()
    for rows in groups.values():
        group_texts = [texts[row] for row in rows]
        # Each rank calls ``embed`` once, with at least one text
        own_ND = _embed(embedder, group_texts[rank::world] or group_texts[:1], options)
        parts.append(_gather(own_ND, len(group_texts)) if world > 1 else own_ND)
    return torch.cat(parts)[torch.argsort(torch.tensor([row for rows in groups.values() for row in rows]))]


def _split_prompt(text: str) -> tuple[str | None, str]:
    """Split a key of an `EmbeddingPool` into prompt and text. The prompt is None if it is the encoder's default
    prompt.
    """
    if not text.startswith(MARK):
        return None, text
    prompt, _, rest = text.removeprefix(MARK).partition(END)
    return prompt, rest


def _embed(embedder: Embedder, texts: list[str], options: Mapping[str, Any]) -> Tensor:
    (prompt, *_), plain = zip(*map(_split_prompt, texts), strict=True)
    if prompt is None:
        vectors_ND = embedder.embed(list(plain), **options)
    elif hasattr(embedder, "prompts"):
        vectors_ND = embedder.embed(list(plain), prompt=prompt, **options)
    else:  # it does not support prompts
        vectors_ND = embedder.embed([prompt + text for text in plain], **options)
    vectors_ND = vectors_ND.detach().to("cpu", torch.float32)
    if vectors_ND.ndim != 2 or len(vectors_ND) != len(texts):
        raise ValueError(
            f"embed returned the shape {tuple(vectors_ND.shape)} for {len(texts)} texts, not ({len(texts)}, width)."
        )
    return vectors_ND


def _gather(own_ND: Tensor, total: int) -> Tensor:
    """Gather the rows of all ranks into ``total`` rows: row i of rank r becomes row r + i * world."""
    world = dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    rows_ND = torch.empty(total, own_ND.shape[1])
    max_rows = -(-total // world)
    for start in range(0, max_rows, ROWS_PER_MESSAGE):
        # Every rank sends the same number of rows; padding rows are ignored
        sent_BD = torch.zeros(min(ROWS_PER_MESSAGE, max_rows - start), own_ND.shape[1], device=device)
        part_BD = own_ND[start : start + len(sent_BD)]
        sent_BD[: len(part_BD)] = part_BD.to(device)
        received = [torch.empty_like(sent_BD) for _ in range(world)]
        dist.all_gather(received, sent_BD)
        for rank, part_BD in enumerate(received):
            place_BD = rows_ND[rank::world][start : start + len(sent_BD)]
            place_BD.copy_(part_BD[: len(place_BD)])
    return rows_ND


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
