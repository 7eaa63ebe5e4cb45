"""Read the files in archives (members) into memory. Nothing is unpacked to disk or executed.

A member is found by the end of its path, since the same archive is distributed with and without its outermost folder.
"""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

MAX_MEMBER_BYTES = 4 << 30  # bytes of a decompressed member; COCO's features, the largest, need less than half of it

Reader = Callable[[], bytes]


class InvalidArchiveError(ValueError):
    """Raised if an archive cannot be read, is unsafe, or lacks a member."""


class Members:
    """Reader of the files (members) in one or more archives. A path that is not an archive is read as a file itself. A
    folder counts as an unpacked archive.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._readers: dict[str, Reader] = {}
        for path in paths:
            for name, reader in _open(path):
                self._readers.setdefault(_safe(path, name), reader)

    def has(self, ending: str) -> bool:
        return bool(self._found(ending))

    def _found(self, ending: str) -> list[str]:
        return [name for name in self._readers if name == ending or name.endswith(f"/{ending}")]

    def read(self, ending: str) -> bytes:
        """Return the bytes of the member whose path ends with ``ending``.

        If several match, the least deeply nested one is read.
        """
        found = self._found(ending)
        if not found:
            raise InvalidArchiveError(f"{', '.join(path.name for path in self.paths)}: no member {ending}")
        name = min(found, key=lambda one: (one.count("/"), one))
        try:
            return self._readers[name]()
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError) as error:
            raise InvalidArchiveError(f"{ending}: damaged or truncated ({error})") from None

    def lines(self, ending: str, encoding: str = "utf-8") -> list[str]:
        """Return the decoded lines of a member, without a byte-order mark. Only ``\\n`` and ``\\r\\n`` end a line."""
        try:
            text = self.read(ending).removeprefix(b"\xef\xbb\xbf").decode(encoding)
        except UnicodeDecodeError as error:
            raise InvalidArchiveError(f"{ending}: byte {error.start} is not valid {encoding}") from None
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []

    def raw_lines(self, ending: str) -> list[bytes]:
        data = self.read(ending)
        return [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if data else []


def _safe(archive: Path, name: str) -> str:
    """Check that the path of a member does not point outside of the archive, and return the path with forward
    slashes.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise InvalidArchiveError(f"{archive.name}: the member {name!r} points outside of the archive")
    return str(path)


def _open(path: Path) -> Iterator[tuple[str, Reader]]:
    try:
        if path.is_dir():
            files = (file for file in sorted(path.rglob("*")) if file.is_file())
            yield from ((file.relative_to(path).as_posix(), file.read_bytes) for file in files)
        elif path.name.endswith(".zip"):
            zipped = zipfile.ZipFile(path)
            for info in zipped.infolist():
                if not info.is_dir() and not _is_macos_metadata(info.filename):
                    yield info.filename, partial(_read, info.filename, partial(zipped.open, info))
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")):
            archive = tarfile.open(path)  # noqa: SIM115  # read as long as the members are
            for member in archive.getmembers():  # raises an error for a damaged or truncated archive
                # links could refer to a file outside of the archive, and none of the official archives has one
                if member.isfile() and not _is_macos_metadata(member.name):
                    yield member.name, partial(_read, member.name, partial(archive.extractfile, member))
        elif path.suffix == ".gz":
            yield path.stem, partial(_read, path.name, partial(gzip.open, path, "rb"))
        else:
            yield path.name, path.read_bytes
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InvalidArchiveError(
            f"{path.name}: not a readable archive ({error}); delete {path} to download it again"
        ) from None


def _read(name: str, opened: Callable[[], Any]) -> bytes:
    with opened() as file:
        data: bytes = file.read(MAX_MEMBER_BYTES + 1)
    if len(data) > MAX_MEMBER_BYTES:
        raise InvalidArchiveError(f"{name}: larger than {MAX_MEMBER_BYTES >> 30} GiB when decompressed")
    return data


def _is_macos_metadata(name: str) -> bool:
    """Return whether a member is metadata that macOS adds to an archive."""
    return name.startswith("__MACOSX/") or PurePosixPath(name).name.startswith("._")
