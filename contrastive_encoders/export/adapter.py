"""Export of a LoRA adapter, with the name of its base model, for peft and sentence-transformers.

Stacked adapters are written as one adapter, whose rank is the sum of their ranks.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.attention import is_causal
from contrastive_encoders.encoders.loading.backbones import from_pretrained
from contrastive_encoders.encoders.lora import RECORD, AdapterRecord, alpha_of, is_adapter
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.io.checkpoint import load_intact
from contrastive_encoders.io.model_names import resolve_model_name

log = logging.getLogger(__name__)


class Adapter(NamedTuple):
    """A LoRA adapter: the name of its base model, and the matrices of each layer. ``products`` maps a layer to (A, B),
    with B scaled, so that B A is added to the layer's weight.
    """

    base: str
    products: dict[str, tuple[Tensor, Tensor]]

    def write(self, folder: Path) -> None:
        """Write ``adapter_config.json`` and ``adapter_model.safetensors``."""
        from peft import LoraConfig

        rank = next(iter(self.products.values()))[0].shape[0]
        LoraConfig(
            r=rank,
            lora_alpha=rank,
            target_modules=sorted(self.products),
            base_model_name_or_path=str(Path(self.base).absolute()) if Path(self.base).is_dir() else self.base,
            task_type="FEATURE_EXTRACTION",
            inference_mode=True,
        ).save_pretrained(str(folder))
        weights = {
            f"base_model.model.{name}.lora_{side}.weight": weight.contiguous()
            for name, product in self.products.items()
            for side, weight in zip("AB", product, strict=True)
        }
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def read_adapter(run: str, encoder: SentenceEncoder) -> Adapter:
    """Read the LoRA adapter from the best checkpoint of the run directory ``run``, or from the checkpoint file ``run``.

    Raises:
        InputError: there is no checkpoint, all weights were trained, or the encoder needs its own configuration, which
            such a folder cannot contain.
    """
    path = Path(run) / "checkpoints" / "best.ckpt" if Path(run).is_dir() else Path(run)
    expected = f"a run or a checkpoint with a LoRA adapter, but {path} cannot be read"
    checkpoint = load_intact(path, expected, key="run", value=run)
    record = checkpoint.get(RECORD)
    if record is None:
        raise InputError(
            key="format", value="adapter", expected="sentence_transformers for a run without a LoRA adapter"
        )
    base = resolve_model_name(record["base"])
    if base.gguf_file is not None:
        raise InputError(
            key="format",
            value="adapter",
            expected=f"sentence_transformers, because peft cannot load the GGUF file {record['base']}",
        )
    pooler, config = encoder.pooler, from_pretrained(AutoConfig, record["base"])
    changed_config = {
        "model.attention": is_causal(encoder.trunk.config) != is_causal(config),
        "model.pooling": pooler.decodes or pooler.averages_layers,
    }
    for key, is_changed in changed_config.items():
        if is_changed:
            raise InputError(
                key="format",
                value="adapter",
                expected=f"sentence_transformers, because {key} of this run changes the config of {record['base']}, "
                "which an adapter folder does not contain",
            )
    if record["frozen_weights"] == "bf16":
        log.warning(
            "run=%s was trained with frozen weights in bf16, but this folder is loaded with the unrounded weights of "
            "%s: embeddings differ in the third digit. format=sentence_transformers exports the rounded weights.",
            *(run, record["base"]),
        )
    state = {name.removeprefix(record["prefix"]): weight for name, weight in checkpoint["state_dict"].items()}
    return Adapter(base.name, _products(record, {name: state[name] for name in state if is_adapter(name)}))


def _products(record: AdapterRecord, state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the LoRA matrices (A, B) of each layer, all with the same rank. They are zero for a layer that the adapter
    does not change.
    """
    products = {}
    for layer in dict.fromkeys(name.partition(".lora_")[0] for name in state):
        names = [name for name in state if name.startswith(f"{layer}.lora_")]
        inner, outer = (next(state[name] for name in names if f".lora_{side}." in name) for side in "AB")
        parts = []
        for height, keys in enumerate(record["adapters"], 1):
            rank = keys["rank"] or 0
            a = state.get(f"{layer}.lora_A.{height}.weight", inner.new_zeros(rank, inner.shape[1]))
            b = state.get(f"{layer}.lora_B.{height}.weight", outer.new_zeros(outer.shape[0], rank))
            parts.append((a.float(), b.float() * alpha_of(keys) / rank))
        products[layer] = (torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts], dim=1))
    return products
