"""A training step of every objective, and the operations in it that make the host wait for the device.

As a script: ``python -m tests.gpu_steps MASKED T5 DECODER CASE ...`` runs them on a device that does not exist. Its
tensors have a shape, a type and a device but no values, so reading a value fails; synchronous copies are counted.
"""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from contrastive_encoders.core import (
    NLIBatch,
    Ragged,
    ScoredPairBatch,
    ScoredTripletBatch,
    SentenceBatch,
    Seq2SeqBatch,
    SpanBatch,
    TripletBatch,
)
from contrastive_encoders.encoders import sentence_encoder
from contrastive_encoders.encoders.kernels.unpadded import AttentionPlan
from contrastive_encoders.encoders.optimizers import adafactor, adamw
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from tests.objectives import built, settings

ROWS = np.arange(6)
DEVICE = "gpu:0"
BUDGET = {"token_budget": 128}  # several chunks, which are recomputed


def ragged(count: int, seed: int) -> Ragged:
    lengths = np.random.default_rng((5, seed)).integers(4, 20, size=count)
    return Ragged(torch.randint(5, 100, (int(lengths.sum()),), generator=torch.Generator().manual_seed(seed)), lengths)


def spans() -> SpanBatch:
    anchors, positives = ragged(6, 1), ragged(12, 2)
    predicted = np.arange(1, len(anchors.ids), 5)
    labels = torch.full_like(anchors.ids, -100)
    labels[predicted] = anchors.ids[predicted]
    return SpanBatch(anchors, anchors.ids.clone(), labels, positives, ROWS[:3], predicted=predicted)


def pairs() -> ScoredPairBatch:
    return ScoredPairBatch(ragged(6, 1), ragged(6, 2), torch.linspace(0, 1, 6), ROWS)


def triplets() -> TripletBatch:
    return TripletBatch(ragged(6, 1), ragged(6, 2), ragged(6, 3), torch.tensor([0, 1, 2, 2, 3, 4]), ROWS)


def inferences() -> NLIBatch:
    return NLIBatch(ragged(6, 1), ragged(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]), ROWS)


def damaged() -> SentenceBatch:
    return SentenceBatch(ragged(6, 1), ROWS, ragged(6, 2))


def texts() -> Seq2SeqBatch:
    return Seq2SeqBatch(ragged(6, 1), ragged(6, 2), np.array([0, 1, 2, 3, 0, 1]), ROWS)


def taught() -> TripletBatch:
    return triplets()._replace(taught=torch.zeros(6, 3, 24, dtype=torch.float16))


def scored_triplets() -> ScoredTripletBatch:
    return ScoredTripletBatch(ragged(6, 1), ragged(6, 2), ragged(6, 3), torch.linspace(0, 1, 12).view(6, 2), ROWS)


QUICK = ("declutr", "gense_generator, causal")
# name -> objective, backbone, batch, keys other than the config's
CASES: dict[str, tuple[str, str, Callable[[], Any], dict[str, Any]]] = {
    "declutr": ("declutr", "masked", spans, BUDGET),
    "declutr, masked apart": ("declutr", "masked", spans, {"mask_anchors_for_contrast": False}),
    "declutr, causal": (
        "declutr",
        "decoder",
        spans,
        BUDGET | {"pooling": "mean", "attention": "bidirectional", "mask_token": "a"},
    ),
    "simcse": ("simcse", "masked", triplets, {"matryoshka": [8, 16], "mlp": False}),
    "sroberta": ("sroberta", "masked", pairs, BUDGET),
    "sroberta, adapters": ("sroberta", "masked", pairs, {"lora": {**settings("model", "sroberta")["lora"], "rank": 2}}),
    "declutr, padded": ("declutr", "masked", spans, BUDGET | {"attn_implementation": "sdpa"}),
    "sbert_nli": ("sbert_nli", "masked", inferences, {}),
    "gense": ("gense", "t5", triplets, BUDGET),
    "tsdae": ("tsdae", "masked", damaged, BUDGET),
    "simcse, guided": ("simcse", "masked", triplets, {"guide": "masked", "mlp": False}),
    "simcse, taught": ("simcse", "masked", taught, BUDGET | {"teacher": "any", "mlp": False, "matryoshka": [8, 24]}),
    "distil_scores": ("distil_scores", "masked", scored_triplets, BUDGET | {"loss": "kl"}),
    "reranker": ("reranker", "masked", triplets, BUDGET),
    "reranker, listwise": ("reranker", "masked", triplets, {"loss": "listwise"}),
    "reranker, scored pairs": ("reranker", "masked", pairs, BUDGET),
    "gense_generator": ("gense_generator", "t5", texts, BUDGET),
    "gense_generator, causal": ("gense_generator", "decoder", texts, BUDGET),
}


def module_of(case: str, backbones: Mapping[str, Any], **more: Any) -> Any:
    objective, backbone, _, keys = CASES[case]
    guide = {"guide": str(backbones[keys["guide"]])} if "guide" in keys else {}
    module = built(objective, backbones[backbone], **keys | guide | more)
    if "teacher" in keys:
        module.learn_from_teacher(24, seed=1)
    return module


def step(module: Any, batch: Any, optimizer: torch.optim.Optimizer) -> None:
    """Run what Lightning does in one step, and the telemetry at a step that is not logged."""
    from contrastive_encoders.training.callbacks.telemetry import Telemetry

    trainer = SimpleNamespace(global_step=1, max_steps=-1, max_epochs=None, is_last_batch=False, optimizers=[optimizer])
    telemetry = Telemetry(every_n_steps=50)
    telemetry.on_train_batch_start(trainer, module, batch, 0)
    outputs = module.training_step(batch, 0)
    optimizer.zero_grad()
    outputs["loss"].backward()
    module.clip(optimizer, 1.0)
    optimizer.step()
    telemetry.on_train_batch_end(trainer, module, outputs, batch, 0)


def optimizer_of(module: Any) -> torch.optim.Optimizer:
    common = {"lr": 1e-3, "weight_decay": 0.0, "schedule": lambda step: 1.0, "rates": {}}
    if module.settings.optimizer != "adamw":
        return adafactor(module, scaled=True, **common)["optimizer"]
    return adamw(module, betas=(0.9, 0.999), eps=1e-6, bias_correction=False, **common)["optimizer"]


# ---------------------------------------------------------------------------- the device that does not exist


class Module:
    """The module that torch expects of a device."""

    @staticmethod
    def is_initialized() -> bool:
        return True

    is_available = is_initialized

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        pass

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16]


class Waits(TorchDispatchMode):
    """Mode that counts synchronous copies between host and device, by the operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, str(function)
        places = [one.device.type for one in args if isinstance(one, torch.Tensor)]
        if "_to_copy" in name and "device" in kwargs:
            away = torch.device(kwargs["device"]).type
            if away != places[0] and (away == "cpu" or not kwargs.get("non_blocking")):
                self.found.append(f"{name} {places[0]} to {away}")
        elif "copy_" in name and places[0] != places[-1] and (places[0] == "cpu" or not (*args, False)[2]):
            self.found.append(f"{name} {places[-1]} to {places[0]}")
        return function(*args, **kwargs)


def on_the_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of texts so that its results have values."""

    def real(*given: Any) -> Any:
        with unset_fake_temporarily():
            return function(*given)

    return real


def on_the_device(value: Any) -> Any:
    """Move a batch as Lightning does; NumPy arrays stay on the host."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
    if isinstance(value, tuple):
        return type(value)(*map(on_the_device, value))
    return value


def put_on_the_device(module: torch.nn.Module) -> None:
    """Put the weights on the device, shared ones once; ``Module.to`` cannot do this."""
    made: dict[int, Any] = {}
    for layer in module.modules():
        for own in (layer._parameters, layer._buffers):
            for name, weight in own.items():
                if weight is not None:
                    if id(weight) not in made:
                        made[id(weight)] = on_the_device(weight)
                        if isinstance(weight, torch.nn.Parameter):
                            made[id(weight)] = torch.nn.Parameter(made[id(weight)], weight.requires_grad)
                    own[name] = made[id(weight)]


def waits_of(case: str, backbones: dict[str, str]) -> list[str]:
    """Return the waits of the second step; the first creates the optimizer's state."""
    module = module_of(case, backbones)
    batch = module.on_before_batch_transfer(CASES[case][2](), 0)
    _, backbone, _, keys = CASES[case]
    if backbone != "t5" and "attn_implementation" not in keys and hasattr(module, "encoder"):
        module.encoder.attention_plans[torch.device(DEVICE).type] = AttentionPlan(
            True, 0, ""
        )  # the proof that this is allowed reads values
    waits = Waits()
    with FakeTensorMode(allow_non_fake_inputs=True):
        for one in (module, *(module.guide.modules if getattr(module, "guide", None) else ())):
            put_on_the_device(one)
        batch, optimizer = on_the_device(batch), optimizer_of(module)
        step(module, batch, optimizer)
        with waits:
            step(module, batch, optimizer)
    return waits.found


def asked(something: Callable[[torch.Tensor], Any]) -> list[str]:
    """Return how a wait of the function is detected: its error, or the counted copies."""
    waits = Waits()
    with FakeTensorMode(allow_non_fake_inputs=True):
        values = torch.zeros(3, device=DEVICE)
        try:
            with waits:
                something(values)
        except Exception as error:  # noqa: BLE001  # each operation has its own
            return [type(error).__name__]
    return waits.found


CONTROLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda values: values.sum().item(),
    "condition": lambda values: 1 if (values > 0).all() else 0,
    "mask": lambda values: values[values > 0],
    "places": lambda values: values.nonzero(),
    "kinds": lambda values: values.unique(),
    "number": lambda values: values + torch.tensor(1.0, device=values.device),
    "sent": lambda values: values + torch.ones(3).to(values.device),
    "fetched": lambda values: values.cpu(),
    "nothing": lambda values: values + torch.ones(3).to(values.device, non_blocking=True) * 2,
}


def main() -> None:
    from transformers import masking_utils

    backend_registration._setup_privateuseone_for_python_backend("gpu", Module())
    SentenceEncoder.tokenize = on_the_host(SentenceEncoder.tokenize)
    sentence_encoder.distinct = on_the_host(sentence_encoder.distinct)
    masking_utils.is_tracing = lambda *_: False  # it does not ask tensors without values what it asks of others
    backbones = dict(zip(("masked", "t5", "decoder"), sys.argv[1:4], strict=True))
    found = {f"control: {name}": asked(something) for name, something in CONTROLS.items()}
    for case in sys.argv[4:]:
        try:
            found[case] = waits_of(case, backbones)
        except Exception as error:  # noqa: BLE001  # the test shows it
            found[case] = traceback.format_exception(error)[-12:]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
