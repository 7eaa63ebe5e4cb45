"""Write in-memory rows to a cache file, whose name is a hash of its content."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contrastive_encoders.core import check_local_output

CACHE = "CONTRASTIVE_ENCODERS_CACHE"
SURROGATE = re.compile("[\\ud800-\\udfff]")  # half of a surrogate pair, which UTF-8 cannot encode


def cache_folder(given: str | None) -> Path:
    """Return the path of the cache folder; all files in it can be recreated."""
    check_local_output("data.cache_dir", given)
    check_local_output(CACHE, os.environ.get(CACHE))
    folder = given or os.environ.get(CACHE) or "~/.cache/contrastive-encoders"
    return Path(folder).expanduser()


def is_cached(path: str) -> bool:
    """Return whether a path has the name of a file that `cache_rows` wrote."""
    return re.fullmatch(r"rows-[0-9a-f]{16}\.jsonl", Path(path).name) is not None


def cache_rows(rows: Iterable[Mapping[str, Any]], folder: Path) -> Path:
    """Write rows to a .jsonl file in ``folder``, unless a file with the same rows exists, and return the path of the
    file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digest, new = hashlib.sha256(), folder / f".rows-{secrets.token_hex(8)}.part"
    with new.open("xb") as file:  # other users may read it if the cache is shared
        try:
            for row in rows:
                text = SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", json.dumps(row, ensure_ascii=False))
                line = f"{text}\n".encode()
                digest.update(line)
                file.write(line)
        except BaseException:
            new.unlink()
            raise
    path = folder / f"rows-{digest.hexdigest()[:16]}.jsonl"
    if path.is_file() and path.stat().st_size == new.stat().st_size:
        new.unlink()  # ids are stored under the modification time of the existing file
    else:
        new.replace(path)
    return path
