"""Files at addresses: on a local S3 server and a web server, downloaded once, unchanged, and named by the manifest."""

import gzip
import hashlib
import sys
from types import SimpleNamespace

import fsspec
import pytest

from contrastive_encoders.core import InputError, without_secrets
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.export.input_texts import open_texts
from contrastive_encoders.io import remote_files
from contrastive_encoders.io.file_discovery import list_files, local
from contrastive_encoders.io.manifest import describe_files
from contrastive_encoders.io.rows import ParsedRow, read_rows
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
    anew()
    return SimpleNamespace(system=system, name=name, url=f"s3://{name}", env=s3)


def anew():
    """Reset the state to that of another process."""
    remote_files._found.cache_clear()
    for kind in ("s3", "http"):
        for system in list(fsspec.get_filesystem_class(kind)._cache.values()):
            system.invalidate_cache()


def texts(path, **options):
    rows = [row for file in list_files(path, **options) for row in read_rows(file.path)]
    return [row.values["text"] if isinstance(row, ParsedRow) else row for row in rows]


def test_a_file_a_folder_and_a_pattern_are_read_as_local_ones(bucket, tmp_path):
    files = {"a/one.jsonl": b'{"text": "1"}\n', "a/b/two.txt.gz": gzip.compress(b"2\n3\n"), "a/picture.png": b"\x89"}
    for name, content in files.items():
        bucket.system.pipe(f"{bucket.name}/{name}", content)
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for what in ("a", "a/", "a/one.jsonl", "a/*.jsonl", "*/*/*.txt.gz", ["a/one.jsonl", "a/b"]):
        several = [what] if isinstance(what, str) else what
        remote, here = ([f"{root}/{one}" for one in several] for root in (bucket.url, tmp_path / "here"))
        assert texts(remote) == texts(here), what
        assert [file.in_folder for file in list_files(remote)] == [file.in_folder for file in list_files(here)]
    (tmp_path / "spec.yaml").write_text("x: 1")
    assert local(tmp_path / "spec.yaml", "spec") == tmp_path / "spec.yaml"


def test_a_version_is_fetched_once_and_the_manifest_names_it(bucket, monkeypatch):
    place, url = f"{bucket.name}/t.jsonl", f"{bucket.url}/t.jsonl"
    for content in (b'{"text": "old"}\n', b'{"text": "new"}\n'):  # of equal size
        bucket.system.pipe(place, content)
        anew()
        (file,) = list_files(url)
        (said,) = describe_files([file.path])["files"]
        assert said == {
            "path": url,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "version": hashlib.md5(content).hexdigest(),  # S3's ETag
        }
    bucket.system.rm(place)
    assert texts(url) == ["new"]  # from one process, which has checked
    anew()
    with pytest.raises(InputError, match=r"there is no t\.jsonl in s3://"):
        list_files(url)


@pytest.fixture
def web(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASTIVE_ENCODERS_CACHE", str(tmp_path / "cache"))
    (server.folder / "t.txt").write_text("of the web\n")
    anew()
    return server


def test_the_web(web):
    assert texts(f"{web.url}/t.txt") == ["of the web"]
    (said,) = describe_files([file.path for file in list_files(f"{web.url}/t.txt")])["files"]
    assert (said["path"], said["version"]) == (f"{web.url}/t.txt", "first")
    with pytest.raises(InputError, match=r"none\.txt: there is no such file"):
        list_files(f"{web.url}/none.txt")
    assert without_secrets("https://me:secret@host/a/t.txt?sig=secret#x") == "https://host/a/t.txt"
    assert without_secrets("sftp://me:secret@host/a/b:c@d") == "sftp://host/a/b:c@d"
    assert without_secrets("s3://bucket/a:b@c/d") == "s3://bucket/a:b@c/d"


def test_what_was_fetched_is_read_where_nobody_answers(web, caplog):
    assert texts(f"{web.url}/t.txt") == ["of the web"]
    web.close()
    anew()
    assert texts(f"{web.url}/t.txt") == ["of the web"]
    assert "What was there before is read" in caplog.text
    with pytest.raises(InputError, match=r"other\.txt: no answer \(.*\)\. Check the network"):
        list_files(f"{web.url}/other.txt")


def test_a_download_that_breaks_off_leaves_nothing_that_is_taken_for_the_file(web):
    web.break_off_after = [100, 4]  # the request for its size, and the download
    with pytest.raises(InputError, match=r"t\.txt: no answer"):
        list_files(f"{web.url}/t.txt")
    assert texts(f"{web.url}/t.txt") == ["of the web"]


WRONG = [
    ("s3://no-such-bucket-is-here/t.txt", {}, ["there is no bucket no-such-bucket-is-here"]),
    ("URL/t.jsn", {}, ["there is no t.jsn in s3://", "Did you mean t.jsonl?"]),
    ("URL/t.jsonl", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, ["no access", "AWS_ACCESS_KEY_ID"]),
    ("gs://bucket/t.txt", {}, ["expected the package gcsfs", "pip install 'contrastive-encoders[gcs]'"]),
    ("http://127.0.0.1:9/t.txt", {}, ["no answer", "Check the network"]),
    ("ftp://host/t.txt", {}, ["no address that can be read", "hf://, s3://, gs://"]),
]


@pytest.mark.parametrize(("address", "env", "expected"), WRONG, ids=[address for address, _, _ in WRONG])
def test_what_is_wrong_is_one_sentence_that_says_how_to_mend_it(address, env, expected, bucket, tmp_path, monkeypatch):
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
    said = str(error.value)
    assert said.startswith(f"input={address.replace('URL', bucket.url)}: ")
    assert not [words for words in expected if words not in said], said
    assert "rename" not in said.lower()


def test_tasks_specs_and_texts_at_an_address_are_those_of_the_same_files_here(bucket, tmp_path):
    files = {
        "tasks.yaml": "mine: {kind: retrieval, path: beir}\n",  # relative to the location of the YAML file
        "beir/corpus.jsonl": '{"_id": "d", "text": "an answer"}\n{"_id": "e", "text": "another"}\n',
        "beir/queries.jsonl": '{"_id": "q", "text": "a question"}\n',
        "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\te\t1\n",
        "spec.yaml": "task_name: t\nlabels: {'1': {instruction: 'Write: \"', counter_labels: []}}\n",
        "texts.txt": "one\ntwo\n",
    }
    here = tmp_path / "here"
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
        bucket.system.pipe(f"{bucket.name}/{name}", text.encode())
    for word in ("tasks.yaml", "beir"):
        remote, local_one = (resolve_custom_tasks(f"{root}/{word}")[0] for root in (bucket.url, here))
        assert remote.name == local_one.name
        assert remote.read(EvaluateConfig())[0].texts_to_match == local_one.read(EvaluateConfig())[0].texts_to_match
        assert [file["path"] for file in remote.manifest()["files"]] == [
            f"{bucket.url}/beir/{name}" for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
        ]
    assert read_spec_file(f"{bucket.url}/spec.yaml") == read_spec_file(here / "spec.yaml")
    assert list(open_texts(f"{bucket.url}/texts.txt", None).windows(9, lambda _: True)) == [(0, ["one", "two"])]
