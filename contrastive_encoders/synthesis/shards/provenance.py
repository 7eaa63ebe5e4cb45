"""Record the provenance of a dataset: the generator and library versions."""

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from contrastive_encoders.compat import commit_of
from contrastive_encoders.core.versions import PROJECT, version_of
from contrastive_encoders.encoders.loading.backbones import from_pretrained

MAX_FULL_HASH_BYTES = 64 << 20  # bytes; of larger files, only the beginning, the end, and the size are hashed
END_HASH_BYTES = 1 << 20
MODEL_SUFFIXES = {".json", ".safetensors", ".bin", ".txt", ".model", ".jinja", ".gguf"}
PACKAGES = ("torch", "transformers", "tokenizers", PROJECT)


def identify_generator(name: str, revision: str | None, setting: str = "generator") -> dict[str, Any]:
    """Return entries that identify the generator: its hub id and commit, or a SHA-256 of its local files.

    The SHA-256 does not depend on the location of the files.

    Raises:
        InputError: The model does not exist.
    """
    path = Path(name)
    if path.exists():
        from_pretrained(AutoConfig, name, setting=setting)  # rejects an empty folder with a clear message
        return {"sha256": _hash_files(path.iterdir() if path.is_dir() else [path])}
    options = {"revision": revision} if revision else {}
    config = from_pretrained(AutoConfig, name, setting=setting, **options)
    return {"id": name, "revision": commit_of(config) or revision}


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version_of(package) for package in PACKAGES}}


def _hash_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.suffix in MODEL_SUFFIXES and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= MAX_FULL_HASH_BYTES:
                digest.update(file.read())
            else:
                digest.update(file.read(END_HASH_BYTES))
                file.seek(-END_HASH_BYTES, 2)
                digest.update(file.read())
    return digest.hexdigest()
