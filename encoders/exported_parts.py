"""The modules of a sentence-transformers folder that our encoder knows besides transformer, pooling and unit length."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils.hub import cached_file

from contracts import InputError
from encoders.head import TanhHead
from encoders.hub import only_local
from encoders.pooling import LAST_LAYER, POOLERS

TANH = "torch.nn.modules.activation.Tanh"
OF_THE_VECTOR = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


def pooler_over_layers(name: str, path: str, options: dict[str, Any], tokens: str) -> str | None:
    """Which of our poolers a WeightedLayerPooling before the pooling ``tokens`` amounts to; None: none of them."""
    weights = _weights(name, path).get("layer_weights")
    first, last = options.get("layer_start", 4), options.get("num_hidden_layers", 12)
    if weights is None or weights.shape != (last + 1 - first,):
        raise _damaged(name, path, f"wanted {last + 1 - first} layer_weights")
    used = {first + place: float(weight) for place, weight in enumerate(weights) if weight}
    if len(set(used.values())) == 1:
        for pooling, pooler in POOLERS.items():
            same_tokens = pooler.over_tokens is POOLERS[tokens].over_tokens
            if same_tokens and pooler.layers != LAST_LAYER and {n % (last + 1) for n in pooler.layers} == used.keys():
                return pooling
    return None


def is_tanh_head(options: dict[str, Any]) -> bool:
    """Whether a Dense is the layer that we know: square, with bias and tanh, on the pooled vector."""
    square = options.get("in_features") == options.get("out_features")
    plain = square and options.get("bias", True) and not options.get("use_residual")
    places = all(options.get(key) in (None, place) for key, place in OF_THE_VECTOR.items())
    return bool(plain and places and options.get("activation_function") == TANH)


def read_head(name: str, path: str, width: int) -> TanhHead:
    """Raises InputError where its weights are not there, or do not fit the transformer."""
    return head_of(_weights(name, path), width, f"encoder={name}: the weights in {path}")


def head_of(weights: dict[str, Tensor], width: int, where: str) -> TanhHead:
    head = TanhHead(width, seed=0)
    wanted = {key: tuple(weight.shape) for key, weight in head.state_dict().items()}
    found = {key: tuple(weight.shape) for key, weight in weights.items()}
    if found != wanted:
        raise InputError(f"{where}: wanted {wanted}, got {found}. Fetch or export it again.")
    head.load_state_dict(weights)
    return head


def _weights(name: str, path: str) -> dict[str, Tensor]:
    file = f"{path}/model.safetensors"
    local = only_local(name)
    found = cached_file(name, file, local_files_only=local, _raise_exceptions_for_missing_entries=False)
    if found is None:
        raise _damaged(name, path, "wanted model.safetensors in it, there is none")
    try:
        return load_file(Path(found))
    except (SafetensorError, OSError) as error:
        raise _damaged(name, path, str(error)) from error


def _damaged(name: str, path: str, why: str) -> InputError:
    return InputError(f"encoder={name}: {path} is damaged ({why}). Fetch or export it again.")
