"""What made a data set: which generator, to the byte, and which versions."""

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from encoders.backbones import from_pretrained
from files.results import version_of

WHOLE = 64 << 20  # bytes; of larger files the beginning, the end and the size are looked at
END = 1 << 20
OF_A_MODEL = {".json", ".safetensors", ".bin", ".txt", ".model", ".jinja", ".gguf"}
PACKAGES = ("torch", "transformers", "tokenizers", "contrastive-encoders")


def identify_generator(name: str, revision: str | None, setting: str = "generator") -> dict[str, Any]:
    """Its commit on the hub, or a sha256 over its file or those of its folder: moving them changes nothing.

    Raises:
        InputError: there is no such model.
    """
    path = Path(name)
    if path.exists():
        from_pretrained(AutoConfig, name, setting=setting)  # an empty folder is refused in words
        return {"sha256": _of_files(path.iterdir() if path.is_dir() else [path])}
    options = {"revision": revision} if revision else {}
    config = from_pretrained(AutoConfig, name, setting=setting, **options)
    return {"id": name, "revision": getattr(config, "_commit_hash", None) or revision}


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version_of(package) for package in PACKAGES}}


def _of_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.suffix in OF_A_MODEL and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= WHOLE:
                digest.update(file.read())
            else:
                digest.update(file.read(END))
                file.seek(-END, 2)
                digest.update(file.read())
    return digest.hexdigest()
