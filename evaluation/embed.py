"""Encodes every distinct sentence of all tasks once, each on one rank, and hands all ranks the same vectors.

Shape letters: U distinct texts, B rows that one rank sends at a time, D width.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from contracts import Embedder
from evaluation.vector_store import VectorStore

ROWS_PER_MESSAGE = 8192  # bounds what a gather holds on the device: world x 8192 x width


class Pool(NamedTuple):
    """The vectors of many texts, each distinct text stored once."""

    row_of: dict[str, int]
    vectors_UD: Tensor  # float32 on the CPU

    def of(self, texts: Sequence[str]) -> Tensor:
        """N texts -> (N, D), in the order of ``texts``."""
        return self.vectors_UD[torch.tensor([self.row_of[text] for text in texts], dtype=torch.long)]


def embed_pool(embedder: Embedder, lists_of_texts: Iterable[Sequence[str]], store: VectorStore | None = None) -> Pool:
    """Embeds the texts of all lists. A collective call when a process group is there: every rank passes the same lists.

    ``store`` keeps vectors between calls: rank 0's is the one that counts.
    """
    row_of: dict[str, int] = {}
    for texts in lists_of_texts:
        for text in texts:
            row_of.setdefault(text, len(row_of))
    if not row_of:
        return Pool(row_of, torch.empty(0, 0))
    # Sorted by length before they are dealt, so that every rank gets as many long ones; the longest first, because
    # what does not fit into memory should fail at once.
    texts = sorted(row_of, key=len, reverse=True)
    known = _from_rank_zero([store.knows(texts) if store is not None else None])
    if known is None or not any(known):
        vectors_ND = _embed_dealt(embedder, texts)
        _keep(store, texts, vectors_ND)
    else:
        old, new = ([text for text, here in zip(texts, known, strict=True) if here is side] for side in (True, False))
        old_ND = _from_rank_zero([store.read(old) if store is not None and _rank() == 0 else None])
        new_ND = _embed_dealt(embedder, new) if new else old_ND[:0]
        _keep(store, new, new_ND)
        vectors_ND, texts = torch.cat([old_ND, new_ND]), old + new
    vectors_UD = torch.empty_like(vectors_ND)
    vectors_UD[torch.tensor([row_of[text] for text in texts])] = vectors_ND
    return Pool(row_of, vectors_UD)


def _embed_dealt(embedder: Embedder, texts: list[str]) -> Tensor:
    """(N, D) on every rank, each row computed on one.

    No DistributedSampler: its padding repeats sentences, and a rank then holds vectors that belong to nobody.
    """
    rank, world = _rank(), dist.get_world_size() if _distributed() else 1
    mine = texts[rank::world]
    vectors_ND = _embed(embedder, mine) if mine else None
    return _gather(vectors_ND, len(texts)) if world > 1 or vectors_ND is None else vectors_ND


def _keep(store: VectorStore | None, texts: list[str], vectors_ND: Tensor) -> None:
    if store is not None and texts and _rank() == 0:
        store.add(texts, vectors_ND)


def _from_rank_zero(held: list[Any]) -> Any:
    """Its one object, sent only where there is more than one rank."""
    if _distributed() and dist.get_world_size() > 1:
        dist.broadcast_object_list(held, src=0)
    return held[0]


def _rank() -> int:
    return dist.get_rank() if _distributed() else 0


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def _device() -> torch.device:
    """Where the process group wants its tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _embed(embedder: Embedder, texts: list[str]) -> Tensor:
    vectors_ND = embedder.embed(texts).detach().to("cpu", torch.float32)
    if vectors_ND.ndim != 2 or len(vectors_ND) != len(texts):
        raise ValueError(f"embed: wanted ({len(texts)}, width) for {len(texts)} texts, got {tuple(vectors_ND.shape)}.")
    return vectors_ND


def _gather(mine_ND: Tensor | None, total: int) -> Tensor:
    """Rank r's i-th row becomes row r + i * world of the result. ``mine_ND`` is None on a rank without rows."""
    world, device = dist.get_world_size(), _device()
    width = torch.tensor(0 if mine_ND is None else mine_ND.shape[1], device=device)
    dist.all_reduce(width, dist.ReduceOp.MAX)
    rows_ND = torch.empty(total, int(width))
    most = -(-total // world)
    for start in range(0, most, ROWS_PER_MESSAGE):
        # every rank sends the same number of rows; those beyond its own are not read by anybody
        sent_BD = torch.zeros(min(ROWS_PER_MESSAGE, most - start), int(width), device=device)
        if mine_ND is not None:
            part_BD = mine_ND[start : start + len(sent_BD)]
            sent_BD[: len(part_BD)] = part_BD.to(device)
        received = [torch.empty_like(sent_BD) for _ in range(world)]
        dist.all_gather(received, sent_BD)
        for rank, part_BD in enumerate(received):
            place_BD = rows_ND[rank::world][start : start + len(sent_BD)]
            place_BD.copy_(part_BD[: len(place_BD)])
    return rows_ND
