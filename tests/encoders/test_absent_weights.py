"""Backbones without their weights: the same model in all but values, without reading the file into memory."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from contrastive_encoders.encoders.loading.meta_weights import absent_weights
from contrastive_encoders.encoders.sharding import full_tensor
from tests.decoders import save_decoder
from tests.distributed import steps
from tests.objectives import built

LORA = {"rank": 4, "alpha": None, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
CASES = {
    "masked LM": ("declutr", "encoder", {"mlm_weight": 1.0}),
    "adapter over 16 bits": ("pairs", "decoder", {"pooling": "last", "lora": LORA, "frozen_dtype": "bf16"}),
    "layers after the pooling": ("simcse", "encoder", {"mlp": True, "mlp_only_train": False}),
}


def model_of(name: str, folders: dict):
    objective, backbone, options = CASES[name]
    return built(objective, folders[backbone], **options)


@pytest.fixture(scope="module")
def folders(tiny_mlm, tmp_path_factory):
    return {"encoder": str(tiny_mlm), "decoder": str(save_decoder("llama", tmp_path_factory.mktemp("llama")))}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_model_without_values(name, folders):
    whole = model_of(name, folders)
    with absent_weights(True):
        empty = model_of(name, folders)
    theirs, ours = dict(whole.named_parameters()), dict(empty.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(weight.is_meta for weight in empty.transformer.parameters())
    for key, weight in theirs.items():
        assert (ours[key].shape, ours[key].dtype) == (weight.shape, weight.dtype)
        assert ours[key].requires_grad == weight.requires_grad
    assert dict(empty.named_buffers()).keys() == dict(whole.named_buffers()).keys()
    assert not any(buffer.is_meta for buffer in empty.buffers())


def received(rank: int, world: int, folders: dict) -> dict:
    found = {}
    for name in CASES:
        with absent_weights(rank > 0):
            model = model_of(name, folders)
        model.shard(init_device_mesh("cpu", (world,)))
        found[name] = {key: full_tensor(weight.detach()) for key, weight in model.named_parameters()}
    return found


@pytest.mark.rotates
def test_ranks_get_their_part_of_what_rank_0_has(folders, tmp_path):
    for rank in steps.together(received, 2, tmp_path, folders):
        for name in CASES:
            for key, weight in model_of(name, folders).named_parameters():
                assert torch.equal(rank[name][key], weight.detach()), key
