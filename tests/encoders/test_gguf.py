"""GGUF files as backbone, encoder and generator, against the same weights in transformers' own format."""

import json

import gguf
import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.encoders.loading.backbones import load_masked_lm
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.synthesis.decoding.generator import load_generator
from contrastive_encoders.synthesis.shards.provenance import identify_generator
from tests.conftest import SENTENCES

HEADS, KV_HEADS, HEAD = 4, 2, 8


def halves_interleaved(weight, heads):
    """Interleave the halves: llama.cpp rotates neighboring pairs, transformers rotates the two halves of a head."""
    return weight.view(heads, 2, HEAD // 2, -1).transpose(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Make a random Llama, and its GGUF file in float32, by llama.cpp's own writer."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(SENTENCES, vocab_size=400, special_tokens=["<|endoftext|>", "<s>", "</s>"])
    sizes = {"hidden_size": HEADS * HEAD, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 400}
    config = LlamaConfig(**sizes, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=64)
    torch.manual_seed(3)
    model = LlamaForCausalLM(config).eval()
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HEADS * HEAD)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(400)
    vocabulary = bpe.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens += [f"<unused{n}>" for n in range(400 - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * 397)
    merges = bpe._tokenizer.to_str()
    writer.add_token_merges([" ".join(pair) for pair in json.loads(merges)["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, weight in model.state_dict().items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        weight = halves_interleaved(weight, heads) if heads else weight
        writer.add_tensor(names.get_name(name, (".weight",)), weight.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, path


IDS = torch.tensor([[5, 17, 300, 42, 9, 111]])


def test_the_states_are_those_of_the_same_weights(written, tmp_path):
    model, path = written
    wanted = model.model(input_ids=IDS).last_hidden_state
    backbone = load_masked_lm(str(path), lm_head=False).eval()
    torch.testing.assert_close(backbone(input_ids=IDS).last_hidden_state, wanted, atol=1e-6, rtol=0)
    backbone.save_pretrained(tmp_path)
    saved = LlamaModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(saved(input_ids=IDS).last_hidden_state, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_generator_holds_the_weights_in_the_precision_asked_for(written, precision):
    model, path = written
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    generator = load_generator(str(path), precision=precision, device="cpu")
    found = generator.model.state_dict()
    assert {name: (value.dtype, value.shape) for name, value in found.items()} == {
        name: (dtype, value.shape) for name, value in model.state_dict().items()
    }
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value.to(dtype), atol=0, rtol=0)
    assert generator.eos == (2,)


def test_an_encoder_averages_its_states(written):
    model, path = written
    ids = load_tokenizer(str(path))(SENTENCES[0])["input_ids"]
    wanted = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
    torch.testing.assert_close(load_encoder(path, device="cpu").embed(SENTENCES[0]), wanted, atol=1e-5, rtol=0)


def test_a_generator_is_known_by_its_bytes(written, tmp_path):
    _, path = written
    known = identify_generator(str(path), None)
    moved = tmp_path / path.name
    moved.write_bytes(path.read_bytes())
    assert identify_generator(str(moved), None) == known
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    moved.write_bytes(content)
    assert identify_generator(str(moved), None) != known


@pytest.mark.parametrize("name", ["no/such/file.gguf", "{folder}/torn.gguf", "{folder}/text.gguf"])
def test_an_unreadable_file_is_refused(written, tmp_path, name):
    whole = written[1].read_bytes()
    (tmp_path / "torn.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.gguf").write_text("no weights at all")
    with pytest.raises(InputError) as error:
        load_masked_lm(name.format(folder=tmp_path), lm_head=False)
    path = name.format(folder=tmp_path)
    assert (error.value.key, error.value.value) == ("backbone", path)


@pytest.mark.slow
def test_the_packaged_model_knows_a_capital(smollm2_path):
    generator = load_generator(str(smollm2_path), precision="bf16", device="cpu")
    ids = torch.tensor(generator.encode(["The capital of France is"]))
    out = generator.model.generate(ids, max_new_tokens=1, do_sample=False)
    assert generator.tokenizer.decode(out[0, -1:]) == " Paris"
