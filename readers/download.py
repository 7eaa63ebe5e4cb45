"""Downloads from a host, a mirror or a folder; an interrupted download is continued."""

import contextlib
import http.client
import json
import logging
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from contracts import InputError
from storage.atomic import write_whole
from storage.manifest import sha256_of

log = logging.getLogger(__name__)

FOLDER = "downloads"  # under the root; may be deleted once all is there
RECORD = "sources.json"  # under the root: what was got, from where, with which sha256
SCHEMES = ("http://", "https://", "file://")
CHUNK = 1 << 20
ATTEMPTS = 3
# some hosts refuse Python's own name
HEADERS = {"User-Agent": "Mozilla/5.0 (contrastive-encoders; data sets)", "Accept-Encoding": "identity"}


class File(NamedTuple):
    name: str  # under ROOT/downloads, in a source folder, and behind a mirror's URL
    url: str
    sha256: str | None = None


class NotGot(ValueError):
    """A file could not be had."""


class NoAnswer(NotGot):
    """The host cannot be reached at all."""


def in_folder(folder: Path, name: str) -> Path:
    """A file in a source folder; NotGot where there is none."""
    if (folder / name).is_file():
        return folder / name
    raise NotGot(f"no {name} in {folder}")


class Downloads:
    """Local paths of files, each got once; a host that does not answer is asked once.

    ``source`` is a folder that has the files, in which ``found_in`` finds them, or the URL under which a mirror has
    them; None: each file's own URL.

    Raises:
        InputError: a source that is no folder.
    """

    def __init__(
        self,
        root: Path,
        source: str | None,
        quiet: bool,
        timeout: float = 30,
        found_in: Callable[[Path, str], Path] = in_folder,
    ) -> None:
        self.root, self.quiet, self.timeout, self.found_in = root, quiet, timeout, found_in
        self.mirror = source.rstrip("/") if source and source.startswith(SCHEMES) else None
        if source and not self.mirror and not Path(source).is_dir():
            raise InputError(
                f"source={source}: no such folder; wanted a folder with the files, or an http(s) or file URL."
            )
        self.folder = Path(source) if source and not self.mirror else None
        self._failed: dict[str, str] = {}  # file or host -> why
        self.remarks: dict[str, str] = {}  # file name -> what is odd about it

    def get(self, file: File) -> Path:
        """A file, or a folder in its place; NotGot says why there is none."""
        if self.folder:
            return self.found_in(self.folder, file.name)
        path = self.root / FOLDER / file.name
        if not path.is_file():
            url = f"{self.mirror}/{urllib.parse.quote(file.name)}" if self.mirror else file.url
            host = urllib.parse.urlsplit(url).netloc
            for known in (url, host):
                if known in self._failed:
                    raise NotGot(self._failed[known])
            try:
                self._download(url, path)
            except NotGot as error:
                self._failed[host if isinstance(error, NoAnswer) else url] = str(error)
                raise
            self._record(file, url, path)
        return path

    def _download(self, url: str, path: Path) -> None:
        part = path.with_name(f"{path.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        failures = 0
        while True:
            before = part.stat().st_size if part.is_file() else 0
            try:
                self._go_on(url, part)
                part.replace(path)
                part.with_name(f"{part.name}.tag").unlink(missing_ok=True)
                return
            except urllib.error.HTTPError as error:
                raise NotGot(f"{url}: HTTP {error.code} {error.reason}") from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if not part.is_file():
                    raise NoAnswer(f"{url}: {reason}") from None
                have = part.stat().st_size
                failures = 1 if have - before > CHUNK else failures + 1  # a line that breaks often may still bring all
                if failures == ATTEMPTS:
                    raise NotGot(f"{url}: {reason}") from None
                log.info("%s: %s; going on from byte %d", url, reason, have)

    def _go_on(self, url: str, part: Path) -> None:
        """Appends what is missing to ``part``; a server that changed the file, or knows no ranges, sends all of it."""
        tag_file = part.with_name(f"{part.name}.tag")
        have = part.stat().st_size if part.is_file() and tag_file.is_file() else 0
        headers = dict(HEADERS)
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": tag_file.read_text()}
        with contextlib.closing(_open(url, headers, self.timeout)) as response:
            appended = response.status == http.HTTPStatus.PARTIAL_CONTENT
            have = have if appended else 0
            tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
            tag_file.write_text(tag) if tag else tag_file.unlink(missing_ok=True)
            length = response.headers.get("Content-Length")
            total = int(length) + have if length else None
            with part.open("ab" if appended else "wb") as out, self._bar(part.stem, have, total) as bar:
                while chunk := response.read(CHUNK):
                    out.write(chunk)
                    bar.update(len(chunk))
        if total is not None and part.stat().st_size != total:
            raise ConnectionError(f"ended after {part.stat().st_size} of {total} bytes")

    @contextlib.contextmanager
    def _bar(self, name: str, have: int, total: int | None) -> Iterator[Any]:
        from tqdm import tqdm

        hidden = self.quiet or not sys.stderr.isatty()
        with tqdm(desc=name, initial=have, total=total, unit="B", unit_scale=True, disable=hidden) as bar:
            yield bar

    def _record(self, file: File, url: str, path: Path) -> None:
        """Writes down what was got; NotGot when it is not what is known, a remark when it is not what it was before."""
        digest = sha256_of(path)
        if file.sha256 and digest != file.sha256:
            path.unlink()
            raise NotGot(f"{url}: sha256 {digest[:12]}... instead of {file.sha256[:12]}...; refused")
        record_file = self.root / RECORD
        record = json.loads(record_file.read_text(encoding="utf-8")) if record_file.is_file() else {}
        before = record.get(file.name)
        if before and before["sha256"] != digest:
            self.remarks[file.name] = (
                f"{file.name} is not the file got on {before['got']} from {before['url']} "
                f"(sha256 {digest[:12]}..., then {before['sha256'][:12]}...)"
            )
            log.warning(self.remarks[file.name])
        today = datetime.now(UTC).date().isoformat()
        record[file.name] = {"url": url, "sha256": digest, "bytes": path.stat().st_size, "got": today}
        write_whole(record_file, json.dumps(record, indent=1, sort_keys=True) + "\n")


def _open(url: str, headers: dict[str, str], timeout: float) -> Any:
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
    plain = {name: value for name, value in headers.items() if name not in ("Range", "If-Range")}
    return urllib.request.urlopen(urllib.request.Request(url, headers=plain), timeout=timeout)
