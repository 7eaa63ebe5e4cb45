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


def test_a_broken_download_begins_anew(get, server):
    server.break_off_after = [300_000, 500_001]
    assert get().read_bytes() == DATA
    assert server.asked == ["/set.bin"] * 3


def test_nothing_half_is_left_and_the_next_run_gets_it(get, server, tmp_path):
    server.break_off_after = [100, 100, 100]
    with pytest.raises(DownloadError, match=r"set\.bin: .*100 bytes read, 1023900 more expected"):
        get()
    assert not list((tmp_path / "root/downloads").iterdir())
    assert get().read_bytes() == DATA
    assert [path.name for path in (tmp_path / "root/downloads").iterdir()] == ["set.bin"]


def test_a_known_checksum_is_held_to(get, tmp_path):
    with pytest.raises(DownloadError, match=r"sha256 .* instead of 000000"):
        get(sha256="0" * 64)
    assert not (tmp_path / "root/downloads/set.bin").exists()
    assert get(sha256=hashlib.sha256(DATA).hexdigest()).read_bytes() == DATA


def test_a_file_that_is_not_the_one_got_before_is_remarked(get, server, tmp_path):
    get().unlink()
    (server.folder / "set.bin").write_bytes(b"other")
    downloads = Downloads(tmp_path / "root", None, quiet=True)
    get(downloads=downloads)
    assert "is not the file got on" in downloads.remarks["set.bin"]


@pytest.mark.parametrize(("listens", "why"), [(False, "refused"), (True, "timed out")])
def test_a_host_that_does_not_answer_is_asked_once(tmp_path, monkeypatch, listens, why):
    asked = []
    real = requests.get
    monkeypatch.setattr(requests, "get", lambda url, **keys: (asked.append(url), real(url, **keys))[1])
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        if listens:  # and never reads the request
            host.listen()
        url = f"http://127.0.0.1:{host.getsockname()[1]}"
        downloads = Downloads(tmp_path, None, quiet=True, timeout=0.2)
        for name in ("a.zip", "b.zip"):
            with pytest.raises(DownloadError, match=why):
                downloads.get(File(name, f"{url}/{name}"))
    assert asked == [f"{url}/a.zip"]


@pytest.mark.parametrize(
    "name", ["../outside.txt", "a/../../outside.txt", "/etc/outside.txt", "..\\outside.txt", "C:/o.txt"]
)
def test_paths_out_of_the_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("good.txt", "good")
        archive.writestr(name, "bad")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    for archive in ("bad.zip", "bad.tar"):
        with pytest.raises(InvalidArchiveError, match="points outside of the archive"):
            Members([tmp_path / archive])


def test_links_in_archives_lead_nowhere(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info = tarfile.TarInfo("link.txt")
            info.type, info.linkname = kind, str(tmp_path / "secret.txt")
            archive.addfile(info)
    with pytest.raises(InvalidArchiveError, match=r"no member link\.txt"):
        Members([tmp_path / "links.tar"]).read("link.txt")


@pytest.mark.parametrize("name", ["cut.zip", "cut.tar.gz", "cut.txt.gz"])
def test_a_cut_archive_says_so(tmp_path, name):
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
    with pytest.raises(InvalidArchiveError, match=r"no readable archive|damaged or cut short"):
        Members([path]).read("cut.txt")
