"""Vectors of the texts of all tasks: each distinct text is encoded once, with an optional disk cache.

Shape letters: U distinct texts, N texts, B rows that one rank sends at a time, D width.
"""

import hashlib
import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import normalize

from contracts import Embedder, InputError
from storage.atomic import whole_file

log = logging.getLogger(__name__)

ROWS_PER_MESSAGE = 8192  # bounds what a gather holds on the device: world x 8192 x width
KEY_BYTES = 16  # of a text in a store
WITH_PROMPT = "\0prompt\0"  # before a text that has its prompt, in a pool
# Cosines of float64 rows are rounded to this many digits: equal texts must tie, whatever the order of summation.
DIGITS = 12


class Prompted(list[str]):
    """Texts that stand behind a prompt of their task's, in the place of the encoder's own; None: behind that."""

    def __init__(self, texts: Iterable[str], prompt: str | None) -> None:
        super().__init__(texts)
        self.prompt = prompt


class Pool(NamedTuple):
    """The vectors of many texts, each distinct text stored once."""

    row_of: dict[str, int]
    vectors_UD: Tensor  # float32 on the CPU

    def of(self, texts: Sequence[str]) -> Tensor:
        """N texts -> (N, D), in the order of ``texts``."""
        return self.vectors_UD[torch.tensor([self.row_of[text] for text in _behind_prompt(texts)], dtype=torch.long)]

    def cut(self, size: int | None, *, unit: bool = False) -> "Pool":
        """The first numbers of each vector, brought to length 1 with ``unit``; None: all, as they are."""
        if size is None:
            return self
        cut_UD = self.vectors_UD[:, :size]
        return Pool(self.row_of, normalize(cut_UD, dim=-1) if unit else cut_UD)


def _behind_prompt(texts: Sequence[str]) -> Sequence[str]:
    """Return the key of each text in a pool."""
    if not isinstance(texts, Prompted) or texts.prompt is None:
        return texts
    return [f"{WITH_PROMPT}{texts.prompt}{text}" for text in texts]


def finite_rows(vectors_ND: Tensor, name: str = "", what: str = "vectors are not finite; they count as 0") -> Tensor:
    """Rows that hold NaN or infinity become zero; a logged line says how many of all they are."""
    finite_N = vectors_ND.isfinite().all(-1)
    if bool(finite_N.all()):
        return vectors_ND
    log.warning("%s%d of %d %s", name and f"{name}: ", int((~finite_N).sum()), len(finite_N), what)
    return torch.where(finite_N.unsqueeze(-1), vectors_ND, 0.0)


def unit_rows(vectors_ND: Tensor, name: str = "", what: str = "vectors are not finite; they count as 0") -> Tensor:
    """Rows of length 1; zero rows and those that are not finite are zero, so that their cosines are 0."""
    return normalize(finite_rows(vectors_ND, name, what), dim=-1)


class VectorStore:
    """A folder per encoder of numbered files, each with the keys and the vectors of texts that were new at the time.

    Only the keys stay in memory. One process writes; a file appears whole or not at all. One that cannot be read counts
    for nothing, and is replaced.
    """

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.folder = Path(folder) / fingerprint[:32]
        self.place_of: dict[bytes, tuple[Path, int]] = {}
        self.damaged = set[Path]()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cache_dir={folder}: cannot be written ({error.strerror}); name another folder."
            ) from None
        for path in sorted(self.folder.glob("*.safetensors")):
            self._know(path)

    def __len__(self) -> int:
        return len(self.place_of)

    def knows(self, texts: Sequence[str]) -> list[bool]:
        return [_key(text) in self.place_of for text in texts]

    def read(self, texts: Sequence[str]) -> Tensor:
        """(N, D) float32 of texts that are all known."""
        places = [self.place_of[_key(text)] for text in texts]
        rows_of: dict[Path, list[int]] = {}
        for index, (path, _) in enumerate(places):
            rows_of.setdefault(path, []).append(index)
        found = torch.empty(0, 0)
        for path, indices in rows_of.items():
            with safe_open(path, "pt") as file:
                vectors = file.get_tensor("vectors")
            found = found if len(found) else torch.empty(len(places), vectors.shape[1])
            found[torch.tensor(indices)] = vectors[torch.tensor([places[index][1] for index in indices])]
        return found

    def add(self, texts: Sequence[str], vectors_ND: Tensor) -> None:
        names = (self.folder / f"{number:05d}.safetensors" for number in itertools.count())
        path = next(path for path in names if path in self.damaged or not path.exists())
        keys = torch.frombuffer(bytearray(b"".join(_key(text) for text in texts)), dtype=torch.uint8)
        entries = {"keys": keys.view(len(texts), KEY_BYTES), "vectors": vectors_ND.contiguous()}
        with whole_file(path) as part:
            save_file(entries, part)
        self.damaged.discard(path)
        self._know(path)

    def _know(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as file:
                keys = file.get_tensor("keys").numpy()
        except (SafetensorError, OSError) as error:
            log.warning("%s is damaged (%s). Its vectors are computed again.", path, error)
            self.damaged.add(path)
            return
        for row, key in enumerate(keys):
            self.place_of[key.tobytes()] = (path, row)


class LastVectors:
    """A store in memory of whole pools, that of the last scoring: the same texts again are not encoded again.

    Of other texts it knows none, so that what is encoded together does not depend on it.
    """

    def __init__(self) -> None:
        self.pools: list[tuple[list[str], Tensor]] = []

    def knows(self, texts: Sequence[str]) -> list[bool]:
        return [any(held == texts for held, _ in self.pools)] * len(texts)

    def read(self, texts: Sequence[str]) -> Tensor:
        """(N, D) float32 of a pool that is known."""
        return next(vectors_ND for held, vectors_ND in self.pools if held == texts)

    def add(self, texts: Sequence[str], vectors_ND: Tensor) -> None:
        self.pools.append((list(texts), vectors_ND))


def embed_pool(
    embedder: Embedder, lists_of_texts: Iterable[Sequence[str]], store: VectorStore | LastVectors | None = None
) -> Pool:
    """Embeds the texts of all lists. A collective call when a process group is there: every rank passes the same lists.

    ``store`` keeps vectors between calls: rank 0's is the one that counts.
    """
    row_of: dict[str, int] = {}
    for texts in lists_of_texts:
        for text in _behind_prompt(texts):
            row_of.setdefault(text, len(row_of))
    if not row_of:
        return Pool(row_of, torch.empty(0, 0))
    # Sorted by length before they are dealt, so that every rank gets as many long ones; the longest first, because
    # what does not fit into memory should fail at once.
    texts = sorted(row_of, key=len, reverse=True)
    rank, _ = rank_and_world()
    known = _from_rank_zero(store.knows(texts) if store is not None else None) or [False] * len(texts)
    kept, new = ([text for text, here in zip(texts, known, strict=True) if here is side] for side in (True, False))
    parts = []
    if kept:
        parts.append((kept, _from_rank_zero(store.read(kept) if store is not None and rank == 0 else None)))
    if new:
        parts.append((new, _embed_dealt(embedder, new)))
        if store is not None and rank == 0:
            store.add(*parts[-1])
    vectors_UD = torch.empty(len(texts), parts[0][1].shape[1])
    for part, vectors_ND in parts:
        vectors_UD[torch.tensor([row_of[text] for text in part])] = vectors_ND
    return Pool(row_of, vectors_UD)


def _embed_dealt(embedder: Embedder, texts: list[str]) -> Tensor:
    """(N, D) on every rank, each row computed on one.

    No DistributedSampler: its padding repeats sentences, and a rank then holds vectors that belong to nobody.
    """
    rank, world = rank_and_world()
    own = texts[rank::world]
    vectors_ND = _embed(embedder, own) if own else None
    return _gather(vectors_ND, len(texts)) if world > 1 or vectors_ND is None else vectors_ND


def _from_rank_zero(held: Any) -> Any:
    """Rank 0's object on every rank."""
    objects = [held]
    if rank_and_world()[1] > 1:
        dist.broadcast_object_list(objects, src=0)
    return objects[0]


def rank_and_world() -> tuple[int, int]:
    """This process's rank and their number; (0, 1) without a process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def _embed(embedder: Embedder, texts: list[str]) -> Tensor:
    own = [row for row, text in enumerate(texts) if text.startswith(WITH_PROMPT)]
    if own and len(own) < len(texts):
        others = sorted(set(range(len(texts))) - set(own))
        parts = torch.cat([_embed(embedder, [texts[row] for row in rows]) for rows in (own, others)])
        return parts[torch.argsort(torch.tensor([*own, *others]))]
    if own:
        vectors_ND = embedder.embed([text.removeprefix(WITH_PROMPT) for text in texts], prompt="")
    else:
        vectors_ND = embedder.embed(texts)
    vectors_ND = vectors_ND.detach().to("cpu", torch.float32)
    if vectors_ND.ndim != 2 or len(vectors_ND) != len(texts):
        raise ValueError(f"embed: wanted ({len(texts)}, width) for {len(texts)} texts, got {tuple(vectors_ND.shape)}.")
    return vectors_ND


def _gather(own_ND: Tensor | None, total: int) -> Tensor:
    """Rank r's i-th row becomes row r + i * world of the result. ``own_ND`` is None on a rank without rows."""
    world = dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    width = torch.tensor(0 if own_ND is None else own_ND.shape[1], device=device)
    dist.all_reduce(width, dist.ReduceOp.MAX)
    rows_ND = torch.empty(total, int(width))
    most = -(-total // world)
    for start in range(0, most, ROWS_PER_MESSAGE):
        # every rank sends the same number of rows; those beyond its own are not read by anybody
        sent_BD = torch.zeros(min(ROWS_PER_MESSAGE, most - start), int(width), device=device)
        if own_ND is not None:
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
