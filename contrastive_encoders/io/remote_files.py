"""Remote files such as ``s3://BUCKET/FILE``: each version of a file is downloaded once into the cache and read from
there.

CACHE/addresses/DIGEST/BUCKET/FILE is one version of a file, next to an ``address.json`` that identifies the version. A
folder or pattern is such a folder of links. An address is resolved once per process, so that all parts of a command
read the same version. If its server is unreachable, the version that was found last is used, with a warning.
"""

import difflib
import functools
import glob
import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError, OutputError, is_address, missing_package, without_secrets
from contrastive_encoders.io.atomic import build_once
from contrastive_encoders.io.cached_rows import CACHE, cache_folder
from contrastive_encoders.io.manifest import (
    ADDRESSES,
    ORIGIN,
    CorruptFileError,
    read_origin,
    read_record,
    write_record,
)

LOOKUP_FILE = "found.json"  # in the cache: the result of the last look-up of an address
EXTRAS = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs")}  # package and extra
WEB = ("http", "https")
PROTOCOLS = ("hf", *EXTRAS, *WEB)
# Entries that identify the version of a file, in decreasing order of reliability
VERSIONS = ("etag", "blob_id", "generation", "md5hash", "content-md5", "last-modified", "lastmodified", "mtime")
ACCESS = {  # what to do if access to an address is denied
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL for another server than Amazon's",
    "gs": "log in with gcloud",
    "hf": "set HF_TOKEN",
}
UNREACHABLE_PATTERN = re.compile(
    r"connect|network|time[ds]? ?out|name or service|resolve host|unreachable|offline|payload", re.IGNORECASE
)
ACCESS_ERRORS = ("NoCredentialsError", "PartialCredentialsError", "PermissionError", "GatedRepoError", "RefreshError")

log = logging.getLogger(__name__)


class RemoteFile(NamedTuple):
    """A file at a remote address."""

    address: str
    bytes: int | None
    version: str  # as named by the server; empty if it names none

    @property
    def digest(self) -> str:
        return _digest(list(self))


class RemoteUnreachableError(Exception):
    """Raised if a server does not respond."""


def fetch(address: str, key: str, wanted: Callable[[Path], Any]) -> Path:
    """Download the file, folder, or pattern at an address into the cache, and return its local path.

    Args:
        key: the config key that error messages name.
        wanted: selects the files of a folder by name.

    Raises:
        InputError: there is nothing at the address, or it is not accessible.
        OutputError: the disk is full.
    """
    home = cache_folder(None).absolute() / ADDRESSES
    protocol = address.partition(":")[0]
    if protocol not in PROTOCOLS or "://" not in address:
        protocols = ", ".join(f"{name}://" for name in PROTOCOLS)
        raise InputError(
            key=key,
            value=without_secrets(address),
            expected=f"a path on this machine, or an address with one of the protocols {protocols}",
        )
    try:
        files = _find_files(address, home / _digest(address))
        inside = bool(files) and files[0].address == address
        chosen = files if inside else tuple(file for file in files if _is_selected(file.address, address, wanted))
        if not chosen:
            names = [PurePosixPath(file.address).name for file in files]
            found = f"{len(names)} other files found, such as {names[0]}" if names else "no files found"
            found = f"1 other file found, {names[0]}" if len(names) == 1 else found
            raise InputError(
                key=key,
                value=without_secrets(address),
                expected=f"an address with files of a supported type ({found})",
            )
        copies = [_copy(file, home) for file in chosen]
    except Exception as error:
        if (said := access_error(address, key, error)) is None:
            raise
        raise said from error
    return copies[0] if inside else _link_copies(address, chosen, copies, home)


def _is_selected(file: str, folder: str, wanted: Callable[[Path], Any]) -> bool:
    start = 0 if glob.has_magic(folder) else len(folder)
    hidden = any(part.startswith(".") for part in PurePosixPath(file[start:]).parts)
    return not hidden and bool(wanted(Path(PurePosixPath(file).name)))


def _copy(file: RemoteFile, home: Path) -> Path:
    """Return the path of the cached copy of a file; if this version of the file is not cached, download it."""
    directory, name = home / file.digest, _local_name(file.address)
    path = directory / name

    def is_whole(there: Path) -> bool:
        origin = read_origin(there / name)
        return bool(origin) and (there / name).is_file() and (there / name).stat().st_size == origin["bytes"]

    def build(folder: Path) -> None:
        log.info(
            "downloading %s%s",
            *(without_secrets(file.address), f", {file.bytes:,} bytes" if file.bytes is not None else ""),
        )
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        system, there = system_of(file.address)
        system.get_file(there, str(folder / name))
        size = (folder / name).stat().st_size
        if file.bytes not in (None, size):
            raise RemoteUnreachableError(f"the connection ended after {size:,} of {file.bytes:,} bytes")
        write_record(folder / ORIGIN, {"path": without_secrets(file.address), "bytes": size, "version": file.version})

    build_once(directory, is_whole, build, key=CACHE)
    return path


def _link_copies(address: str, files: tuple[RemoteFile, ...], copies: list[Path], home: Path) -> Path:
    """Link the cached copies into one folder, with the same relative paths as at the address, and return the path of
    the folder.
    """
    directory = home / _digest([address, *(file.digest for file in files)])

    def build(folder: Path) -> None:
        for file, copy in zip(files, copies, strict=True):
            link = folder / _local_name(file.address)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(copy, (directory / _local_name(file.address)).parent))

    build_once(
        directory, lambda there: all((there / _local_name(one.address)).exists() for one in files), build, key=CACHE
    )
    return directory / _local_name(address)


def _local_name(address: str) -> Path:
    """Convert an address to the relative path BUCKET/FOLDER/FILE, at which the cache stores the file."""
    parts = PurePosixPath(without_secrets(address).partition("://")[2]).parts
    return Path(*(part for part in parts if part not in ("/", "..")))


# ------------------------------------------------------------------------------------------------ look-up of addresses


@functools.cache
def _find_files(address: str, memory: Path) -> tuple[RemoteFile, ...]:
    """Return the file at an address, or the sorted files of a folder or pattern; empty if there are none."""
    try:
        files = tuple(_look_up(address))
    except Exception as error:
        if not _is_unreachable(error):
            raise
        try:
            files = tuple(RemoteFile(*one) for one in read_record(memory / LOOKUP_FILE)["files"])
            files = (files[0]._replace(address=address),) if address.partition(":")[0] in WEB else files
        except (OSError, CorruptFileError, KeyError):
            raise RemoteUnreachableError(_first_line(_http_cause(error))) from error
        log.warning(
            "%s: the server does not respond (%s). Reading the version in the cache.",
            *(without_secrets(address), _first_line(_http_cause(error))),
        )
        return files
    if not all(file.version for file in files):
        log.warning(
            "%s: the server reports no version, so changes to the file are not detected. The downloaded copy is read "
            "until %s is deleted.",
            *(without_secrets(address), memory.parent),
        )
    write_record(memory / LOOKUP_FILE, {"files": without_secrets(files)})
    return files


def _look_up(address: str) -> Iterator[RemoteFile]:
    system, path = system_of(address)
    if address.partition(":")[0] in WEB:
        yield _file(address, system.info(path))
        return
    if glob.has_magic(path):
        there = system.glob(path, detail=True)
        if not any(info["type"] == "file" for info in there.values()):
            raise FileNotFoundError(path)
    elif (info := system.info(path))["type"] == "file":
        yield _file(address, info)
        return
    else:
        there = system.find(path, detail=True)
    for name, info in sorted(there.items()):
        if info["type"] == "file" and not name.endswith("/"):  # a name with a trailing slash marks a folder
            yield _file(system.unstrip_protocol(name), info)


def _file(address: str, info: Mapping[str, Any]) -> RemoteFile:
    named = {str(name).lower(): value for name, value in info.items() if value is not None}
    version = next((named[name] for name in VERSIONS if name in named), "")
    version = version.isoformat() if isinstance(version, datetime) else str(version).strip('"')
    return RemoteFile(address, info.get("size"), version)


def is_object_store(system: Any) -> bool:
    """Return whether an fsspec file system is an object store, which writes files atomically and needs no folders."""
    names = system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)
    return not {"s3", "gs", "abfs", "az", "memory"}.isdisjoint(names)


def system_of(address: str) -> tuple[Any, str]:
    """Return the fsspec file system for an address, and the path of the address in this file system."""
    import fsspec

    system, path = fsspec.core.url_to_fs(address)
    return system, path


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ error messages


def _http_cause(error: BaseException) -> BaseException:
    """Return the error of the HTTP client that caused an error. The client raises FileNotFoundError for every kind of
    failure.
    """
    return error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error


def _is_unreachable(error: BaseException) -> bool:
    """Return whether an error means that the server did not respond, which each library reports with a different
    error.
    """
    error = _http_cause(error)
    if isinstance(error, RemoteUnreachableError | ConnectionError | TimeoutError):
        return True
    names = " ".join(cls.__name__ for cls in type(error).__mro__)
    known = isinstance(error, FileNotFoundError | PermissionError | InputError) or _status(error)
    return not known and UNREACHABLE_PATTERN.search(f"{names} {error}") is not None


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status code of an error from a web server or Google Cloud Storage, or None."""
    found = getattr(error, "status", None) or getattr(error, "code", None)
    found = found or getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) else None


def access_error(address: str, key: str, error: Exception, done: str = "read") -> InputError | None:
    """Return an error with advice for a URL that cannot be accessed. ``done`` is the failed action, such as ``read``.

    Return None if the error already explains this.
    """
    protocol, value = address.partition(":")[0], without_secrets(address)
    if isinstance(error, InputError | OutputError):
        return None
    package, extra = EXTRAS.get(protocol, ("", ""))
    if isinstance(error, ImportError) and package and importlib.util.find_spec(package) is None:
        return missing_package(package, extra, key=key, value=value)
    if _is_unreachable(error):
        return InputError(
            key=key,
            value=value,
            expected=f"an address whose server responds ({_first_line(error)})",
            hint="Check the network, or use a path on this machine.",
        )
    behind = _http_cause(error)
    if type(behind).__name__ in ACCESS_ERRORS or _status(behind) in (401, 403):
        access = ACCESS.get(protocol, "use an address without access control, or copy the file to this machine")
        return InputError(
            key=key,
            value=value,
            expected=f"an address to which you have access ({_first_line(behind)})",
            hint=f"To get access, {access}.",
        )
    if isinstance(error, FileNotFoundError) and is_address(address) and _status(behind) in (None, 404):
        expected, hint = _missing_part(address)
        return InputError(key=key, value=value, expected=expected, hint=hint)
    return InputError(
        key=key,
        value=value,
        expected=f"an address that can be {done} ({type(behind).__name__}: {_first_line(behind)})",
        hint="Check the address.",
    )


def _first_line(error: BaseException) -> str:
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return str(without_secrets(line))


def _missing_part(address: str) -> tuple[str, str]:
    """Return (expected, hint) for the message about an address that does not exist: the missing component, and similar
    names.
    """
    protocol = address.partition(":")[0]
    if protocol in WEB:
        return "the address of an existing file", "Check the address."
    system, path = system_of(address)
    first = 3 if protocol == "hf" else 1  # datasets/OWNER/NAME
    parts = PurePosixPath(path).parts
    for size in range(len(parts) - 1, first - 1, -1):
        parent = "/".join(parts[:size])
        try:
            names = [PurePosixPath(one).name for one in system.ls(parent, detail=False)]
        except (OSError, ValueError):
            continue
        close = difflib.get_close_matches(parts[size], names, n=3)
        some = ", ".join(sorted(names)[:5]) or "no files"
        hint = f"Did you mean {' or '.join(close)}?" if close else f"It contains {some}."
        return f"an existing address ({protocol}://{parent} does not contain {parts[size]})", hint
    if protocol == "hf":
        return (
            "an existing data set, hf://datasets/OWNER/NAME/FILE",
            f"Check the name. If the data set is private, {ACCESS['hf']}.",
        )
    return f"an existing bucket ({parts[0]} does not exist)", "Check the name."
