"""Copies of a run's folder (remote_output_dir=), on a server that answers as Amazon's S3 does, and on a disk."""

import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.output_directory import MARKER
from contrastive_encoders.training.run_directory import ENTRIES, is_empty, mirror_of
from tests.distributed.test_restarts import wait_for_rows
from tests.io.test_remote_files import bucket, s3  # noqa: F401  fixtures

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["s3", "disk"])
def address(request, tmp_path):
    if request.param == "disk":
        return str(tmp_path / "there" / "run")
    return f"{request.getfixturevalue('bucket').url}/runs/one"


@pytest.fixture
def folder(tmp_path):
    """Make a folder as a run leaves it."""
    folder = tmp_path / "here"
    marker = json.dumps({"version": 2, "kind": "run", "entries": list(ENTRIES), "identity": {"config": "12ab"}})
    files = {
        MARKER: marker,
        "metrics.csv": "step\n1\n",
        "checkpoints/last.ckpt": "weights " * 1000,
        ".hydra/a.yaml": "a",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    os.link(folder / "checkpoints/last.ckpt", folder / "checkpoints/best.ckpt")
    (folder / "notes.txt").write_text("of the user")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(folder: Path, address: str):
    mirror = mirror_of(folder, address, "12ab")
    mirror.begin(replace=False, fetch=False)
    mirror.finish()
    return mirror


def there(mirror) -> list[str]:
    mirror._system.invalidate_cache()
    return [path.rpartition("/")[2] for path in mirror._system.find(mirror._path("files"))]


def test_an_empty_folder_gets_the_newest_copy(folder, address, tmp_path):
    mirror = mirror_of(folder, address, "12ab")
    assert mirror.begin(replace=False, fetch=False) == []
    mirror.copy()
    assert mirror.wait(30)
    assert len(there(mirror)) == 4  # last and best are the same
    expected = contents(folder)
    (folder / "metrics.csv").write_text("step\n1\n2\n")
    (folder / "checkpoints/last.ckpt").unlink()
    (folder / "checkpoints/last.ckpt").write_text("others")
    mirror.finish()
    assert len(there(mirror)) == 5
    assert not (folder / ".mirror").exists()
    expected = {name: content for name, content in contents(folder).items() if name != "notes.txt"}
    other = tmp_path / "other"
    other.mkdir()
    mirror_of(other, address, "12ab").begin(replace=False, fetch=True)
    assert contents(other) == expected


def test_only_a_folder_without_work_is_replaced(folder, tmp_path):
    assert is_empty(tmp_path / "missing")
    assert not is_empty(folder)
    for name in ("metrics.csv", "checkpoints"):
        remove(folder / name)
    (folder / "notes.txt").unlink()
    assert is_empty(folder)  # a refused start has left its marker
    (folder / MARKER).unlink()
    (folder / "notes.txt").write_text("of the user")
    with pytest.raises(InputError, match=f"output_dir={folder}"):
        is_empty(folder)


def test_a_start_elsewhere_takes_the_address_over(folder, address, tmp_path, caplog):
    first = copied(folder, address)
    mirror_of(tmp_path / "other", address, "12ab").begin(replace=False, fetch=True)
    (folder / "metrics.csv").write_text("of the first")
    first.finish()
    first.copy()
    assert [record for record in caplog.records if "process" in record.getMessage()]
    again = tmp_path / "again"
    mirror_of(again, address, "12ab").begin(replace=False, fetch=True)
    assert (again / "metrics.csv").read_text() == "step\n1\n"


def test_copies_of_another_run_are_refused_or_replaced(folder, address, tmp_path):
    copied(folder, address)
    with pytest.raises(InputError) as refused:
        mirror_of(tmp_path / "other", address, "34cd").begin(replace=False, fetch=False)
    assert refused.value.key == "remote_output_dir"
    assert re.findall("34cd|12ab", refused.value.expected) == ["34cd", "12ab"]
    assert "overwrite=true" in refused.value.hint
    assert mirror_of(tmp_path / "other", address, "34cd").begin(replace=True, fetch=True) == []
    mirror_of(tmp_path / "other", address, "34cd").begin(replace=False, fetch=True)
    assert not (tmp_path / "other").exists()


def test_other_files_at_the_url_are_not_changed(folder, address, tmp_path):
    mirror = mirror_of(folder, address, "12ab")
    mirror._write("probe", b"of the user")
    with pytest.raises(InputError) as refused:
        mirror.begin(replace=False, fetch=True)
    assert refused.value.key == "remote_output_dir"
    assert refused.value.expected.endswith("probe")
    mirror._system.rm(mirror._path("probe"))
    mirror.begin(replace=False, fetch=True)
    mirror.finish()
    for name in ("photo.jpg", "photos/b.jpg"):
        mirror._system.makedirs(mirror._path("files", "photos"), exist_ok=True)
        mirror._system.pipe_file(mirror._path("files", name), b"of the user")
    (folder / "metrics.csv").write_text("others")
    mirror.finish()
    assert {"photo.jpg", "b.jpg"} <= set(there(mirror))
    assert len(there(mirror)) == 6


@pytest.mark.parametrize("place", ["here", "here/checkpoints/copy", "."])
def test_an_address_within_the_folder_is_refused(folder, tmp_path, place):
    with pytest.raises(InputError) as refused:
        mirror_of(folder, str(tmp_path / place), "12ab").begin(replace=False, fetch=False)
    assert (refused.value.key, refused.value.value) == ("remote_output_dir", str(tmp_path / place))
    assert f"output_dir={folder}" in refused.value.expected


def test_the_process_that_started_last_writes_the_copies(folder, address, tmp_path, caplog):
    """This is true even if the older one writes its index again, as at the end of a long upload."""
    older, newer = (mirror_of(folder, address, "12ab") for _ in range(2))
    older.begin(replace=False, fetch=False)
    newer.begin(replace=False, fetch=False)
    older._write_index({})
    newer.finish()
    older.finish()
    assert [record for record in caplog.records if "process" in record.getMessage()]
    assert newer._index()["writer"] == newer._writer
    assert len(newer._index()["files"]) == 5


def test_a_changed_content_and_a_strange_index_are_refused(folder, address, tmp_path):
    mirror = copied(folder, address)
    index = mirror._index()
    of_metrics = index["files"]["metrics.csv"]["sha256"]
    mirror._system.pipe_file(mirror._path("files", of_metrics), b"step\n9\n")
    with pytest.raises(InputError) as refused:
        mirror_of(tmp_path / "other", address, "12ab").begin(replace=False, fetch=True)
    assert refused.value.key == "remote_output_dir"
    assert "metrics.csv" in refused.value.expected
    assert not (tmp_path / "other").exists()
    index["files"]["../../outside"] = index["files"].pop("metrics.csv")
    mirror._write("index.json", json.dumps(index).encode())
    with pytest.raises(InputError) as refused:
        mirror_of(tmp_path / "other", address, "12ab").begin(replace=False, fetch=True)
    assert (refused.value.location, refused.value.value) == (f"{address}/index.json", "../../outside")
    mirror._write("index.json", b"[1, 2]")
    with pytest.raises(InputError) as refused:
        mirror_of(tmp_path / "other", address, "12ab").begin(replace=False, fetch=False)
    assert refused.value.key == "remote_output_dir"
    assert "index.json" in refused.value.expected


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("s3://nobody-has-this-bucket/run", "(nobody-has-this-bucket"),
        ("/proc/run", "expected"),
        ("nonsense://run", "nonsense"),
    ],
)
def test_a_url_that_cannot_be_written_is_refused(url, cause, bucket, folder):  # noqa: F811
    with pytest.raises(InputError) as refused:
        mirror_of(folder, url, "12ab").begin(replace=False, fetch=False)
    assert str(refused.value).startswith(f"remote_output_dir={url}: ")
    assert cause in str(refused.value)


def test_a_failed_copy_is_logged_once_and_repeated(bucket, folder, caplog):  # noqa: F811
    caplog.set_level(logging.INFO)
    mirror = mirror_of(folder, f"{bucket.url}/run", "12ab")
    mirror.begin(replace=False, fetch=False)
    bucket.system.rm(bucket.name, recursive=True)
    for _ in range(2):
        mirror.copy()
        assert mirror.wait(60)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert bucket.name in warnings[0]
    bucket.system.mkdir(bucket.name)
    mirror.copy()
    assert mirror.wait(60)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2
    assert len(there(mirror)) == 4


@pytest.mark.slow
def test_removed_contents_are_copied_again(folder, address):
    mirror = mirror_of(folder, address, "12ab")
    mirror.begin(replace=False, fetch=False)
    mirror.copy()
    assert mirror.wait(30)
    for name in there(mirror):
        mirror._system.rm(mirror._path("files", name))
    mirror.finish()
    assert len(there(mirror)) == 4


@pytest.mark.slow
def test_a_last_copy_that_fails_is_an_error(bucket, folder):  # noqa: F811
    mirror = mirror_of(folder, f"{bucket.url}/run", "12ab")
    mirror.begin(replace=False, fetch=False)
    bucket.system.rm(bucket.name, recursive=True)
    with pytest.raises(TrainingError, match=f"remote_output_dir={bucket.url}/run: "):
        mirror.finish()
    assert contents(folder)


STEPS = 400
KILLS = int(os.environ.get("MIRROR_KILLS", "3"))


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], ["trainer=fsdp", "devices=2"]], ids=["one process", "sharded"])
def test_a_run_resumed_from_the_mirror_has_the_same_result(overrides, bucket, tiny_mlm, tmp_path):  # noqa: F811
    """Each start is killed, and the next one begins on an empty disk."""
    rows = tmp_path / "pairs.jsonl"
    pairs = [{"anchor": f"A ferry of {n} tons.", "positive": f"Ship number {n}"} for n in range(40)]
    rows.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    command = (
        f"""{sys.executable} {ROOT}/train.py model=pairs data=triplets data.path={rows} backbone={tiny_mlm}
        batch_size=4 max_steps={STEPS} log_every_n_steps=1 checkpoint.every_n_steps=10 trainer.accelerator=cpu
        data.num_workers=0 quiet=true output_dir={tmp_path}/run data.cache_dir={tmp_path}/cache""".split()
        + overrides
    )
    environment = (
        os.environ | bucket.env | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    )
    assert subprocess.run(command, env=environment, timeout=300).returncode == 0
    expected = (tmp_path / "run/encoder/model.safetensors").read_bytes(), logged(tmp_path / "run")
    command, chance = [*command, f"remote_output_dir={bucket.url}/run"], random.Random(5)
    for kill in range(KILLS):
        shutil.rmtree(tmp_path / "run")
        job = subprocess.Popen(command, env=environment, start_new_session=True)
        wait_for_rows(tmp_path / "run/metrics.csv", STEPS * kill // KILLS + chance.randrange(STEPS // KILLS))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    shutil.rmtree(tmp_path / "run")
    assert subprocess.run(command, env=environment, timeout=300).returncode == 0
    assert (tmp_path / "run/encoder/model.safetensors").read_bytes() == expected[0]
    assert logged(tmp_path / "run") == expected[1]


def logged(folder: Path) -> list[list[str]]:
    rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    kept = [place for place, name in enumerate(rows[0]) if name in ("step", "train/loss")]
    return [[row[place] for place in kept] for row in rows]
