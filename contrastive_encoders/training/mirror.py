"""Copies of a run's folder at a URL (``remote_output_dir=s3://BUCKET/PREFIX``), from which another machine can resume
the run.

ADDRESS/files/SHA256 is the content of a file. ADDRESS/index.json lists the files that the folder had at one moment. The
index is written last, so a reader always finds a complete snapshot, even if the writer was killed. Contents that the
index does not list are removed after the next index is written.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, cast

from contrastive_encoders.core import InputError, is_address, without_secrets
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.io.atomic import atomic_directory, remove
from contrastive_encoders.io.manifest import sha256_of
from contrastive_encoders.io.output_directory import overwrite_hint
from contrastive_encoders.io.remote_files import access_error, is_object_store, system_of

SNAPSHOTS = ".mirror"  # in the folder: links to the files of one moment, until they are copied
INDEX, CONTENTS = "index.json", "files"
CONTENT_NAME = re.compile("[0-9a-f]{64}")  # names of contents
IMMUTABLE_SUFFIXES = (".ckpt", ".safetensors", ".bin")  # never modified in place, so a link preserves the content
MAX_TRIES, RETRY_DELAY_S, POLL_INTERVAL_S = 5, 3.0, 0.5  # of the last copy

log = logging.getLogger(__name__)


class MirrorTakeoverError(Exception):
    """Raised when another process has started to copy to the same URL."""


class Mirror:
    """Mirror of a run's ``folder`` at the URL ``address``, which uploads the folder and can download it again.

    Args:
        entries: glob patterns of the files in the folder that are copied.
        identity: the identity of the run in the folder; copies of another run are refused.
    """

    def __init__(self, folder: Path, address: str, entries: Sequence[str], identity: str) -> None:
        self.folder, self.address, self.entries, self.identity = folder, address, entries, identity
        self.shown = str(without_secrets(address))
        self._writer, self._started = uuid.uuid4().hex, time.time()  # stored in the index: the last process that copied
        self._numbers = count()
        self._sent = 0  # bytes uploaded by the current copy
        self._uploaded = set[str]()  # contents that are complete at the URL
        self._sums: dict[tuple[int, int, int], str] = {}  # checksums of files that were already read
        self._waiting: Path | None = None  # the newest snapshot that is not being copied yet
        self._changed = threading.Condition()
        self._copying, self._failed, self._taken_over = False, False, False
        self._thread: threading.Thread | None = None

    def begin(self, *, replace: bool, fetch: bool) -> list[str]:
        """Check that the URL is writable, take it over from any previous process, and return the names of the files
        that it already contains.

        Args:
            replace: ignore the existing copies.
            fetch: replace the contents of the folder by the copies.

        Raises:
            InputError: the URL is not writable, or the copies belong to another run.
        """
        self._refuse_nested()
        index = self._index()
        if index is None:
            self._refuse_foreign()
        if index and not replace and index["identity"] != self.identity:
            raise InputError(
                key="remote_output_dir",
                value=self.shown,
                expected=f"copies of this run (identity {self.identity}), but the copies at this location are of a run "
                f"with the identity {index['identity']}",
                hint=overwrite_hint("remote_output_dir"),
            )
        files = index["files"] if index and not replace else {}
        self._uploaded = {file["sha256"] for file in files.values()}
        with self._plain_errors("written"):
            self._write_index(files)
        if fetch and files:
            self._fetch(files)
        return sorted(files)

    def copy(self) -> None:
        """Schedule a background copy of the current state of the folder. It replaces a snapshot that is still
        waiting.
        """
        if self._taken_over:
            return
        try:
            if self._thread is None:
                remove(self.folder / SNAPSHOTS)  # left by a process that was killed
            snapshot = self._snapshot()
        except OSError as error:
            self._log_failure(error)
            return
        with self._changed:
            before, self._waiting = self._waiting, snapshot
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if before is not None:
            remove(before)

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for pending copies, and return whether all copies are finished."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._copying, seconds)

    def wait_at_end(self, seconds: float) -> None:
        """Wait for the pending copies of a run that was stopped, and warn if the last checkpoint was not copied."""
        if complete := self.wait(seconds):
            remove(self.folder / SNAPSHOTS)
        if not complete or self._failed:
            log.warning(
                "remote_output_dir=%s: the last checkpoint was not copied; the previous copy is complete.", self.shown
            )

    def finish(self) -> None:
        """Copy the folder a last time, and wait until the copy is complete. A failed copy is repeated.

        Raises:
            TrainingError: the copy failed.
        """
        for retry in range(MAX_TRIES):
            time.sleep(RETRY_DELAY_S if retry else 0)
            self.copy()
            files = [path.stat().st_size for path in self._files()]
            log.info("mirror: copying %s, %.1f MB, to %s", count_of(len(files), "file"), sum(files) / 1e6, self.shown)
            with ProgressBar("copying", "MB", round(sum(files) / 1e6)) as progress:
                while not self.wait(POLL_INTERVAL_S):
                    progress.to(round(self._sent / 1e6))
            if not self._failed:
                break
        remove(self.folder / SNAPSHOTS)
        if self._failed:
            raise TrainingError(
                f"remote_output_dir={self.shown}: the last copy is incomplete. All files of the run are in "
                f"{self.folder}. Rerun the same command to copy them."
            )

    def _snapshot(self) -> Path:
        snapshot = self.folder / SNAPSHOTS / str(next(self._numbers))
        for path in self._files():
            kept = snapshot / path.relative_to(self.folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            _keep(path, kept)
        return snapshot

    # ------------------------------------------------------------------------------------------- in the background

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None)
                snapshot, self._waiting, self._copying = self._waiting, None, True
            try:
                self._copy_and_log(cast(Path, snapshot))
            finally:
                with self._changed:
                    self._copying = False
                    self._changed.notify_all()

    def _copy_and_log(self, snapshot: Path) -> None:
        try:
            self._copy(snapshot)
        except MirrorTakeoverError:
            log.warning(
                "remote_output_dir=%s: copying stopped, because another process of this run copies there now.",
                self.shown,
            )
            self._failed, self._taken_over = False, True
        except Exception as error:  # noqa: BLE001  each library of an address has its own
            self._log_failure(error)
        else:
            if self._failed:
                log.warning("remote_output_dir=%s: copying works again.", self.shown)
            self._failed = False
        finally:
            remove(snapshot)

    def _log_failure(self, error: Exception) -> None:
        """Warn that a copy has failed. The warning is not repeated until a copy has succeeded."""
        if not self._failed:
            cause = access_error(self.address, "remote_output_dir", error, "written")
            log.warning("%s Training continues; copying is tried again at the next checkpoint.", cause or error)
        self._failed = True

    def _copy(self, snapshot: Path) -> None:
        self._check_taken_over()
        if not is_object_store(self._system):
            self._system.makedirs(self._path(CONTENTS), exist_ok=True)
        files: dict[str, dict[str, Any]] = {}
        self._sent = 0
        for path in sorted(path for path in snapshot.rglob("*") if path.is_file()):
            checksum, size = self._sum_of(path), path.stat().st_size
            files[path.relative_to(snapshot).as_posix()] = {"sha256": checksum, "bytes": size}
            if checksum not in self._uploaded:
                self._system.put_file(str(path), self._path(CONTENTS, checksum))
                self._uploaded.add(checksum)
            self._sent += size
        found = {name for name in self._names(CONTENTS) if CONTENT_NAME.fullmatch(name)}  # other files are not touched
        self._uploaded &= found
        current = {file["sha256"] for file in files.values()}
        if lost := current - self._uploaded:
            raise FileNotFoundError(f"{len(lost)} copied files are missing at this URL")
        self._check_taken_over()  # an upload may have taken hours
        self._write_index(files)
        for name in found - current:
            self._system.rm(self._path(CONTENTS, name))
        self._uploaded = current

    def _sum_of(self, path: Path) -> str:
        about = path.stat()
        key = about.st_ino, about.st_size, about.st_mtime_ns
        if key not in self._sums:
            self._sums[key] = sha256_of(path)
        return self._sums[key]

    # ------------------------------------------------------------------------------------------------------- fetching

    def _fetch(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Download the files of the copy into the run's directory.

        Raises:
            InputError: the checksum of a downloaded file differs from the index.
        """
        size = sum({file["sha256"]: file["bytes"] for file in files.values()}.values())
        log.info("mirror: fetching %s, %.1f MB, from %s", count_of(len(files), "file"), size / 1e6, self.shown)
        fetched: dict[str, Path] = {}
        with atomic_directory(self.folder) as part:
            for name, file in sorted(files.items()):
                path = part / _within(name, self.shown)
                path.parent.mkdir(parents=True, exist_ok=True)
                if (before := fetched.setdefault(file["sha256"], path)) != path:
                    _keep(before, path)
                    continue
                with self._plain_errors("read"):
                    self._system.get_file(self._path(CONTENTS, file["sha256"]), str(path))
                if sha256_of(path) != file["sha256"]:
                    raise InputError(
                        key="remote_output_dir",
                        value=self.shown,
                        expected=f"unmodified copies, but the checksum of {name} differs from that in the index",
                        hint="Remove the copies, or set another remote_output_dir.",
                    )

    def _index(self) -> dict[str, Any] | None:
        with self._plain_errors("read"):
            if not self._system.exists(self._path(INDEX)):
                return None
            content = self._system.cat_file(self._path(INDEX))
        try:
            index: dict[str, Any] = json.loads(content)
            _ = index["identity"], index["writer"], float(index["started"]), index["files"].values()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                key="remote_output_dir",
                value=self.shown,
                expected=f"a location with copies of a run, but the {INDEX} there was not written by this project "
                f"({error})",
                hint="Set another remote_output_dir.",
            ) from error
        return index

    def _write_index(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        index = {"identity": self.identity, "writer": self._writer, "started": self._started, "files": files}
        self._write(INDEX, json.dumps(index, indent=1).encode())

    def _check_taken_over(self) -> None:
        """Check that no later process of the same run has written the index.

        Raises:
            MirrorTakeoverError: another process has taken over the URL.
        """
        index = self._index()
        if index is not None and index["writer"] != self._writer and index["started"] > self._started:
            raise MirrorTakeoverError

    # -------------------------------------------------------------------------------------------------------- both ends

    def _files(self) -> Iterator[Path]:
        for pattern in self.entries:
            for entry in sorted(self.folder.glob(pattern)):
                inside = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
                yield from (path for path in inside if path.is_file() and not path.name.endswith((".part", ".lock")))

    def _names(self, *within: str) -> list[str]:
        """Return the names of the files and folders at the URL, or in a subfolder of the URL."""
        self._system.invalidate_cache()
        try:
            paths: list[str] = self._system.ls(self._path(*within), detail=False)
        except FileNotFoundError:
            return []
        return [name for path in paths if (name := PurePosixPath(path).name)]

    def _refuse_foreign(self) -> None:
        """Check that a URL without an index contains no files, except files of a process that was killed while
        starting.

        Raises:
            InputError: there are other files.
        """
        with self._plain_errors("read"):
            names = [name for name in self._names() if name != CONTENTS and not name.endswith(".part")]
        if names:
            raise InputError(
                key="remote_output_dir",
                value=self.shown,
                expected="an empty location, or one with an earlier copy of this run, not one with other files: "
                + ", ".join(sorted(names)[:3]),
                hint="Set a URL that only this run uses.",
            )

    def _refuse_nested(self) -> None:
        """Check that neither the mirror is inside the run's folder, nor the run's folder inside the mirror.

        Raises:
            InputError: one is inside the other.
        """
        if is_address(self.address):
            return
        local, remote = self.folder.resolve(), Path(self.address).resolve()
        if local.is_relative_to(remote) or remote.is_relative_to(local):
            raise InputError(
                key="remote_output_dir",
                value=self.shown,
                expected=f"a location outside output_dir={self.folder}, preferably on another disk",
                hint="Set another remote_output_dir.",
            )

    @contextlib.contextmanager
    def _plain_errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each file system library raises its own
            if (cause := access_error(self.address, "remote_output_dir", error, done)) is None:
                raise
            raise cause from error

    @property
    def _system(self) -> Any:
        return system_of(self.address)[0]

    def _path(self, *names: str) -> str:
        return "/".join([system_of(self.address)[1].rstrip("/"), *names])

    def _write(self, name: str, content: bytes) -> None:
        """Write a small file at the URL atomically."""
        system, path = self._system, self._path(name)
        if is_object_store(system):
            system.pipe_file(path, content)
        else:
            system.makedirs(self._path(CONTENTS), exist_ok=True)
            system.pipe_file(f"{path}.part", content)
            system.mv(f"{path}.part", path)


def _keep(path: Path, kept: Path) -> None:
    """Make the current content of a file available under another name, as a hard link or a copy."""
    if path.suffix in IMMUTABLE_SUFFIXES:
        with contextlib.suppress(OSError):  # the file system does not support links
            os.link(path, kept)
            return
    shutil.copy2(path, kept)


def _within(name: str, address: object) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(location=f"{address}/{INDEX}", value=name, expected="only paths inside the run directory")
    return Path(path)
