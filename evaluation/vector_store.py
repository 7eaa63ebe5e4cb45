"""Vectors kept on disk between evaluations, found by the encoder's fingerprint and the text."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contracts import InputError
from files.whole import whole_file

KEY_BYTES = 16


class VectorStore:
    """A folder per encoder of numbered files, each with the keys and the vectors of texts that were new at the time.

    Only the keys stay in memory. One process writes; a file appears whole or not at all.
    """

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.folder = Path(folder) / fingerprint[:32]
        self.place_of: dict[bytes, tuple[Path, int]] = {}
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
        found: Tensor | None = None
        for path, indices in rows_of.items():
            with safe_open(path, "pt") as file:
                vectors = file.get_tensor("vectors")
            if found is None:
                found = torch.empty(len(places), vectors.shape[1])
            found[torch.tensor(indices)] = vectors[torch.tensor([places[index][1] for index in indices])]
        return torch.empty(0, 0) if found is None else found

    def add(self, texts: Sequence[str], vectors_ND: Tensor) -> None:
        keys = torch.frombuffer(bytearray(b"".join(_key(text) for text in texts)), dtype=torch.uint8)
        path = self.folder / f"{len(list(self.folder.glob('*.safetensors'))):05d}.safetensors"
        with whole_file(path) as part:
            save_file({"keys": keys.view(len(texts), KEY_BYTES), "vectors": vectors_ND.contiguous()}, part)
        self._know(path)

    def _know(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as file:
                keys = file.get_tensor("keys").numpy()
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); delete it, its vectors will be computed again."
            ) from None
        for row, key in enumerate(keys):
            self.place_of[key.tobytes()] = (path, row)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
