"""Sharded tensors: written by two ranks, and read by one, two, and three ranks and by safetensors."""

import errno
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from contrastive_encoders.io.checkpoint import link_checkpoint, load_checkpoint
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.sharded_tensors import Shards, compare_shards, read_shards, shapes, write_shards
from tests.distributed import steps

TENSORS = {
    "of.rows": torch.arange(15.0).view(5, 3),
    "of.one_row": torch.tensor([[1.0, 2.0]]),  # nothing remains for the second rank
    "of.16_bits": torch.arange(6).bfloat16(),
    "of.number": torch.tensor(7.0),
    "another": torch.ones(2),
}


def spread(world: int, tensors: dict) -> dict:
    mesh = init_device_mesh("cpu", (world,))
    return {
        name: distribute_tensor(tensor.clone(), mesh, [Shard(0) if tensor.dim() else Replicate()])
        for name, tensor in tensors.items()
    }


def written(rank: int, world: int, folder: str) -> dict:
    (folder := steps.Path(folder)).mkdir(exist_ok=True)
    return write_shards(folder, spread(world, TENSORS))


def read(rank: int, world: int, folder: str) -> dict:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items() if name != "another"}
    tensors = spread(world, zeros)
    read_shards(steps.Path(folder), tensors)
    return {name: tensor.full_tensor() for name, tensor in tensors.items()}


def write_error(rank: int, world: int, folder: str) -> str:
    try:
        write_shards(steps.Path(folder), spread(world, TENSORS))
    except OSError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written") / "shards"


@pytest.fixture(scope="module")
def sums(folder, tmp_path_factory):
    first, second = steps.together(written, 2, tmp_path_factory.mktemp("ranks"), str(folder))
    assert first == second
    return first


def test_each_rank_writes_its_own_file(folder, sums):
    files = [load_file(path) for path in sorted(folder.iterdir())]
    assert [path.name for path in sorted(folder.iterdir())] == sorted(sums)
    assert torch.equal(files[0]["of.rows"], TENSORS["of.rows"][:3])
    assert torch.equal(files[1]["of.rows"], TENSORS["of.rows"][3:])


def test_one_process_reads_full_tensors(folder, sums):
    found = Shards(folder, "of.", {"again": "rows"})
    assert set(found) == {"rows", "one_row", "16_bits", "number", "again"}
    assert len(found) == 5
    for name, tensor in found.items():
        expected = TENSORS["of.rows" if name == "again" else f"of.{name}"]
        assert torch.equal(tensor, expected)
        assert tensor.dtype == expected.dtype
        assert shapes(found)[name] == tuple(expected.shape)
    with pytest.raises(KeyError):
        found["another"]


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_reads_them(folder, sums, world, tmp_path):
    for rank in steps.together(read, world, tmp_path, str(folder)):
        assert rank.keys() == TENSORS.keys() - {"another"}
        assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in rank.items())


def test_a_changed_byte_and_a_missing_file_are_detected(folder, sums, tmp_path):
    compare_shards(folder, sums)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    name, other = sorted(sums)
    intact = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    with pytest.raises(CorruptFileError) as error:
        compare_shards(tmp_path, sums)
    assert str(tmp_path / name) in str(error.value)
    (tmp_path / name).write_bytes(intact)
    (tmp_path / other).unlink()
    with pytest.raises(CorruptFileError) as error:
        compare_shards(tmp_path, sums)
    assert all(part in str(error.value) for part in (str(tmp_path / other), os.strerror(errno.ENOENT)))


def test_all_ranks_raise_the_error_of_a_rank_that_cannot_write(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    errors = steps.together(write_error, 2, tmp_path, str(tmp_path / "file" / "shards"))
    assert all("file" in error for error in errors)


CRAFTED = {
    "string": "shards-1",
    "missing key": {"folder": "shards-1", "files": {}},
    "parent folder": {"folder": "..", "files": {}, "same": {}},
    "empty name": {"folder": "", "files": {}, "same": {}},
    "unknown tensor": {"folder": "shards-1", "files": {}, "same": {"encoder.x": "unknown"}},
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_checkpoint_is_refused_and_removes_no_files(case, folder, sums, tmp_path):
    shutil.copytree(folder, tmp_path / "checkpoints" / "shards-1")
    path = tmp_path / "checkpoints" / "last.ckpt"
    torch.save({"shards": CRAFTED[case], "optimizer_states": []}, path)
    with pytest.raises(CorruptFileError):
        load_checkpoint(path)
    with pytest.raises(CorruptFileError):
        link_checkpoint(path, tmp_path / "run" / "checkpoints" / "best.ckpt")
    assert (tmp_path / "checkpoints" / "shards-1").is_dir()
