"""LoRA (Hu et al. 2021): a frozen backbone with trained low-rank adapters.

The layers are peft's. They are put into the transformer itself, whose class, config and hooks stay what they are, so
that any module may hold it. Adapters are called by their height: "1" is the lowest, and the highest is trained. A
checkpoint holds the adapters; the weights below them come from the backbone, which must be the same again.
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
from contrastive_encoders.encoders.kernels.bf16_weights import HeldLinear, cast_frozen_to_bf16, restore_float32
from contrastive_encoders.encoders.kernels.nf4_weights import dequantize, is_quantised, quantise
from contrastive_encoders.encoders.loading.loaded_encoder import fingerprint
from contrastive_encoders.encoders.model_configs import LoraKeys
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.model_names import run_folder

RECORD = "lora"  # the entry of a checkpoint that says what its adapters are
ADAPTER_NAME_PARTS = (".lora_A.", ".lora_B.")


class AdapterRecord(TypedDict):
    """What a checkpoint says about its adapters."""

    base: str  # the backbone below all of them
    prefix: str  # of the names of what they are in
    adapters: list[LoraKeys]  # the lowest first
    frozen_weights: str
    digest: str  # of the weights below
    beside: NotRequired[str]  # of other frozen weights, such as a language-model head, where there are any


class AdapterBase(NamedTuple):
    """What an adapter is put upon."""

    base: str
    adapters: list[LoraKeys]
    weights: dict[str, Tensor]  # of the adapters, by names within the trunk


def lora_enabled(lora: Any, frozen_weights: str | None) -> bool:
    """Whether there is to be an adapter.

    Raises:
        InputError: a key asks for one, and there is none; or what makes it is not installed.
    """
    if lora and lora["rank"]:
        if find_spec("peft") is None:
            raise missing_package("peft", "lora", key="model.lora.rank", value=lora["rank"])
        if frozen_weights == "nf4" and find_spec("bitsandbytes") is None:
            raise missing_package("bitsandbytes", "bits", key="model.frozen_weights", value="nf4")
        return True
    for key, off in {"alpha": None, "dropout": 0, "targets": "auto"}.items():
        if lora and lora[key] != off:
            raise InputError(f"model.lora.{key}={lora[key]}: there is no adapter without model.lora.rank; 16 is usual.")
    if frozen_weights not in (None, "fp32"):
        raise InputError(
            f"model.frozen_weights={frozen_weights}: nothing is frozen without model.lora.rank; 16 is usual."
        )
    return False


def base_and_adapters(backbone: str, lora: Any) -> AdapterBase:
    """What ``backbone`` is below a new adapter: with ``stages=stack`` a run that trained one is its own base and its
    adapters, else its merged weights.
    """
    if not (lora and lora["rank"] and lora["stages"] == "stack" and run_folder(backbone)):
        return AdapterBase(backbone, [], {})
    best = Path(backbone) / "checkpoints" / "best.ckpt"
    try:
        found = load_checkpoint(best)
    except (OSError, CorruptFileError) as error:
        raise InputError(
            f"backbone={backbone}: {best.name} cannot be used ({error}). Copy a good one there."
        ) from error
    record = found.get(RECORD)
    if record is None:  # all weights were trained
        return AdapterBase(backbone, [], {})
    return AdapterBase(record["base"], list(record["adapters"]), _within(found["state_dict"], record["prefix"]))


def adapt(
    transformer: PreTrainedModel, lora: LoraKeys, under: AdapterBase, frozen_weights: str, *beside: nn.Module
) -> None:
    """Freeze the transformer, and put adapters into its trunk: those from ``under``, and a new one that is trained.

    Modules ``beside`` share weights with it. Weights for 4 bits stay as they are until `quantize_frozen_layers`.

    Raises:
        InputError: no layer has such a name, the adapters below do not fit, or no layer can be in 4 bits.
    """
    trunk = cast(PreTrainedModel, transformer.base_model)
    transformer.requires_grad_(False)
    adapters = [*under.adapters, lora]
    for height, keys in enumerate(adapters, 1):
        _put_in(trunk, str(height), keys)
    _load(trunk, under.weights, f"backbone={under.base}")
    trained = f".{len(adapters)}.weight"
    for name, weight in trunk.named_parameters():
        weight.requires_grad_(is_adapter(name) and name.endswith(trained))
    if frozen_weights == "nf4" and not _linear_weights(trunk):
        raise InputError(
            key="model.frozen_weights",
            value="nf4",
            expected=f"bf16 or fp32 for a {transformer.config.model_type}, which has no linear layers of torch",
        )
    if frozen_weights != "fp32":
        cast_frozen_to_bf16(transformer, *beside, rounded=frozen_weights == "bf16")
    trunk.adapted = AdapterRecord(  # type: ignore[assignment]  # a plain attribute, which copies take along
        base=under.base, prefix="", adapters=adapters, frozen_weights=frozen_weights, digest=""
    )


def quantize_frozen_layers(module: nn.Module) -> None:
    """Quantise the frozen linear layers below the adapters of a module to 4 bits where its record says nf4, in place.

    Its digest stays that of the weights as they were.
    """
    record = record_of(module)
    if record is not None and record["frozen_weights"] == "nf4":
        trunk = next(part for part in module.modules() if "adapted" in vars(part))
        quantise(module, _linear_weights(cast(PreTrainedModel, trunk)))


def dequantize_frozen_layers(module: nn.Module, loaded: Callable[[], nn.Module], where: str) -> bool:
    """Undo `quantize_frozen_layers`: put back the weights of the same module as it is ``loaded`` again, in place.

    Returns:
        Whether there was anything in 4 bits.

    Raises:
        InputError: the backbone is no longer the one that the adapters were trained upon.
    """
    if not is_quantised(module):
        return False
    original = loaded()
    check_digest(original, cast(AdapterRecord, record_of(module)), where)
    dequantize(module, original)
    return True


def restore(
    transformer: PreTrainedModel, record: AdapterRecord, state: Mapping[str, Tensor], where: str
) -> PreTrainedModel:
    """The backbone of a checkpoint's adapters -> the same transformer with them merged; float32.

    ``state`` has the checkpoint's own names. Raises InputError where the backbone is another one.
    """
    under = AdapterBase(record["base"], record["adapters"][:-1], {})
    adapt(transformer, record["adapters"][-1], under, record["frozen_weights"])
    check_digest(transformer.base_model, record, where)
    _load(transformer.base_model, _within(state, record["prefix"]), where)
    return merged(transformer).requires_grad_(True)


@torch.no_grad()
def merged(transformer: PreTrainedModel) -> PreTrainedModel:
    """The same transformer without adapters, which have gone into its weights; in float32 and in place."""
    if is_quantised(transformer):
        raise RuntimeError("An adapter is merged into the weights as they were. Call widen first.")
    restore_float32(transformer)
    for name, layer in list(_layers(transformer)):
        layer.merge()
        transformer.set_submodule(name, layer.get_base_layer())
    if "adapted" in vars(transformer.base_model):
        del transformer.base_model.adapted
    return transformer


def record_of(module: nn.Module) -> AdapterRecord | None:
    """What a checkpoint is to say of the adapters in a module; None where there are none."""
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
    """Take the sums of the weights below and beside the adapters of a module from the record of another process."""
    for part in module.modules():
        if "adapted" in vars(part):
            own = cast(AdapterRecord, part.adapted)
            own["digest"], own["beside"] = record["digest"], record.get("beside", "")


def weights_not_checkpointed(module: nn.Module) -> set[str]:
    """Names of weights that no checkpoint holds, because they are the backbone's."""
    if not any("adapted" in vars(part) for part in module.modules()):
        return set()
    every = module.named_parameters(remove_duplicate=False)
    return {name for name, weight in every if not weight.requires_grad and not is_adapter(name)}


def is_adapter(name: str) -> bool:
    return any(part in name for part in ADAPTER_NAME_PARTS)


def weight_of(linear: Any) -> Tensor:
    """(out, in) what a linear layer multiplies by, adapters included, with gradient; their dropout left out."""
    weight = linear.weight
    for adapter in getattr(linear, "active_adapters", ()):
        weight = weight + linear.get_delta_weight(adapter)
    return weight


def digest(trunk: nn.Module) -> str:
    """sha256 over the weights below the adapters; empty where they are absent."""
    if any(weight.is_meta for weight in trunk.parameters()):
        return ""
    return fingerprint({name: weight for name, weight in trunk.named_parameters() if not is_adapter(name)})


def check_digest(module: nn.Module, record: AdapterRecord, where: str) -> None:
    """InputError where the weights below and beside the adapters of ``module`` are not those of the record."""
    own = record_of(module)
    if own is None:
        return
    head = own.get("beside", ""), record.get("beside", "")
    for what, here, there in (("trunk", own["digest"], record["digest"]), ("head", *head)):
        if here and there and here != there:
            raise InputError(
                f"{where}: the adapter was trained upon other weights than those of backbone={own['base']} here (its "
                f"{what}, digest {there[:8]} there, {here[:8]} here). Put back the backbone that the run began with."
            )


def _put_in(trunk: PreTrainedModel, name: str, keys: LoraKeys) -> None:
    """The first weights are peft's: products of zero and what kaiming_uniform draws, here from the seed."""
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
    del trunk.peft_config  # it would be taken for another one that is being put in
    drawn = torch.Generator().manual_seed(keys["seed"])
    for _, layer in _layers(trunk):
        if name in layer.lora_A:
            nn.init.kaiming_uniform_(layer.lora_A[name].weight, a=math.sqrt(5), generator=drawn)
            nn.init.zeros_(layer.lora_B[name].weight)
        layer.set_adapter(list(layer.lora_A))
        layer.cast_input_dtype_enabled = False  # under autocast it would widen states for a product in 16 bits


def _targets(trunk: PreTrainedModel, wanted: str | Sequence[str]) -> str | list[str]:
    """Of peft, which takes layers by the ends of their names, passes over a name that no layer has, and would give a
    language-model head, whose weights may be the embeddings, an adapter.
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
        raise InputError(
            f"model.lora.targets={wanted}: no linear layer is called {', '.join(unknown) or 'so'}. They are called "
            f"{', '.join(called)}; auto takes all of them."
        )
    return named


def _linear_weights(trunk: PreTrainedModel) -> set[nn.Parameter]:
    """Frozen matrices that nothing but linear layers read; those of adapters and of a language-model head left out."""
    head, linear, others = trunk.get_output_embeddings(), set[nn.Parameter](), set[nn.Parameter | None]()
    for name, layer in trunk.named_modules():
        if type(layer) in (nn.Linear, HeldLinear) and layer is not head and not is_adapter(f".{name}."):
            linear.add(raw_parameters(layer)["weight"])
        else:
            others |= set(raw_parameters(layer).values())
    return {weight for weight in linear - others if not weight.requires_grad}


def alpha_of(keys: LoraKeys) -> float:
    return 2 * cast(int, keys["rank"]) if keys["alpha"] is None else keys["alpha"]


def _layers(transformer: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, module) for name, module in transformer.named_modules() if hasattr(module, "lora_A"))


def _within(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in state.items() if is_adapter(name)}


def _load(trunk: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    own = {name: tuple(weight.shape) for name, weight in trunk.named_parameters() if is_adapter(name)}
    different = sorted(name for name, weight in weights.items() if own.get(name) != tuple(weight.shape))
    if different:
        raise InputError(f"{where}: its adapter does not fit the backbone: {different[0]}. Was the backbone changed?")
    trunk.load_state_dict(dict(weights), strict=False)
