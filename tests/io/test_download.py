"""Interrupted downloads, wrong or unavailable servers, changed files, malicious archives."""

import hashlib
import io
import socket
import tarfile
import zipfile

import pytest
import requests

from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.download import DownloadError, Downloads, File

DATA = bytes(range(256)) * 4000


@pytest.fixture
def get(tmp_path, server):
    (server.folder / "set.bin").write_bytes(DATA)

    def get(name="set.bin", sha256=None, downloads=None):
        downloads = downloads or Downloads(tmp_path / "root", None, quiet=True)
        return downloads.get(File(name, f"{server.url}/{name}", sha256))

    return get


def test_an_interrupted_download_is_retried(get, server):
    server.break_off_after = [300_000, 500_001]
    assert get().read_bytes() == DATA
    assert server.asked == ["/set.bin"] * 3


def test_no_partial_file_remains_and_the_next_run_downloads_it(get, server, tmp_path):
    server.break_off_after = [100, 100, 100]
    with pytest.raises(DownloadError) as error:
        get()
    assert all(part in str(error.value) for part in ("set.bin", "100 bytes read", "1023900 more"))  # urllib3's words
    assert not list((tmp_path / "root/downloads").iterdir())
    assert get().read_bytes() == DATA
    assert [path.name for path in (tmp_path / "root/downloads").iterdir()] == ["set.bin"]


def test_a_file_with_another_checksum_is_refused(get, tmp_path):
    with pytest.raises(DownloadError) as error:
        get(sha256="0" * 64)
    assert all(digest[:12] in str(error.value) for digest in ("0" * 64, hashlib.sha256(DATA).hexdigest()))
    assert not (tmp_path / "root/downloads/set.bin").exists()
    assert get(sha256=hashlib.sha256(DATA).hexdigest()).read_bytes() == DATA


def test_a_changed_file_adds_a_remark(get, server, tmp_path):
    get().unlink()
    (server.folder / "set.bin").write_bytes(b"other")
    downloads = Downloads(tmp_path / "root", None, quiet=True)
    get(downloads=downloads)
    assert all(hashlib.sha256(data).hexdigest()[:12] in downloads.remarks["set.bin"] for data in (DATA, b"other"))


@pytest.mark.parametrize(("listens", "reason"), [(False, "refused"), (True, "timed out")])
def test_an_unreachable_host_receives_one_request(tmp_path, monkeypatch, listens, reason):
    requested = []
    real = requests.get
    monkeypatch.setattr(requests, "get", lambda url, **keys: (requested.append(url), real(url, **keys))[1])
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        if listens:  # and never reads the request
            host.listen()
        url = f"http://127.0.0.1:{host.getsockname()[1]}"
        downloads = Downloads(tmp_path, None, quiet=True, timeout=0.2)
        for name in ("a.zip", "b.zip"):
            with pytest.raises(DownloadError, match=reason):  # the words of Python's socket
                downloads.get(File(name, f"{url}/{name}"))
    assert requested == [f"{url}/a.zip"]


@pytest.mark.parametrize(
    "name", ["../outside.txt", "a/../../outside.txt", "/etc/outside.txt", "..\\outside.txt", "C:/o.txt"]
)
def test_paths_outside_of_the_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("good.txt", "good")
        archive.writestr(name, "bad")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    for archive in ("bad.zip", "bad.tar"):
        with pytest.raises(InvalidArchiveError) as error:
            Members([tmp_path / archive])
        assert archive in str(error.value)
        assert repr(name) in str(error.value)


def test_links_in_archives_are_not_followed(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info = tarfile.TarInfo("link.txt")
            info.type, info.linkname = kind, str(tmp_path / "secret.txt")
            archive.addfile(info)
    members = Members([tmp_path / "links.tar"])
    assert not members.has("link.txt")
    with pytest.raises(InvalidArchiveError):
        members.read("link.txt")


@pytest.mark.parametrize("name", ["cut.zip", "cut.tar.gz", "cut.txt.gz"])
def test_a_truncated_archive_is_refused(tmp_path, name):
    noise = b"".join(hashlib.sha256(bytes([i % 256, i // 256])).digest() for i in range(3000))
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("cut.txt", noise)
    elif name.endswith(".tar.gz"):
        with tarfile.open(path, "w:gz") as archive:
            info = tarfile.TarInfo("cut.txt")
            info.size = len(noise)
            archive.addfile(info, io.BytesIO(noise))
    else:
        import gzip

        path.write_bytes(gzip.compress(noise))
    assert Members([path]).read("cut.txt") == noise
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(InvalidArchiveError) as error:
        Members([path]).read("cut.txt")
    assert "cut." in str(error.value)
