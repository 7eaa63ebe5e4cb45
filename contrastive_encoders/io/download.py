"""Download files with pooch from their original host or a mirror, or find them in a local folder. Files are written
atomically.
"""

import json
import logging
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.io.atomic import atomic_file, atomic_write
from contrastive_encoders.io.manifest import sha256_of

log = logging.getLogger(__name__)

FOLDER = "downloads"  # under the root; may be deleted after everything is prepared
RECORD = "sources.json"  # under the root: downloaded files, their sources, and their sha256
CHUNK = 1 << 20
ATTEMPTS = 3  # for a file whose download is interrupted
# some hosts reject Python's user agent; some compress .gz files again, so that they would be decompressed twice
HEADERS = {"User-Agent": "Mozilla/5.0 (contrastive-encoders; data sets)", "Accept-Encoding": "identity"}


class File(NamedTuple):
    name: str  # under ROOT/downloads, in a source folder, and appended to a mirror's URL
    url: str
    sha256: str | None = None


class DownloadError(ValueError):
    """Raised if a file cannot be downloaded."""


class HostUnreachableError(DownloadError):
    """Raised if the host cannot be reached, or stops responding."""


def find_in_folder(folder: Path, name: str) -> Path:
    """Return the path of the file ``name`` in a source folder.

    Raises:
        DownloadError: the file does not exist.
    """
    if (folder / name).is_file():
        return folder / name
    raise DownloadError(f"{folder} does not contain {name}")


class Downloads:
    """Downloader that returns local paths of files, and downloads each file once. A host that does not respond is not
    tried again.

    Args:
        source: a folder that contains the files, in which ``found_in`` finds them, or the base URL of a mirror; None
            selects each file's own URL.

    Raises:
        InputError: the source is not a folder.
    """

    def __init__(
        self,
        root: Path,
        source: str | None,
        quiet: bool,
        timeout: float = 30,
        found_in: Callable[[Path, str], Path] = find_in_folder,
    ) -> None:
        self.root, self.timeout, self.found_in = root, timeout, found_in
        self.bar = not quiet and sys.stderr.isatty()
        self.mirror = source.rstrip("/") if source and source.startswith(("http://", "https://")) else None
        self.folder = _folder(source) if source and not self.mirror else None
        self._failed: dict[str, str] = {}  # file or host -> why
        self.remarks: dict[str, str] = {}  # file name -> remark about an anomaly

    def get(self, file: File) -> Path:
        """Return the local path of a file. In a source folder, this may be a folder with its contents.

        Raises:
            DownloadError: the file is not available.
        """
        if self.folder:
            return self.found_in(self.folder, file.name)
        path = self.root / FOLDER / file.name
        if not path.is_file():
            url = f"{self.mirror}/{urllib.parse.quote(file.name)}" if self.mirror else file.url
            host = urllib.parse.urlsplit(url).netloc
            for known in (url, host):
                if known in self._failed:
                    raise DownloadError(self._failed[known])
            try:
                with atomic_file(path) as part:
                    self._download(url, part)
                    self._record(file, url, part)
            except DownloadError as error:
                self._failed[host if isinstance(error, HostUnreachableError) else url] = str(error)
                raise
        return path

    def _download(self, url: str, part: Path) -> None:
        import requests
        from pooch import HTTPDownloader

        download = HTTPDownloader(self.bar, CHUNK, headers=HEADERS, timeout=self.timeout)
        for attempts_left in reversed(range(ATTEMPTS)):
            log.info("downloading %s", url)
            try:
                return download(url, part, None)
            except (requests.HTTPError, ValueError) as error:  # ValueError: invalid address
                raise DownloadError(f"{url}: {str(error).partition(' for url')[0]}") from None
            except (requests.ConnectionError, requests.Timeout) as error:
                raise HostUnreachableError(
                    f"{urllib.parse.urlsplit(url).netloc} does not respond: {_first_cause(error)}"
                ) from None
            except requests.RequestException as error:
                if not attempts_left:
                    raise DownloadError(f"{url}: {_first_cause(error)}") from None

    def _record(self, file: File, url: str, part: Path) -> None:
        """Write the checksum, address, and date of a downloaded file to the record of downloads. If it differs from the
        recorded previous download, add a remark.

        Raises:
            DownloadError: the file differs from its known checksum.
        """
        digest = sha256_of(part)
        if file.sha256 and digest != file.sha256:
            raise DownloadError(f"{url}: expected the sha256 {file.sha256[:12]}..., got {digest[:12]}...")
        record_file = self.root / RECORD
        record = json.loads(record_file.read_text(encoding="utf-8")) if record_file.is_file() else {}
        before = record.get(file.name)
        if before and before["sha256"] != digest:
            self.remarks[file.name] = (
                f"{file.name} differs from the file downloaded on {before['got']} from {before['url']} "
                f"(sha256 {digest[:12]}..., previously {before['sha256'][:12]}...)"
            )
            log.warning(self.remarks[file.name])
        today = datetime.now(UTC).date().isoformat()
        record[file.name] = {"url": url, "sha256": digest, "bytes": part.stat().st_size, "got": today}
        atomic_write(record_file, json.dumps(record, indent=1, sort_keys=True) + "\n")


def _folder(source: str) -> Path:
    address = urllib.parse.urlsplit(source)
    folder = Path(urllib.request.url2pathname(address.path) if address.scheme == "file" else source)
    if not folder.is_dir():
        raise InputError(key="download_mirror", value=source, expected="an existing folder, or an http(s) or file URL")
    return folder


def _first_cause(error: BaseException) -> BaseException:
    """Return the original error, of the operating system or the remote host, from which a chain of ``requests`` and
    ``urllib3`` exceptions started.
    """
    while error.__context__ is not None:
        error = error.__context__
    return error
