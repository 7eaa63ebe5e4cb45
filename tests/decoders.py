"""Folders of small random causal language models, of several families."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import (
    AddedToken,
    ByteLevelBPETokenizer,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.conftest import SENTENCES

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
ROTARY = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
FAMILIES = {
    "llama": lambda **ids: transformers.LlamaConfig(**ROTARY, **ids),
    "qwen3": lambda **ids: transformers.Qwen3Config(**ROTARY, **ids),
    "mistral": lambda **ids: transformers.MistralConfig(**ROTARY, sliding_window=4, **ids),
    "gemma2": lambda **ids: transformers.Gemma2Config(**ROTARY, sliding_window=4, **ids),
    "gemma3": lambda **ids: transformers.Gemma3TextConfig(**ROTARY, sliding_window=4, **ids),
    "phi": lambda **ids: transformers.PhiConfig(**SIZES, max_position_embeddings=64, **ids),
    "opt": lambda **ids: transformers.OPTConfig(
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        word_embed_proj_dim=32,
        max_position_embeddings=64,
        **ids,
    ),
    "gpt2": lambda **ids: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **NO_DROPOUT, **ids),
    "gpt_neo": lambda **ids: transformers.GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]], max_position_embeddings=64, **ids
    ),
}
BEGIN, END = 1, 2


def tokenizer_of_a_decoder():
    """Make a tokenizer like Llama's: a start token before every text, no end token, no pad token, left padding."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(SENTENCES, vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"])
    bpe._tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", BEGIN)])
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, padding_side="left", **roles)


def sentencepiece(kind: str):
    """Byte-pair encoding over texts whose spaces are marks inside tokens, as in Llama's and Gemma's tokenizers.

    ``kind``: llama (a space before the first word of a text alone), llama-always (before that of each piece between
    special tokens), llama-2 (the same put there by a normalizer, as in its tokenizer.json), gemma (none).
    """
    bpe = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [*SENTENCES, *(str(number) for number in range(10))]
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=397, special_tokens=special))
    learnt = json.loads(bpe.to_str())["model"]
    vocab, merges = learnt["vocab"], [tuple(pair) for pair in learnt["merges"]]
    for length in (1, 2, 4):
        vocab["▁" * 2 * length] = len(vocab)
        merges.append(("▁" * length,) * 2)
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if kind == "gemma":
        made = transformers.GemmaTokenizer(vocab, merges, pad_token="</s>", mask_token="<unk>", **roles)
    else:
        made = transformers.LlamaTokenizer(vocab, merges, legacy=kind != "llama", **roles)
    backend = made.backend_tokenizer
    if kind == "llama-2":
        backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        backend.normalizer = bpe.normalizer
        backend.decoder = made.backend_tokenizer.decoder
        backend.add_special_tokens([AddedToken(one, normalized=False) for one in roles.values()])
        made = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    made.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", BEGIN)])
    return made


def save_decoder(family: str, folder: Path, tokenizer: Any = None) -> Path:
    """Save the language model with its head, and its tokenizer."""
    torch.manual_seed(5)
    config = FAMILIES[family](vocab_size=400, bos_token_id=BEGIN, eos_token_id=END, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():  # otherwise the states hardly depend on each other
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    (tokenizer or tokenizer_of_a_decoder()).save_pretrained(folder)
    return folder
