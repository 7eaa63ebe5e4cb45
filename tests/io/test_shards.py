"""Tensors in shards: written by two ranks, read by one, two and three, and by safetensors alone."""

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

WHOLE = {
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
    return write_shards(folder, spread(world, WHOLE))


def read(rank: int, world: int, folder: str) -> dict:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in WHOLE.items() if name != "another"}
    tensors = spread(world, zeros)
    read_shards(steps.Path(folder), tensors)
    return {name: tensor.full_tensor() for name, tensor in tensors.items()}


def refused(rank: int, world: int, folder: str) -> str:
    try:
        write_shards(steps.Path(folder), spread(world, WHOLE))
    except OSError as error:
        return str(error)
    return "nothing"


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
    assert torch.equal(files[0]["of.rows"], WHOLE["of.rows"][:3])
    assert torch.equal(files[1]["of.rows"], WHOLE["of.rows"][3:])


def test_one_process_reads_the_whole(folder, sums):
    found = Shards(folder, "of.", {"again": "rows"})
    assert set(found) == {"rows", "one_row", "16_bits", "number", "again"}
    assert len(found) == 5
    for name, tensor in found.items():
        expected = WHOLE["of.rows" if name == "again" else f"of.{name}"]
        assert torch.equal(tensor, expected)
        assert tensor.dtype == expected.dtype
        assert shapes(found)[name] == tuple(expected.shape)
    with pytest.raises(KeyError):
        found["another"]


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_reads_them(folder, sums, world, tmp_path):
    for rank in steps.together(read, world, tmp_path, str(folder)):
        assert rank.keys() == WHOLE.keys() - {"another"}
        assert all(torch.equal(tensor, WHOLE[name]) for name, tensor in rank.items())


def test_a_changed_byte_and_a_lost_file_are_found(folder, sums, tmp_path):
    compare_shards(folder, sums)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    name, other = sorted(sums)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match=f"{name} has changed since it was written"):
        compare_shards(tmp_path, sums)
    (tmp_path / name).write_bytes(whole)
    (tmp_path / other).unlink()
    with pytest.raises(CorruptFileError, match=rf"{other} cannot be read \(No such file"):
        compare_shards(tmp_path, sums)


def test_a_rank_that_cannot_write_is_heard_of_by_all(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert all("file" in said for said in steps.together(refused, 2, tmp_path, str(tmp_path / "file" / "shards")))


CRAFTED = {
    "a text": "shards-1",
    "no names": {"folder": "shards-1", "files": {}},
    "above": {"folder": "..", "files": {}, "same": {}},
    "nowhere": {"folder": "", "files": {}, "same": {}},
    "a name of nothing": {"folder": "shards-1", "files": {}, "same": {"encoder.x": "nowhere"}},
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_checkpoint_is_damaged_and_removes_nothing(case, folder, sums, tmp_path):
    shutil.copytree(folder, tmp_path / "checkpoints" / "shards-1")
    path = tmp_path / "checkpoints" / "last.ckpt"
    torch.save({"shards": CRAFTED[case], "optimizer_states": []}, path)
    with pytest.raises(CorruptFileError):
        load_checkpoint(path)
    with pytest.raises(CorruptFileError):
        link_checkpoint(path, tmp_path / "run" / "checkpoints" / "best.ckpt")
    assert (tmp_path / "checkpoints" / "shards-1").is_dir()
