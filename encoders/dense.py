"""Dense layers after the pooling, as in sentence-transformers.

Shape letters: B texts, D input dimension, E output dimension.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from contrastive_encoders.core import InputError

TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


class Dense(nn.Module):
    """Linear layer with an activation, which maps B vectors of dimension D to dimension E: (B, D) -> (B, E) float32.

    Weights have the same names as in sentence-transformers. Under autocast, the matmul is computed in the precision of
    the weights: otherwise every cosine would have the error of an 8-bit mantissa.

    Args:
        in_features: Input dimension D.
        out_features: Output dimension E.
        bias: Whether the layer has a bias.
        activation: Import path of a ``torch.nn`` class that is constructed without arguments.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, activation: str = TANH) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.path, self.activation_function = activation, activation_of(activation)()

    @property
    def options(self) -> dict[str, Any]:
        """The layer's options, as in the config.json of a Dense module of sentence-transformers."""
        return {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": self.path,
        }

    @property
    def is_tanh_layer(self) -> bool:
        """Whether the layer has the form of BERT's pooler and SimCSE's MLP: square, with a bias and a tanh."""
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
    """Linear layer with tanh whose input and output have the same width: (B, width) -> (B, width) float32.

    The weights are initialized from ``seed`` only, with the distribution that transformers use.
    """

    def __init__(self, width: int, *, seed: int, std: float = 0.02) -> None:
        super().__init__(width, width)
        with torch.no_grad():
            self.linear.weight.normal_(std=std, generator=torch.Generator().manual_seed(seed))
            self.linear.bias.zero_()


def is_tanh_layer(options: Mapping[str, Any]) -> bool:
    square = options.get("in_features") == options.get("out_features")
    return bool(square and options.get("bias", True) and options.get("activation_function", TANH) == TANH)


def activation_of(path: str) -> type[nn.Module]:
    """Return the class of ``torch.nn`` with the given import path.

    Raises:
        InputError: If there is no such class, or if it requires arguments.
    """
    package, _, name = path.rpartition(".")
    found = getattr(nn, name, None) if package == "torch.nn" or package.startswith("torch.nn.modules") else None
    if isinstance(found, type) and issubclass(found, nn.Module):
        try:
            found()
            return found
        except TypeError:
            pass
    raise InputError(
        key="activation_function", value=path, expected="a class of torch.nn that can be created without arguments"
    )


def dense_layers(head: nn.Module | None) -> list[Dense]:
    """Return the Dense layers of a head, which is None, a single layer, or an ``nn.Sequential`` of layers."""
    if head is None:
        return []
    return [head] if isinstance(head, Dense) else [cast(Dense, layer) for layer in cast(nn.Sequential, head)]


def head_of(options: Sequence[Mapping[str, Any]], weights: Mapping[str, Tensor], width: int, where: str) -> nn.Module:
    """Build Dense layers and load their weights.

    Args:
        options: Options of each layer, as in `Dense.options`.
        weights: Weights, named as in the state dict of the head.
        width: Dimension of the pooled embeddings.
        where: Start of error messages.

    Raises:
        InputError: If the layers do not fit each other, or if the weights do not fit the layers.
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
            raise InputError(
                location=where, expected=f"a layer with {width} input features", value=layer.linear.in_features
            )
        width = layer.linear.out_features
        layers.append(layer)
    head = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    expected, found = (
        ", ".join(f"{key} {list(weight.shape)}" for key, weight in sorted(tensors.items()))
        for tensors in (head.state_dict(), weights)
    )
    if found != expected:
        raise InputError(
            location=where,
            expected=f"weights of the shapes {expected}",
            value=found,
            hint="Download or export the model again.",
        )
    head.load_state_dict(dict(weights))
    return head.float()
