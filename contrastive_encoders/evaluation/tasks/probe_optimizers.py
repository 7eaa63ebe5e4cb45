"""One optimization step of many linear classifiers: logits, gradients, and updates.

For such small models, autograd and torch.optim would spend most of a step on bookkeeping.

Shape letters: G splits of the data, R classifiers on each, B rows of a batch, D width of an embedding, E = D + 1 (every
row ends in a 1, so that a layer's bias is the last column of its weights), H hidden units, C classes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

ADAM_RATE, ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8  # defaults of torch.optim.Adam
RMSPROP_RATE, RMSPROP_ALPHA, RMSPROP_EPS = 1e-2, 0.99, 1e-8  # defaults of torch.optim.RMSprop


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager that limits torch to one thread on the CPU.

    A small classifier computes many matmuls of about 10 microseconds each, which several threads only slow down.
    Threads that wait for each other cost ten times the computation if other processes use the cores (63 s instead of
    6 s for TREC).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def initial_layer(width: int, outputs: int, generator: torch.Generator) -> Tensor:
    """Return the initial weights of ``nn.Linear(width, outputs)`` with the bias as the last column, (outputs, width +
    1).
    """
    weights = torch.empty(outputs, width + 1, dtype=torch.float32)
    kernel, bias = torch.empty_like(weights[:, :width]), torch.empty_like(weights[:, width])
    nn.init.kaiming_uniform_(kernel, a=math.sqrt(5), generator=generator)
    nn.init.uniform_(bias, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
    weights[:, :width], weights[:, width] = kernel, bias
    return weights


class Softmax:
    """Linear softmax classifiers, R for each of G data splits; with C classes and E features, their weights have the
    shape (G, R, C, E).
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def initial(self, width: int, generator: torch.Generator) -> list[Tensor]:
        return [initial_layer(width, self.classes, generator)]

    def logits(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        """Return the logits of the C classes for B rows of each split, (G, R, C, B)."""
        return _apply(weights[0], x_GBE)

    def predict(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        """Return the predicted classes of B rows of each split, (G, R, B)."""
        return self.logits(weights, x_GBE).argmax(2)

    def gradients(self, weights: Sequence[Tensor], x_GBE: Tensor, y_GB: Tensor, share_GB: Tensor) -> list[Tensor]:
        """Return the gradients of the cross-entropy, summed over rows with the weights ``share_GB`` (1 / rows for the
        mean).
        """
        return [_spread(self._error(self.logits(weights, x_GBE), y_GB, share_GB), x_GBE)]

    def _error(self, logits_GRCB: Tensor, y_GB: Tensor, share_GB: Tensor) -> Tensor:
        error_GRCB = logits_GRCB.softmax(2)
        target_GRCB = y_GB[:, None, None].expand(-1, error_GRCB.shape[1], 1, -1)
        error_GRCB.scatter_add_(2, target_GRCB, error_GRCB.new_full((1, 1, 1, 1), -1.0).expand_as(target_GRCB))
        return error_GRCB.mul_(share_GB[:, None, None])


class Binary(Softmax):
    """Linear classifiers for two classes.

    Only the difference of the two logits matters, and their gradients differ only in sign.
    """

    def __init__(self) -> None:
        super().__init__(classes=2)

    def predict(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        return (self._margin(weights, x_GBE) > 0).long()

    def gradients(self, weights: Sequence[Tensor], x_GBE: Tensor, y_GB: Tensor, share_GB: Tensor) -> list[Tensor]:
        error_GRB = self._margin(weights, x_GBE).sigmoid_().sub_(y_GB[:, None]).mul_(share_GB[:, None])
        second_GRE = torch.bmm(error_GRB, x_GBE)
        return [torch.stack([second_GRE.neg(), second_GRE], dim=2)]

    def _margin(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        return torch.bmm(weights[0][:, :, 1] - weights[0][:, :, 0], x_GBE.transpose(1, 2))


class Hidden(Softmax):
    """Classifiers that consist of two linear layers with a sigmoid between them.

    SentEval's dropout is omitted: its probability is 0 unless a user sets it.
    """

    def __init__(self, classes: int, units: int) -> None:
        super().__init__(classes)
        self.units = units

    def initial(self, width: int, generator: torch.Generator) -> list[Tensor]:
        first_HE = initial_layer(width, self.units, generator)
        return [first_HE, initial_layer(self.units, self.classes, generator)]

    def logits(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        return self._upper(weights, self._lower(weights, x_GBE))

    def gradients(self, weights: Sequence[Tensor], x_GBE: Tensor, y_GB: Tensor, share_GB: Tensor) -> list[Tensor]:
        hidden_GRHB = self._lower(weights, x_GBE)
        error_GRCB = self._error(self._upper(weights, hidden_GRHB), y_GB, share_GB)
        second_GRCH = error_GRCB @ hidden_GRHB.transpose(2, 3)
        second = torch.cat([second_GRCH, error_GRCB.sum(3, keepdim=True)], dim=3)
        back_GRHB = weights[1][..., :-1].transpose(2, 3) @ error_GRCB * hidden_GRHB * (1 - hidden_GRHB)
        return [_spread(back_GRHB, x_GBE), second]

    def _lower(self, weights: Sequence[Tensor], x_GBE: Tensor) -> Tensor:
        return _apply(weights[0], x_GBE).sigmoid_()

    def _upper(self, weights: Sequence[Tensor], hidden_GRHB: Tensor) -> Tensor:
        return weights[1][..., :-1] @ hidden_GRHB + weights[1][..., -1:]


def _apply(layer_GRCE: Tensor, x_GBE: Tensor) -> Tensor:
    """Apply the linear layers of R classifiers to B rows of each of G splits; with C outputs, the result has the shape
    (G, R, C, B).

    All classifiers of a split see the same rows, so they are computed in one matmul.
    """
    splits, members, outputs, width = layer_GRCE.shape
    flat = torch.bmm(layer_GRCE.reshape(splits, members * outputs, width), x_GBE.transpose(1, 2))
    return flat.view(splits, members, outputs, -1)


def _spread(error_GRCB: Tensor, x_GBE: Tensor) -> Tensor:
    """Return the gradient of a layer's weights, in their shape (G, R, C, E), from the gradient of the layer's
    outputs.
    """
    splits, members, outputs, rows = error_GRCB.shape
    flat = torch.bmm(error_GRCB.reshape(splits, members * outputs, rows), x_GBE)
    return flat.view(splits, members, outputs, -1)


def adam(weight: Tensor, gradient: Tensor, moments: Sequence[Tensor], step: int) -> None:
    """Update weights by Adam (Kingma and Ba 2015) as in torch.optim.Adam. Overwrites ``gradient``."""
    first, second = moments
    first.lerp_(gradient, 1 - ADAM_BETA1)
    second.mul_(ADAM_BETA2).addcmul_(gradient, gradient, value=1 - ADAM_BETA2)
    # Both of torch's divisions by the root of the second moment's correction, moved out of the elementwise operations
    root = math.sqrt(1 - ADAM_BETA2**step)
    scale = torch.sqrt(second, out=gradient).add_(ADAM_EPS * root)
    weight.addcdiv_(first, scale, value=-ADAM_RATE * root / (1 - ADAM_BETA1**step))


def rmsprop(weight: Tensor, gradient: Tensor, moments: Sequence[Tensor], step: int) -> None:
    """Update weights by RMSprop as in torch.optim.RMSprop, without momentum and not centered.

    Overwrites ``gradient``.
    """
    del step
    (second,) = moments
    second.mul_(RMSPROP_ALPHA).addcmul_(gradient, gradient, value=1 - RMSPROP_ALPHA)
    scale = torch.sqrt(second).add_(RMSPROP_EPS)
    weight.addcdiv_(gradient, scale, value=-RMSPROP_RATE)


Update = Callable[[Tensor, Tensor, Sequence[Tensor], int], None]
OPTIMIZERS: dict[str, tuple[Update, int]] = {"adam": (adam, 2), "rmsprop": (rmsprop, 1)}  # with number of moments
