"""Dense layers behind the pooling, as in sentence-transformers.

Shape letters: B texts, D width of what is pooled, E width of what comes out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from contrastive_encoders.core import InputError

TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


class Dense(nn.Module):
    """(B, D) -> (B, E) float32. ``activation`` is the path of a class of torch.nn that is made without arguments.

    Names of weights are the library's. Under autocast products stay in the precision of the weights: 8 bits of mantissa
    would go into every cosine.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, activation: str = TANH) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.path, self.activation_function = activation, activation_of(activation)()

    @property
    def options(self) -> dict[str, Any]:
        """What the library's config.json of a Dense says."""
        return {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": self.path,
        }

    @property
    def is_tanh_layer(self) -> bool:
        """Whether it is the layer of BERT's pooler and of SimCSE: square, with a bias and tanh."""
        return is_tanh_layer(self.options)

    @property
    def described(self) -> str:
        if self.is_tanh_layer:
            return "tanh layer"
        activation = self.path.rpartition(".")[2]
        named = "" if activation == "Identity" else f" {activation}"
        return f"dense {self.linear.in_features} to {self.linear.out_features}{named}"

    def forward(self, vectors_BD: Tensor) -> Tensor:
        with torch.autocast(vectors_BD.device.type, enabled=False):
            return cast(Tensor, self.activation_function(self.linear(vectors_BD.to(self.linear.weight.dtype)).float()))


class TanhHead(Dense):
    """(B, width) -> (B, width) float32. The weights are drawn from ``seed`` alone, as a transformer draws its own."""

    def __init__(self, width: int, *, seed: int, std: float = 0.02) -> None:
        super().__init__(width, width)
        with torch.no_grad():
            self.linear.weight.normal_(std=std, generator=torch.Generator().manual_seed(seed))
            self.linear.bias.zero_()


def is_tanh_layer(options: Mapping[str, Any]) -> bool:
    square = options.get("in_features") == options.get("out_features")
    return bool(square and options.get("bias", True) and options.get("activation_function", TANH) == TANH)


def activation_of(path: str) -> type[nn.Module]:
    """The class of torch.nn; Raises InputError where there is none of that name that needs no argument."""
    package, _, name = path.rpartition(".")
    found = getattr(nn, name, None) if package == "torch.nn" or package.startswith("torch.nn.modules") else None
    if isinstance(found, type) and issubclass(found, nn.Module):
        try:
            found()
            return found
        except TypeError:
            pass
    raise InputError(f"The activation {path} of a Dense is none of torch.nn's that are made without arguments.")


def dense_layers(head: nn.Module | None) -> list[Dense]:
    """Of what stands behind the pooling: nothing, one layer, or several one behind the other."""
    if head is None:
        return []
    return [head] if isinstance(head, Dense) else [cast(Dense, layer) for layer in cast(nn.Sequential, head)]


def head_of(options: Sequence[Mapping[str, Any]], weights: Mapping[str, Tensor], width: int, where: str) -> nn.Module:
    """The layers that ``options`` describe, on pooled vectors of ``width`` numbers; ``weights`` by the names that
    `dense_layers` has them under.

    Raises:
        InputError: they do not fit each other, or the weights do not fit them; ``where`` begins the message.
    """
    layers = list[Dense]()
    for each in options:
        layer = Dense(
            each["in_features"],
            each["out_features"],
            bias=each.get("bias", True),
            activation=each.get("activation_function", TANH),
        )
        if layer.linear.in_features != width:
            raise InputError(f"{where}: wanted a layer that reads {width} numbers, got {layer.linear.in_features}.")
        width = layer.linear.out_features
        layers.append(layer)
    head = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    wanted = {key: tuple(weight.shape) for key, weight in head.state_dict().items()}
    found = {key: tuple(weight.shape) for key, weight in weights.items()}
    if found != wanted:
        raise InputError(f"{where}: wanted {wanted}, got {found}. Fetch or export it again.")
    head.load_state_dict(dict(weights))
    return head.float()
