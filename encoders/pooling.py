"""Pooling: from token states to one vector per sequence, by name.

Or, of an encoder-decoder, the state of the decoder's first position. Behind it, where an objective has one: a head.

Shape letters: B sequences, T tokens, D width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contrastive_encoders.encoders.dense import Dense


def mean(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Average over all real tokens, special tokens included, in float32."""
    weight_BT1 = mask_BT.unsqueeze(-1).float()
    return (states_BTD.float() * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


def cls(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The state of the first token, before any pooler layer of the backbone."""
    return states_BTD[:, 0].float()


def maximum(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The largest value of each feature over the real tokens."""
    states = states_BTD.float()
    return states.masked_fill(mask_BT.unsqueeze(-1) == 0, torch.finfo(states.dtype).min).amax(1)


def last(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The state of the last real token, the one that has seen all others in a causal model (E5-Mistral)."""
    places_BT = mask_BT.long() * torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
    index_B1D = places_BT.argmax(1).view(-1, 1, 1).expand(-1, 1, states_BTD.shape[-1])
    return states_BTD.gather(1, index_B1D).squeeze(1).float()


def weighted_mean(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Average over the real tokens, the i-th of them weighted by i / (1 + 2 + ... ) (SGPT, Muennighoff 2022)."""
    weight_BT1 = (mask_BT.long().cumsum(1) * mask_BT.long()).unsqueeze(-1).float()
    return (states_BTD.float() * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


LAST_LAYER = (-1,)


class Pooler(NamedTuple):
    """``layers`` index the hidden states of transformers: 0 is the embedding layer, 1 the first layer, -1 the last."""

    over_tokens: Callable[[Tensor, Tensor], Tensor]
    layers: tuple[int, ...] = LAST_LAYER
    decodes: bool = False  # the states are the decoder's, which is given its start token alone
    is_shipped: bool = False  # a layer behind it comes with the backbone: `shipped_pooler`

    @property
    def options(self) -> dict[str, bool]:
        """What the backbone has to be called with."""
        return {} if self.layers == LAST_LAYER else {"output_hidden_states": True}

    def __call__(self, output: Any, mask_BT: Tensor) -> Tensor:
        """A backbone's output -> (B, D) float32."""
        return self.over_tokens(self._states(output), mask_BT)

    def of_row(self, output: Any, row: Any) -> Tensor:
        """The same where the sequences stand one behind the other in a `Row`."""
        return row.pooled(self.over_tokens, self._states(output)[0])

    def _states(self, output: Any) -> Tensor:
        if self.layers == LAST_LAYER:
            return output.last_hidden_state
        return torch.stack([output.hidden_states[layer].float() for layer in self.layers]).mean(0)


POOLERS: dict[str, Pooler] = {
    "mean": Pooler(mean),
    "cls": Pooler(cls),
    "max": Pooler(maximum),
    "last": Pooler(last),
    "weighted_mean": Pooler(weighted_mean),
    "cls_before_pooler": Pooler(cls),  # SimCSE's name
    "pooler_output": Pooler(cls, is_shipped=True),  # SimCSE's --pooler cls
    "avg_top2": Pooler(mean, (-1, -2)),
    "avg_first_last": Pooler(mean, (1, -1)),  # SimCSE since its correction
    "first_decoder": Pooler(cls, decodes=True),  # GenSE, ST5-EncDec
    "avg_embedding_last": Pooler(mean, (0, -1)),  # what SimCSE before that and GenSE call avg_first_last
}


class TanhHead(Dense):
    """(B, width) -> (B, width) float32. The weights are drawn from ``seed`` alone, as a transformer draws its own."""

    def __init__(self, width: int, *, seed: int, std: float = 0.02) -> None:
        super().__init__(width, width)
        with torch.no_grad():
            self.linear.weight.normal_(std=std, generator=torch.Generator().manual_seed(seed))
            self.linear.bias.zero_()
