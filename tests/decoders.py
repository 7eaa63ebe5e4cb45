"""Folders of small random causal language models, of several families."""

from pathlib import Path

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer, processors
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
        hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
        max_position_embeddings=64, **ids,
    ),
    "gpt2": lambda **ids: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **NO_DROPOUT, **ids),
    "gpt_neo": lambda **ids: transformers.GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]], max_position_embeddings=64, **ids
    ),
}  # fmt: skip
BEGIN, END = 1, 2


def tokenizer_of_a_decoder():
    """As Llama's: a begin before every text, no end behind it, no pad token, padding at the left."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(SENTENCES, vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"])
    bpe._tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", BEGIN)])
    roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, padding_side="left", **roles)


def save_decoder(family: str, folder: Path) -> Path:
    """The language model with its head, and its tokenizer."""
    torch.manual_seed(5)
    config = FAMILIES[family](vocab_size=400, bos_token_id=BEGIN, eos_token_id=END, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():  # or the states hardly hear of each other
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    tokenizer_of_a_decoder().save_pretrained(folder)
    return folder
