"""Remote files: on a local S3 server and a web server, downloaded once, unchanged, and named in the manifest."""

import gzip
import hashlib
import re
import sys
from types import SimpleNamespace

import fsspec
import pytest

from contrastive_encoders.core import InputError, without_secrets
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.export.input_texts import open_texts
from contrastive_encoders.io import remote_files
from contrastive_encoders.io.file_discovery import list_files, local_path
from contrastive_encoders.io.manifest import describe_files
from contrastive_encoders.io.rows import read_rows
from contrastive_encoders.io.text_files import ParsedRow
from contrastive_encoders.synthesis.task_spec import read_spec_file

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    yield env
    server.stop()


@pytest.fixture
def bucket(s3, tmp_path, monkeypatch):
    """Make a file system with an empty bucket, with a unique name and a separate cache."""
    for name, value in {**s3, "CONTRASTIVE_ENCODERS_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    system = fsspec.filesystem("s3")
    name = "b" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]
    system.mkdir(name)
    clear_caches()
    return SimpleNamespace(system=system, name=name, url=f"s3://{name}", env=s3)


def clear_caches():
    """Reset the state to that of another process."""
    remote_files._find_files.cache_clear()
    for kind in ("s3", "http"):
        for system in list(fsspec.get_filesystem_class(kind)._cache.values()):
            system.invalidate_cache()


def texts(path, **options):
    rows = [row for file in list_files(path, **options) for row in read_rows(file.path)]
    return [row.values["text"] if isinstance(row, ParsedRow) else row for row in rows]


def test_remote_files_folders_and_patterns_are_read_like_local_ones(bucket, tmp_path):
    files = {"a/one.jsonl": b'{"text": "1"}\n', "a/b/two.txt.gz": gzip.compress(b"2\n3\n"), "a/picture.png": b"\x89"}
    for name, content in files.items():
        bucket.system.pipe(f"{bucket.name}/{name}", content)
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for names in (["a"], ["a/"], ["a/one.jsonl"], ["a/*.jsonl"], ["*/*/*.txt.gz"], ["a/one.jsonl", "a/b"]):
        remote, copy = ([f"{root}/{name}" for name in names] for root in (bucket.url, tmp_path / "copy"))
        assert texts(remote) == texts(copy), names
        assert [file.in_folder for file in list_files(remote)] == [file.in_folder for file in list_files(copy)]
    (tmp_path / "spec.yaml").write_text("x: 1")
    assert local_path(tmp_path / "spec.yaml", "spec") == tmp_path / "spec.yaml"


def test_each_version_is_downloaded_once_and_named_in_the_manifest(bucket):
    path, url = f"{bucket.name}/t.jsonl", f"{bucket.url}/t.jsonl"
    for content in (b'{"text": "old"}\n', b'{"text": "new"}\n'):  # of equal size
        bucket.system.pipe(path, content)
        clear_caches()
        (file,) = list_files(url)
        (entry,) = describe_files([file.path])["files"]
        assert entry == {
            "path": url,
            "cached": str(file.path),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "version": hashlib.md5(content).hexdigest(),  # S3's ETag
        }
    bucket.system.rm(path)
    assert texts(url) == ["new"]  # a process looks up an address once
    clear_caches()
    with pytest.raises(InputError) as error:
        list_files(url)
    assert (error.value.key, error.value.value) == ("data.path", url)
    assert re.search(rf"{bucket.url} .*\bt\.jsonl", error.value.expected)


@pytest.fixture
def web(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASTIVE_ENCODERS_CACHE", str(tmp_path / "cache"))
    (server.folder / "t.txt").write_text("a line\n")
    clear_caches()
    return server


def test_a_file_of_a_web_server_is_downloaded(web):
    assert texts(f"{web.url}/t.txt") == ["a line"]
    (entry,) = describe_files([file.path for file in list_files(f"{web.url}/t.txt")])["files"]
    assert (entry["path"], entry["version"]) == (f"{web.url}/t.txt", "first")
    with pytest.raises(InputError) as error:
        list_files(f"{web.url}/none.txt")
    assert (error.value.value, "existing" in error.value.expected) == (f"{web.url}/none.txt", True)
    assert without_secrets("https://me:secret@host/a/t.txt?sig=secret#x") == "https://host/a/t.txt"
    assert without_secrets("sftp://me:secret@host/a/b:c@d") == "sftp://host/a/b:c@d"
    assert without_secrets("s3://bucket/a:b@c/d") == "s3://bucket/a:b@c/d"
    assert without_secrets("1https://me:se:cret@host sftp://a@b") == "1https://host sftp://a@b"
    assert without_secrets("a" * 100_000) == "a" * 100_000  # in linear time


def test_the_cached_copy_is_read_if_the_server_does_not_respond(web, caplog):
    assert texts(f"{web.url}/t.txt") == ["a line"]
    web.close()
    clear_caches()
    assert texts(f"{web.url}/t.txt") == ["a line"]
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.args[0] == f"{web.url}/t.txt"
    with pytest.raises(InputError) as error:
        list_files(f"{web.url}/other.txt")
    assert (error.value.value, "responds" in error.value.expected) == (f"{web.url}/other.txt", True)


def test_an_interrupted_download_leaves_no_file(web):
    web.break_off_after = [100, 4]  # the request for its size, and the download
    with pytest.raises(InputError) as error:
        list_files(f"{web.url}/t.txt")
    assert (error.value.value, "responds" in error.value.expected) == (f"{web.url}/t.txt", True)
    assert texts(f"{web.url}/t.txt") == ["a line"]


WRONG = [  # address, environment, a part of what is expected, and a part of the hint
    ("s3://no-such-bucket-is-here/t.txt", {}, "no-such-bucket-is-here", ""),
    ("URL/t.jsn", {}, " t.jsn", "t.jsonl"),
    ("URL/t.jsonl", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "access", "AWS_ACCESS_KEY_ID"),
    ("gs://bucket/t.txt", {}, "gcsfs", "pip install 'contrastive-encoders[gcs]'"),
    ("http://127.0.0.1:9/t.txt", {}, "responds", "network"),
    ("ftp://host/t.txt", {}, "hf://, s3://, gs://", ""),
]


@pytest.mark.parametrize(("address", "env", "expected", "hint"), WRONG, ids=[address for address, *_ in WRONG])
def test_an_inaccessible_address_is_refused(address, env, expected, hint, bucket, tmp_path, monkeypatch):
    if address.startswith("gs:"):
        monkeypatch.setitem(sys.modules, "gcsfs", None)
        monkeypatch.setattr(remote_files.importlib.util, "find_spec", lambda name: None)
    bucket.system.pipe(f"{bucket.name}/t.jsonl", b'{"text": "1"}\n')
    for name, value in env.items():
        monkeypatch.delenv(name, raising=False) if not value else monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(InputError) as error:
        list_files(address.replace("URL", bucket.url), "input")
    assert (error.value.key, error.value.value) == ("input", address.replace("URL", bucket.url))
    assert expected in error.value.expected
    assert hint in (error.value.hint or "")
    assert "rename" not in str(error.value).lower()


def test_an_address_without_readable_files_is_refused(bucket):
    with pytest.raises(InputError) as raised:
        list_files(bucket.url)
    assert (raised.value.key, raised.value.value) == ("data.path", bucket.url)
    for number in range(2):
        bucket.system.pipe(f"{bucket.name}/{number}.bin", b"0")
        clear_caches()
        with pytest.raises(InputError) as raised:
            list_files(bucket.url)
        assert re.search(rf"\({number + 1} .*\b0\.bin\)", raised.value.expected)


def test_remote_tasks_specs_and_texts_equal_local_ones(bucket, tmp_path):
    files = {
        "tasks.yaml": "mine: {kind: retrieval, path: beir}\n",  # relative to the location of the YAML file
        "beir/corpus.jsonl": '{"_id": "d", "text": "an answer"}\n{"_id": "e", "text": "another"}\n',
        "beir/queries.jsonl": '{"_id": "q", "text": "a question"}\n',
        "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\te\t1\n",
        "spec.yaml": "task_name: t\nlabels: {'1': {instruction: 'Write: \"', counter_labels: []}}\n",
        "texts.txt": "one\ntwo\n",
    }
    folder = tmp_path / "copy"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        bucket.system.pipe(f"{bucket.name}/{name}", text.encode())
    for name in ("tasks.yaml", "beir"):
        remote, copy = (resolve_custom_tasks(f"{root}/{name}")[0] for root in (bucket.url, folder))
        assert remote.name == copy.name
        assert remote.read(EvaluateConfig())[0].texts_to_match == copy.read(EvaluateConfig())[0].texts_to_match
        assert [file["path"] for file in remote.manifest()["files"]] == [
            f"{bucket.url}/beir/{name}" for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
        ]
    assert read_spec_file(f"{bucket.url}/spec.yaml") == read_spec_file(folder / "spec.yaml")
    assert list(open_texts(f"{bucket.url}/texts.txt", None).windows(9, lambda _: True)) == [(0, ["one", "two"])]
