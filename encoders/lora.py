"""LoRA (Hu et al. 2021): a frozen backbone with trained low-rank adapters.

The layers of peft are injected into the transformer, whose class, config, and hooks do not change, so that it can be
used anywhere. Adapters are named by their position in the stack: "1" is the lowest, and the highest one is trained. A
checkpoint contains the adapters only. The weights below them are loaded from the backbone, which must not have changed.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from contrastive_encoders.compat import raw_parameters
from contrastive_encoders.core import InputError, missing_package
from contrastive_encoders.encoders.kernels.bf16_weights import BF16Linear, cast_frozen_to_bf16, restore_float32
from contrastive_encoders.encoders.kernels.nf4_weights import dequantize, is_quantized, quantize
from contrastive_encoders.encoders.loading.loaded_encoder import fingerprint
from contrastive_encoders.encoders.model_configs import LoraKeys
from contrastive_encoders.io.checkpoint import load_intact
from contrastive_encoders.io.model_names import run_folder

RECORD = "lora"  # key in a checkpoint: description of its adapters
ADAPTER_NAME_PARTS = (".lora_A.", ".lora_B.")


class AdapterRecord(TypedDict):
    """Description of the adapters that a checkpoint contains."""

    base: str  # the backbone below all adapters
    prefix: str  # prefix of the names of the adapted module's weights
    adapters: list[LoraKeys]  # the lowest first
    frozen_weights: str
    digest: str  # digest of the weights below the adapters
    beside: NotRequired[str]  # digest of other frozen weights, such as a language-model head, if there are any


class AdapterBase(NamedTuple):
    """Base model of a new adapter, with the adapters that are already attached to it."""

    base: str
    adapters: list[LoraKeys]
    weights: dict[str, Tensor]  # weights of the adapters, by name within the trunk


def lora_enabled(lora: Any, frozen_dtype: str | None) -> bool:
    """Return whether the settings specify an adapter.

    Raises:
        InputError: If settings of an adapter are given without a rank, or if a required package is not installed.
    """
    if lora and lora["rank"]:
        if find_spec("peft") is None:
            raise missing_package("peft", "lora", key="model.lora.rank", value=lora["rank"])
        if frozen_dtype == "nf4" and find_spec("bitsandbytes") is None:
            raise missing_package("bitsandbytes", "quantization", key="model.frozen_dtype", value="nf4")
        return True
    for key, off in {"alpha": None, "dropout": 0, "targets": "auto"}.items():
        if lora and lora[key] != off:
            raise InputError(
                key=f"model.lora.{key}",
                value=lora[key],
                expected=f"{'null' if off is None else off} if model.lora.rank is not set, because there is no adapter",
                hint="To train an adapter, set model.lora.rank, usually to 16.",
            )
    if frozen_dtype not in (None, "fp32"):
        raise InputError(
            key="model.frozen_dtype",
            value=frozen_dtype,
            expected="fp32 if model.lora.rank is not set, because no weights are frozen",
            hint="To train an adapter, set model.lora.rank, usually to 16.",
        )
    return False


def base_and_adapters(backbone: str, lora: Any) -> AdapterBase:
    """Return the model on which a new adapter is trained, and the adapters that ``backbone`` already has.

    If ``stages`` is "stack", a run that trained an adapter is resolved to its base model and its adapters. Otherwise
    the base model consists of the merged weights of the run.
    """
    if not (lora and lora["rank"] and lora["stages"] == "stack" and run_folder(backbone)):
        return AdapterBase(backbone, [], {})
    best = Path(backbone) / "checkpoints" / "best.ckpt"
    hint = "Copy an intact checkpoint there."
    found = load_intact(best, f"a run with an intact {best.name}", key="backbone", value=backbone, hint=hint)
    record = found.get(RECORD)
    if record is None:  # all weights were trained
        return AdapterBase(backbone, [], {})
    return AdapterBase(
        record["base"], list(record["adapters"]), _adapter_weights(found["state_dict"], record["prefix"])
    )


def adapt(
    transformer: PreTrainedModel, lora: LoraKeys, under: AdapterBase, frozen_dtype: str, *beside: nn.Module
) -> None:
    """Freeze a transformer, and inject its existing adapters and a new, trainable adapter.

    Args:
        transformer: Model to adapt, in place.
        lora: Settings of the new adapter.
        under: Base model with its adapters.
        frozen_dtype: Precision of the frozen weights: "fp32", "bf16", or "nf4". Weights are converted to 4 bits later
            by `quantize_frozen_layers`.
        *beside: Modules that share weights with the transformer.

    Raises:
        InputError: If no layer has a given name, if existing adapters do not fit, or if no layer can be stored in 4
            bits.
    """
    trunk = cast(PreTrainedModel, transformer.base_model)
    transformer.requires_grad_(False)
    adapters = [*under.adapters, lora]
    for height, keys in enumerate(adapters, 1):
        _inject(trunk, str(height), keys)
    _load(trunk, under.weights, f"backbone={under.base}")
    trained = f".{len(adapters)}.weight"
    for name, weight in trunk.named_parameters():
        weight.requires_grad_(is_adapter(name) and name.endswith(trained))
    if frozen_dtype == "nf4" and not _linear_weights(trunk):
        raise InputError(
            key="model.frozen_dtype",
            value="nf4",
            expected=f"bf16 or fp32, because a {transformer.config.model_type} model has no linear layers of torch",
        )
    if frozen_dtype != "fp32":
        cast_frozen_to_bf16(transformer, *beside, rounded=frozen_dtype == "bf16")
    trunk.adapted = AdapterRecord(  # type: ignore[assignment]  # a plain attribute, which is copied with the module
        base=under.base, prefix="", adapters=adapters, frozen_weights=frozen_dtype, digest=""
    )


def quantize_frozen_layers(module: nn.Module) -> None:
    """Quantize the frozen linear layers of the backbone to 4 bits, in place, if the module's `AdapterRecord` specifies
    nf4.

    The digest in the record remains that of the original weights.
    """
    record = record_of(module)
    if record is not None and record["frozen_weights"] == "nf4":
        trunk = next(part for part in module.modules() if "adapted" in vars(part))
        quantize(module, _linear_weights(cast(PreTrainedModel, trunk)))


def dequantize_frozen_layers(module: nn.Module, loaded: Callable[[], nn.Module], where: str) -> bool:
    """Undo `quantize_frozen_layers` in place, using the original weights of the module that ``loaded`` returns.

    Returns:
        True if the module had 4-bit weights.

    Raises:
        InputError: If the backbone differs from the one that the adapters were trained on.
    """
    if not is_quantized(module):
        return False
    original = loaded()
    check_digest(original, cast(AdapterRecord, record_of(module)), where)
    dequantize(module, original)
    return True


def restore(
    transformer: PreTrainedModel, record: AdapterRecord, state: Mapping[str, Tensor], where: str
) -> PreTrainedModel:
    """Load the adapters of a checkpoint into its backbone and merge them into the weights, in float32.

    Args:
        transformer: The backbone.
        record: Description of the adapters.
        state: State dict of the checkpoint, with its original names.
        where: Start of error messages.

    Raises:
        InputError: If the backbone differs from the one that the adapters were trained on.
    """
    under = AdapterBase(record["base"], record["adapters"][:-1], {})
    adapt(transformer, record["adapters"][-1], under, record["frozen_weights"])
    check_digest(transformer.base_model, record, where)
    _load(transformer.base_model, _adapter_weights(state, record["prefix"]), where)
    return merged(transformer).requires_grad_(True)


@torch.no_grad()
def merged(transformer: PreTrainedModel) -> PreTrainedModel:
    """Merge the adapters of a transformer into its weights, in float32 and in place."""
    if is_quantized(transformer):
        raise RuntimeError("Adapters cannot be merged into quantized weights. Call dequantize_frozen_layers first.")
    restore_float32(transformer)
    for name, layer in list(_layers(transformer)):
        layer.merge()
        transformer.set_submodule(name, layer.get_base_layer())
    if "adapted" in vars(transformer.base_model):
        del transformer.base_model.adapted
    return transformer


def record_of(module: nn.Module) -> AdapterRecord | None:
    """Return the description of the adapters of a module, as checkpoints store it; None if it has no adapters."""
    for prefix, part in module.named_modules():
        if "adapted" in vars(part):
            record = cast(AdapterRecord, part.adapted)
            if not record["digest"]:
                record["digest"] = digest(part)
            if part is not module and record["digest"] and "beside" not in record:
                behind = weights_not_checkpointed(module)
                record["beside"] = fingerprint(
                    {
                        name.removeprefix(prefix.rpartition(".")[0]): weight
                        for name, weight in module.named_parameters()
                        if name in behind and not name.startswith(f"{prefix}.")
                    }
                )
            return record | {"prefix": f"{prefix}."}
    return None


def take_digests(module: nn.Module, record: AdapterRecord) -> None:
    """Set the digests of the module's frozen weights to the digests in the record of another process."""
    for part in module.modules():
        if "adapted" in vars(part):
            own = cast(AdapterRecord, part.adapted)
            own["digest"], own["beside"] = record["digest"], record.get("beside", "")


def weights_not_checkpointed(module: nn.Module) -> set[str]:
    """Return the names of weights that checkpoints do not contain because they belong to the frozen backbone."""
    if not any("adapted" in vars(part) for part in module.modules()):
        return set()
    every = module.named_parameters(remove_duplicate=False)
    return {name for name, weight in every if not weight.requires_grad and not is_adapter(name)}


def is_adapter(name: str) -> bool:
    return any(part in name for part in ADAPTER_NAME_PARTS)


def weight_of(linear: Any) -> Tensor:
    """Return the weight (out, in) of a linear layer plus the weights of its adapters, with gradient and without
    dropout.
    """
    weight = linear.weight
    for adapter in getattr(linear, "active_adapters", ()):
        weight = weight + linear.get_delta_weight(adapter)
    return weight


def digest(trunk: nn.Module) -> str:
    """Return the SHA-256 of all weights of ``trunk`` except the adapters, or "" if any of its weights are on the meta
    device.
    """
    if any(weight.is_meta for weight in trunk.parameters()):
        return ""
    return fingerprint({name: weight for name, weight in trunk.named_parameters() if not is_adapter(name)})


def check_digest(module: nn.Module, record: AdapterRecord, where: str) -> None:
    """Check that the frozen weights of ``module``, inside and outside its backbone, have the digests in the record.

    Raises:
        InputError: If the digests differ.
    """
    own = record_of(module)
    if own is None:
        return
    head = own.get("beside", ""), record.get("beside", "")
    for what, here, there in (("trunk", own["digest"], record["digest"]), ("head", *head)):
        if here and there and here != there:
            raise InputError(
                location=where,
                expected=f"the weights that the adapter was trained on, but the {what} of {own['base']} differs "
                f"(digest {there[:8]} in the checkpoint, {here[:8]} here)",
                hint="Restore the backbone that the run started with.",
            )


def _inject(trunk: PreTrainedModel, name: str, keys: LoraKeys) -> None:
    """Inject an adapter and initialize it as peft does (Kaiming uniform for A, zeros for B), but from its own seed."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=cast(int, keys["rank"]),
        lora_alpha=cast(Any, alpha_of(keys)),
        lora_dropout=keys["dropout"],
        target_modules=_targets(trunk, keys["targets"]),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in trunk.modules()),
    )
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, trunk, adapter_name=name)
    del trunk.peft_config  # peft would treat the next adapter as an addition to this one
    drawn = torch.Generator().manual_seed(keys["seed"])
    for _, layer in _layers(trunk):
        if name in layer.lora_A:
            nn.init.kaiming_uniform_(layer.lora_A[name].weight, a=math.sqrt(5), generator=drawn)
            nn.init.zeros_(layer.lora_B[name].weight)
        layer.set_adapter(list(layer.lora_A))
        layer.cast_input_dtype_enabled = False  # under autocast, it would cast inputs to float32 for a 16-bit matmul


def _targets(trunk: PreTrainedModel, wanted: str | Sequence[str]) -> str | list[str]:
    """Check the names of the layers to adapt, and return the value for peft's ``target_modules``.

    peft selects layers by the suffix of their names, and ignores names without a matching layer. It would also adapt a
    language-model head, whose weights may be tied to the embeddings.
    """
    if wanted == "auto":
        return "all-linear"
    named, head = [wanted] if isinstance(wanted, str) else list(wanted), trunk.get_output_embeddings()
    linear = {
        f".{name.removesuffix('.base_layer')}"
        for name, one in trunk.named_modules()
        if isinstance(one, nn.Linear | Conv1D) and one is not head and not is_adapter(f".{name}.")
    }
    unknown = [name for name in named if not any(one.endswith(f".{name}") for one in linear)]
    if unknown or not named:
        called = sorted({name.rpartition(".")[2] for name in linear})
        what = f"there is no linear layer {', '.join(unknown)}" if unknown else "the list is empty"
        raise InputError(
            key="model.lora.targets",
            value=wanted,
            expected=f"auto (all linear layers), or names of linear layers ({', '.join(called)}), but {what}",
        )
    return named


def _linear_weights(trunk: PreTrainedModel) -> set[nn.Parameter]:
    """Return the frozen weights that are used only by linear layers, except for adapters and the LM head."""
    head, linear, others = trunk.get_output_embeddings(), set[nn.Parameter](), set[nn.Parameter | None]()
    for name, layer in trunk.named_modules():
        if type(layer) in (nn.Linear, BF16Linear) and layer is not head and not is_adapter(f".{name}."):
            linear.add(raw_parameters(layer)["weight"])
        else:
            others |= set(raw_parameters(layer).values())
    return {weight for weight in linear - others if not weight.requires_grad}


def alpha_of(keys: LoraKeys) -> float:
    return 2 * cast(int, keys["rank"]) if keys["alpha"] is None else keys["alpha"]


def _layers(transformer: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, module) for name, module in transformer.named_modules() if hasattr(module, "lora_A"))


def _adapter_weights(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in state.items() if is_adapter(name)}


def _load(trunk: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    own = {name: tuple(weight.shape) for name, weight in trunk.named_parameters() if is_adapter(name)}
    different = sorted(name for name, weight in weights.items() if own.get(name) != tuple(weight.shape))
    if different:
        raise InputError(
            location=where,
            expected=f"an adapter that fits the backbone, but the adapter weight {different[0]} does not fit",
            hint="The backbone may have changed: restore the one that the run started with.",
        )
    trunk.load_state_dict(dict(weights), strict=False)
